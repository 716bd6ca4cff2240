"""``gossipd untrust`` and ``gossipd trust override``: what the operator of a host says of keys, models and names."""

from __future__ import annotations

import re
from pathlib import Path

import click

from gossipd.api.client import StatusClient
from gossipd.cli.completion import KnownName
from gossipd.cli.options import NameVersion, daemon_options, examples, tell
from gossipd.core.errors import UsageError


@click.command(
    epilog=examples("gossipd untrust old.key.pub", "gossipd untrust qwen@3", "gossipd untrust qwen@3 --undo")
)
@click.argument("target", metavar="KEY|NAME@VERSION")
@click.option("--undo", is_flag=True, help="Trust it again.")
@daemon_options
def untrust(*, target: str, undo: bool, client: StatusClient, as_json: bool) -> int:
    """Stop using all models of a publisher's key, or one model, on this host, at once.

    KEY is a .pub file, or the key's id (32 hexadecimal digits). Nothing of it is fetched, served or shown by 'gossipd
    path' any more; files stay until 'gossipd rm'.
    """
    if Path(target).is_file() or target.endswith(".pub"):
        from gossipd.identity.key_files import read_public_key
        from gossipd.identity.trust import key_id

        key = key_id(read_public_key(Path(target)).ed25519).hex()
        return tell(client.order("untrust", key=key, undo=undo), as_json=as_json)
    if re.fullmatch("[0-9a-f]{32}", target):
        return tell(client.order("untrust", key=target, undo=undo), as_json=as_json)
    if "@" not in target:
        raise UsageError(
            f"{target!r} is neither a .pub file, nor a key's id of 32 hexadecimal digits, nor NAME@VERSION"
        )
    name, version = NameVersion(version_needed=True).convert(target, None, None)
    return tell(client.order("untrust", name=name, version=version, undo=undo), as_json=as_json)


@click.group()
def trust() -> None:
    """Repair what this host trusts."""


@trust.command(epilog=examples("gossipd trust override qwen"))
@click.argument("name", metavar="NAME", type=KnownName())
@daemon_options
def override(*, name: str, client: StatusClient, as_json: bool) -> int:
    """Let the next manifest of NAME have any version on this host, also a lower one than it trusts."""
    return tell(client.order("override", name=name), as_json=as_json)
