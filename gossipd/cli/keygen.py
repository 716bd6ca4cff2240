"""``gossipd keygen``: a publisher's or client's key pair.

The random seed is 32 bytes from the operating system. No file is overwritten, because a lost signing key means that
every host must trust a new one.
"""

from __future__ import annotations

import json

import click


@click.command()
@click.argument("path", type=click.Path(dir_okay=False))
@click.option("--json", "as_json", is_flag=True, help="Print the public key and file names as one JSON object.")
def keygen(path: str, as_json: bool) -> None:
    """Write a new Ed25519 key: PATH (secret, mode 0600) and PATH.pub.

    Give PATH.pub to the hosts (gossipd init --trust PATH.pub) and keep PATH where you publish from.

    \b
    Examples:
      gossipd keygen publisher.key
      gossipd keygen ~/.config/gossipd/client.key

    Exit codes: 0 written; 7 a file is in the way or cannot be written.
    """
    import os
    from pathlib import Path

    from gossipd.core.errors import UsageError
    from gossipd.identity.key_files import write_key_pair
    from gossipd.identity.keys import KEY_BYTES, SecretKey
    from gossipd.identity.trust import key_id

    if not Path(path).name:
        raise UsageError(f"PATH {path!r} must name a file")
    secret = SecretKey(os.urandom(KEY_BYTES))
    write_key_pair(Path(path), secret)
    public = secret.public
    if as_json:
        words = {"schema_version": 1, "key_id": key_id(public.ed25519).hex(), "ed25519": public.ed25519.hex()}
        click.echo(json.dumps({**words, "secret": path, "public": f"{path}.pub"}))
    else:
        click.echo(f"wrote {path} (secret, keep it) and {path}.pub (key {key_id(public.ed25519).hex()[:12]})")
