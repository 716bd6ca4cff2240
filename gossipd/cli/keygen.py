"""``gossipd keygen``: a publisher's or client's key pair, or the key of a cluster.

The random seed is 32 bytes from the operating system. No file is overwritten, because a lost signing key means that
every host must trust a new one.
"""

from __future__ import annotations

import click

from gossipd.cli.layout import show_lines
from gossipd.cli.options import echo_json


@click.command()
@click.argument("path", required=False, type=click.Path(dir_okay=False))
@click.option("--cluster", is_flag=True, help="A cluster's key: a new file at PATH, or without PATH one 'key' line.")
@click.option("--json", "as_json", is_flag=True, help="Print the public key and file names as one JSON object.")
def keygen(path: str | None, cluster: bool, as_json: bool) -> None:
    """Write a new Ed25519 key: PATH (secret, mode 0600) and PATH.pub.

    Give PATH.pub to the hosts (gossipd init --trust PATH.pub) and keep PATH where you publish from.

    With --cluster PATH is a new cluster's key file (mode 0600), for gossipd init --cluster-key. With --cluster and no
    PATH one 'key' line is printed, to be added to the cluster key files of all hosts: it is a secret.

    \b
    Examples:
      gossipd keygen publisher.key
      gossipd keygen ~/.config/gossipd/client.key
      gossipd keygen --cluster cluster.key

    Exit codes: 0 written; 2 no PATH; 7 a file is in the way or cannot be written.
    """
    from pathlib import Path

    from gossipd.core.errors import UsageError

    if path is None and not cluster:
        raise UsageError("PATH is missing: where the secret key goes")
    if path is not None and not Path(path).name:
        raise UsageError(f"PATH {path!r} must name a file")
    if cluster:
        _cluster(path, as_json=as_json)
    else:
        assert path is not None
        _pair(path, as_json=as_json)


def _cluster(path: str | None, *, as_json: bool) -> None:
    import os
    from pathlib import Path

    from gossipd.identity.cluster_key import CLUSTER_ID_BYTES, CLUSTER_KEY_BYTES, new_key_ring
    from gossipd.identity.key_files import write_key_ring

    ring = new_key_ring(os.urandom(CLUSTER_ID_BYTES + CLUSTER_KEY_BYTES))
    if path is None:
        line = f"key {ring.keys[0].hex()}"
        if as_json:
            echo_json({"schema_version": 1, "line": line})
        else:
            click.echo(line)
        return
    write_key_ring(Path(path), ring)
    cluster = ring.cluster_id.hex()
    answer = {"schema_version": 1, "cluster": cluster, "secret": path}
    if as_json:
        echo_json(answer)
    else:
        show_lines([f"wrote {path} (secret, the key of cluster {cluster[:12]})"])


def _pair(path: str, *, as_json: bool) -> None:
    import os
    from pathlib import Path

    from gossipd.identity.key_files import write_key_pair
    from gossipd.identity.keys import KEY_BYTES, SecretKey
    from gossipd.identity.trust import key_id

    secret = SecretKey(os.urandom(KEY_BYTES))
    write_key_pair(Path(path), secret)
    public = secret.public
    if as_json:
        words = {"schema_version": 1, "key_id": key_id(public.ed25519).hex(), "ed25519": public.ed25519.hex()}
        echo_json({**words, "secret": path, "public": f"{path}.pub"})
    else:
        show_lines([f"wrote {path} (secret, keep it) and {path}.pub (key {key_id(public.ed25519).hex()[:12]})"])
