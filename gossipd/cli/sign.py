"""``gossipd sign``: a manifest under another key, without reading the model.

What lives here: the command. What does not: the envelope (``manifest``) and writing the file (``publish.output``).

The payload stays as it is, and with it the deployment: hosts that have the model keep it, hosts that trust only the new
key can fetch it. The old signature is checked first, because the new key vouches for what the file says.
"""

from __future__ import annotations

from pathlib import Path

import click

from gossipd.cli.layout import show_lines
from gossipd.cli.options import GivenFile, NewFile, echo_json, examples


@click.command(
    epilog=examples(
        "gossipd sign qwen-3.manifest --key new.key --trust old.key.pub",
        "gossipd sign qwen-3.manifest --key new.key --trust old.key.pub --out /var/lib/gossipd/inbox/qwen-3.manifest",
    )
    + "\n\nExit codes: 0 written; 2 wrong arguments; 7 a signature or a key is not good."
)
@click.argument("manifest", type=GivenFile(dir_okay=False, path_type=Path))
@click.option("--key", required=True, metavar="FILE", help="The secret key that signs from now on.")
@click.option(
    "--trust", required=True, multiple=True, metavar="FILE.pub", help="The key that signed it; may be repeated."
)
@click.option(
    "--out", metavar="FILE", type=NewFile(dir_okay=False), help="Where it goes.  [default: MANIFEST is replaced]"
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout, with schema_version.")
def sign(*, manifest: Path, key: str, trust: tuple[str, ...], out: str | None, as_json: bool) -> None:
    """Sign MANIFEST, which a key of --trust has signed, with another key.

    It is the same deployment as before: drop it into the inbox of a host that shall fetch the model again.
    """
    from gossipd.identity.key_files import read_public_key, read_secret_key
    from gossipd.identity.trust import key_id
    from gossipd.manifest.envelope import ENVELOPE_BYTES_MAX
    from gossipd.manifest.manifest import open_manifest, sign_again
    from gossipd.publish.output import check_writable, write_whole

    secret = read_secret_key(Path(key))
    trusted = [read_public_key(Path(path)).ed25519 for path in trust]
    target = Path(out) if out else manifest
    option = "--out" if out else "MANIFEST, which is replaced without --out:"
    check_writable(target, option)
    with manifest.open("rb") as file:
        before = open_manifest(file.read(ENVELOPE_BYTES_MAX + 1), trusted)
    envelope = sign_again(before, secret)
    write_whole(target, envelope, option)
    signer = key_id(secret.public.ed25519).hex()
    if as_json:
        answer = {"id": before.id.hex(), "name": before.name, "version": before.version, "signed_by": signer}
        echo_json({"schema_version": 1, **answer, "out": str(target), "manifest_bytes": len(envelope)})
    else:
        show_lines([f"{before.label} signed by key {signer[:12]}: {target}"])
