"""The inbox as another user of the machine finds it: things that are no files, links in the way, modes, names.

Each builder gives a ``Plant``: what to do in a host's directory, and how to take it away again.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from gossipd.inbox.inbox import InboxSettings
from tests.attacks.builders.manifest import signed_by
from tests.attacks.stage import Stage

NAME = "attack.gmf"


@dataclass(frozen=True, slots=True)
class Plant:
    """Both are given the host's directory, in which are ``inbox``, ``state``, ``models`` and keys."""

    plant: Callable[[Path], None]
    clear: Callable[[Path], None] = lambda home: None


def link(stage: Stage, to: str) -> Plant:
    """A link in the place of a manifest."""
    return Plant(lambda home: (home / "inbox" / NAME).symlink_to(to))


def thing(stage: Stage, kind: str) -> Plant:
    """What is no regular file."""

    def plant(home: Path) -> None:
        path = home / "inbox" / NAME
        if kind == "fifo":
            os.mkfifo(path)
        elif kind == "directory":
            (path / "inside").mkdir(parents=True)
        else:
            with socket.socket(socket.AF_UNIX) as sock:
                before = Path.cwd()
                os.chdir(path.parent)  # its full name is longer than a socket's may be
                try:
                    sock.bind(NAME)
                finally:
                    os.chdir(before)

    return Plant(plant)


def too_large(stage: Stage) -> Plant:
    """A file of more bytes than a manifest may have, all holes."""

    def plant(home: Path) -> None:
        with (home / "inbox" / NAME).open("wb") as file:
            file.truncate(InboxSettings().bytes_max + 1)

    return Plant(plant)


def unreadable(stage: Stage) -> Plant:
    """A file that nobody may read."""

    def plant(home: Path) -> None:
        path = home / "inbox" / NAME
        path.write_bytes(b"x")
        path.chmod(0)

    return Plant(plant)


def named(stage: Stage, name: str) -> Plant:
    """A stranger's manifest under a name that is more than a name to who reads it."""
    envelope = signed_by(stage, "stranger")

    def plant(home: Path) -> None:
        (home / "inbox" / name).write_bytes(envelope)

    return Plant(plant)


def mode(stage: Stage, mode: int, of: str = "inbox") -> Plant:
    """Others may write to the inbox, to the directory that holds it, or to the folder of the refused."""

    def plant(home: Path) -> None:
        (home / "inbox" / NAME).write_bytes(signed_by(stage, "stranger"))
        (home / of).mkdir(exist_ok=True)
        (home / of).chmod(mode)

    def clear(home: Path) -> None:
        (home / of).chmod(0o700 if of == "." else 0o750)
        (home / "inbox" / NAME).unlink(missing_ok=True)

    return Plant(plant, clear)


def folder_is_a_link(stage: Stage, folder: str, to: str) -> Plant:
    """A link in the place of a folder that the daemon moves files into."""

    def plant(home: Path) -> None:
        (home / "inbox" / folder).symlink_to(to)
        (home / "inbox" / NAME).write_bytes(signed_by(stage, "stranger"))

    def clear(home: Path) -> None:
        (home / "inbox" / folder).unlink()
        (home / "inbox" / NAME).unlink(missing_ok=True)

    return Plant(plant, clear)


def reason_is_a_link(stage: Stage, to: str) -> Plant:
    """A link in the place of the file that says why another was refused."""

    def plant(home: Path) -> None:
        rejected = home / "inbox" / "rejected"
        rejected.mkdir(mode=0o750, exist_ok=True)
        (rejected / f"{NAME}.reason").symlink_to(to)
        (home / "inbox" / NAME).write_bytes(signed_by(stage, "stranger"))

    return Plant(plant)
