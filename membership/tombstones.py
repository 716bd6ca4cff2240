"""Members taken off the roster, so that no late rumour brings them back; bounded in time and number.

A tombstone names a life (boot number): a newer life of the same key passes, and so does the member itself when it asks
to join. When there are too many, the oldest goes. One that followed a FORGET holds this node's own word of it; others
are this node's own affair (an address made free, a member that was gone too long).

The host keeps them over a restart: when all hosts restart at once, nobody else would know which lives are over, and an
old signed record would bring one of them back. Their time begins again then, so that no wall clock is asked.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import NamedTuple

from membership.member import Handle


class Tombstone(NamedTuple):
    """A life that is over, for the next life of this node. ``is_told``: a FORGET said so."""

    handle: Handle
    boot: int
    is_told: bool


class _Stone(NamedTuple):
    boot: int
    since_s: float
    word: bytes = b""


class Tombstones:
    """One per brain."""

    def __init__(self, count_max: int, keep_s: float) -> None:
        self._count_max = count_max
        self._keep_s = keep_s
        self._stones: OrderedDict[Handle, _Stone] = OrderedDict()

    def add(self, handle: Handle, boot: int, now: float) -> None:
        """A life is off the roster here."""
        self._stones[handle] = _Stone(boot, now)
        self._stones.move_to_end(handle)
        if len(self._stones) > self._count_max:
            self._stones.popitem(last=False)

    def inscribe(self, handle: Handle, word: bytes) -> None:
        """A FORGET took it off; ``word`` says so to others."""
        self._stones[handle] = self._stones[handle]._replace(word=word)

    def word(self, handle: Handle) -> bytes:
        """What says to others that it was forgotten; empty when nobody said so."""
        stone = self._stones.get(handle)
        return b"" if stone is None else stone.word

    def blocks(self, handle: Handle, boot: int, now: float) -> bool:
        """Whether a rumour about this life must be ignored."""
        stone = self._stones.get(handle)
        if stone is None:
            return False
        if now - stone.since_s > self._keep_s:
            del self._stones[handle]
            return False
        return boot <= stone.boot

    def lift(self, handle: Handle) -> None:
        """The member asked to join again."""
        self._stones.pop(handle, None)

    def kept(self) -> list[Tombstone]:
        """All of them, the oldest first."""
        return [Tombstone(handle, stone.boot, bool(stone.word)) for handle, stone in self._stones.items()]

    def __len__(self) -> int:
        return len(self._stones)
