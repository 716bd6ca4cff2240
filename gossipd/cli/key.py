"""``gossipd key``: the three rounds of a rotation of the cluster key.

What lives here: the commands. What does not: the change of a key ring (``identity.cluster_key``). A round edits one
file. The operator copies it to every host and reloads each daemon before the next round, because a host without the
sending key cannot read the others' messages. The output shows the sending key's tag; a second ``use`` goes back.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import click

from gossipd.cli.layout import show_lines
from gossipd.cli.options import echo_json, examples
from gossipd.identity.cluster_key import CLUSTER_KEY_BYTES, add_key, keep_first, send_with_newest
from gossipd.identity.key_files import read_key_ring, replace_key_ring
from membership.seal import KeyRing, key_tag

_EVERYWHERE = "copy the file to every host and reload each daemon (systemctl reload gossipd)"

_FILE = click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
_JSON = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")


@click.group()
def key() -> None:
    """Rotate the cluster key: add, use, drop; each round on all hosts before the next."""


@key.command(epilog=examples("gossipd key add /srv/gossipd/cluster.key"))
@_FILE
@_JSON
def add(file: Path, as_json: bool) -> int:
    """First round: append a new random key to FILE. Hosts accept it; the old key still sends."""
    then = f"{_EVERYWHERE}; then: gossipd key use {file}"
    return _turn(file, lambda ring: add_key(ring, os.urandom(CLUSTER_KEY_BYTES)), "added a key", then, as_json=as_json)


@key.command(epilog=examples("gossipd key use /srv/gossipd/cluster.key"))
@_FILE
@_JSON
def use(file: Path, as_json: bool) -> int:
    """Second round: the newest key in FILE sends; the others are still accepted."""
    then = f"{_EVERYWHERE}; then: gossipd key drop {file}"
    return _turn(file, send_with_newest, "the newest key sends", then, as_json=as_json)


@key.command(epilog=examples("gossipd key drop /srv/gossipd/cluster.key"))
@_FILE
@_JSON
def drop(file: Path, as_json: bool) -> int:
    """Third round: only the key that sends stays in FILE."""
    return _turn(file, keep_first, "kept only the key that sends", _EVERYWHERE, as_json=as_json)


def _turn(file: Path, change: Callable[[KeyRing], KeyRing], done: str, then: str, *, as_json: bool) -> int:
    before = read_key_ring(file)
    after = change(before)
    if after != before:
        replace_key_ring(file, after)
    sends = key_tag(after.cluster_id, after.keys[0]).hex()
    words = done if after != before else "nothing to change: the file has one key"
    if as_json:
        told = {"changed": after != before, "keys": len(after.keys), "sends": sends, "next": then}
        echo_json({"schema_version": 1, **told})
    else:
        show_lines([f"{file}: {words} ({len(after.keys)} in all; key {sends} sends). Next: {then}"])
    return 0
