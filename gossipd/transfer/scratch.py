"""Memory that a server encrypts from: made for an upload, kept for the next ones, let go when no more come.

What lives here: the pieces that are free. What does not: filling and sending them (``channel``).

Pieces are mappings of their own, so that the system has the memory back at once: freed blocks of the heap would stay.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from contextlib import contextmanager

from gossipd.transfer.channel import Channel


class ScratchMemory:
    """Any number of pieces of ``piece_bytes``, one for each upload at a time. Thread-safe; a ``WatchdogListener``."""

    def __init__(self, piece_bytes: int) -> None:
        self._piece_bytes = piece_bytes
        self._free: list[mmap.mmap] = []
        self._is_used = False

    @property
    def kept_bytes(self) -> int:
        """Of the free pieces."""
        return len(self._free) * self._piece_bytes

    @contextmanager
    def piece(self) -> Iterator[memoryview]:
        """One piece, for the caller alone."""
        self._is_used = True
        try:
            memory = self._free.pop()
        except IndexError:
            memory = mmap.mmap(-1, self._piece_bytes)
        try:
            yield memoryview(memory)
        finally:
            self._free.append(memory)

    def transfer_fell_silent(self, channel: Channel) -> None:
        """The client's to notice."""

    def connections_looked_at(self, now: float) -> None:
        """Let go of the free pieces when no upload has begun since the last look."""
        if not self._is_used:
            self._free.clear()
        self._is_used = False
