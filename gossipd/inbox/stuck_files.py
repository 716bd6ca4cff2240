"""What is remembered of files that are accepted and cannot leave the inbox, for the next start.

What lives here: these files as bytes. What does not: where the bytes are kept (``InboxMemory``), and which files they
are of (``inbox``).
"""

from __future__ import annotations

import os
from typing import Protocol

import msgspec

from gossipd.inbox.drop_folder import Print


class InboxMemory(Protocol):
    """Outlasts the daemon."""

    def inbox(self) -> bytes:
        """What ``keep_inbox`` kept last; empty when nothing was."""

    def keep_inbox(self, kept: bytes) -> None:
        """Durable on return. Blocking. Raises GossipdError, OSError."""


class NoMemory:
    """Forgets everything."""

    def inbox(self) -> bytes:
        return b""

    def keep_inbox(self, kept: bytes) -> None:
        del kept


class StuckFile(msgspec.Struct, frozen=True):
    """A file in the inbox whose manifest was accepted."""

    name: str
    print: Print


class _Written(msgspec.Struct, frozen=True, array_like=True):
    name: bytes  # any bytes, which JSON takes as base64
    print: tuple[int, int, int, int]


_decoder = msgspec.json.Decoder(tuple[_Written, ...])


def stuck_to_bytes(files: list[StuckFile]) -> bytes:
    """Empty where there is none."""
    written = [_Written(os.fsencode(one.name), _numbers(one.print)) for one in files]
    return msgspec.json.encode(written) if written else b""


def stuck_from_bytes(kept: bytes) -> list[StuckFile]:
    """None where the bytes are damaged: then the files are judged as new ones."""
    try:
        written = _decoder.decode(kept) if kept else ()
    except (msgspec.DecodeError, ValueError):  # a number that is too long
        return []
    return [StuckFile(os.fsdecode(one.name), Print(*one.print)) for one in written]


def _numbers(of: Print) -> tuple[int, int, int, int]:
    return of.device, of.inode, of.size, of.modified_ns
