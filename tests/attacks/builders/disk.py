"""What another user, or a failing disk, may have done to a host's files: modes, links, bytes.

Each builder gives a ``Look``: it changes a host's directory, and then reads it with the host's own reader, which must
refuse it. The directory is as ``pure.disk`` makes it.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from gossipd.audit.chain_file import AuditError, verify_audit
from gossipd.daemon.state_dir import StateDirectory
from gossipd.deployment.progress_table import ClusterProgress
from gossipd.identity.key_files import read_key_ring, read_public_key, read_secret_key
from gossipd.store.disk.posix_disk import PosixDisk
from tests.attacks.stage import Stage

_READERS: dict[str, Callable[[Path], object]] = {
    "node.key": read_secret_key, "cluster.key": read_key_ring, "trust/pub.key.pub": read_public_key,
}  # fmt: skip


def key_mode(stage: Stage, file: str, mode: int) -> Callable[[Path], None]:
    """A key that others can read, or change."""

    def look(home: Path) -> None:
        (home / file).chmod(mode)
        _READERS[file](home / file)

    return look


def key_is_a_link(stage: Stage, file: str, to: str) -> Callable[[Path], None]:
    """A link in the place of a key, to what is no regular file."""

    def look(home: Path) -> None:
        (home / file).unlink()
        (home / file).symlink_to(to)
        _READERS[file](home / file)

    return look


def degenerate_key(stage: Stage) -> Callable[[Path], None]:
    """A trusted key under which anything verifies."""

    def look(home: Path) -> None:
        path = home / "trust/pub.key.pub"
        text = path.read_text()
        path.write_text(text.replace(text.split()[3], "01" + "00" * 31))  # after the format's name and "ed25519"
        read_public_key(path)

    return look


def directory_mode(stage: Stage, name: str, mode: int) -> Callable[[Path], None]:
    """A directory of the store that others may write to."""

    def look(home: Path) -> None:
        (home / name).chmod(mode)
        PosixDisk(home / name).shut()

    return look


def link_in_the_tree(stage: Stage, path: str, to: str) -> Callable[[Path], None]:
    """A link within the store, on the way to a file that is written."""

    def look(home: Path) -> None:
        (home / "models" / path).symlink_to(to)
        disk = PosixDisk(home / "models")
        try:
            os.close(disk.open(f"{path}/planted" if to != "../node.key" else path, write=True, create=True))
        finally:
            disk.shut()

    return look


def register(stage: Stage, at: int, cut: int = 0) -> Callable[[Path], None]:
    """A byte of the statements file changed, or some missing."""

    def look(home: Path) -> None:
        path = home / "state" / "register"
        body = bytearray(path.read_bytes())
        body[at] ^= 1
        path.write_bytes(bytes(body[: len(body) - cut]))
        state = StateDirectory(home / "state")
        try:
            state.register()
        finally:
            state.close()

    return look


def progress(stage: Stage, wire: str) -> Callable[[Path], None]:
    """A table of progress of these bytes (hex)."""

    def look(home: Path) -> None:
        ClusterProgress.from_bytes(bytes.fromhex(wire), now=0.0, wall_s=0.0)

    return look


def audit(stage: Stage, what: str) -> Callable[[Path], None]:
    """A line of the audit log changed, taken out, put twice, or the last ones cut off."""

    def look(home: Path) -> None:
        path = home / "audit.log"
        lines = path.read_bytes().splitlines(keepends=True)
        head = verify_audit(path).head
        changed = {
            "changed": [lines[0].replace(b"accepted", b"refused."), *lines[1:]], "removed": [lines[0], *lines[2:]],
            "twice": [lines[0], lines[0], *lines[1:]], "swapped": [lines[1], lines[0], *lines[2:]], "cut": lines[:-1],
        }[what]  # fmt: skip
        path.write_bytes(b"".join(changed))
        report = verify_audit(path, head=head)
        if report.problem is not None:
            raise AuditError(report.problem)

    return look
