"""Members taken off the roster, so that no late rumour brings them back; bounded in time and number.

A tombstone names a life (boot number): a newer life of the same key passes, and so does the member itself when it asks
to join. When there are too many, the oldest goes.
"""

from __future__ import annotations

from collections import OrderedDict

from membership.member import Handle


class Tombstones:
    """Handle to (boot, when it was set)."""

    def __init__(self, count_max: int, keep_s: float) -> None:
        self._count_max = count_max
        self._keep_s = keep_s
        self._stones: OrderedDict[Handle, tuple[int, float]] = OrderedDict()

    def add(self, handle: Handle, boot: int, now: float) -> None:
        """This life is off the roster here."""
        self._stones[handle] = (boot, now)
        self._stones.move_to_end(handle)
        if len(self._stones) > self._count_max:
            self._stones.popitem(last=False)

    def blocks(self, handle: Handle, boot: int, now: float) -> bool:
        """Whether a rumour about this life must be ignored."""
        stone = self._stones.get(handle)
        if stone is None:
            return False
        if now - stone[1] > self._keep_s:
            del self._stones[handle]
            return False
        return boot <= stone[0]

    def lift(self, handle: Handle) -> None:
        """The member asked to join again."""
        self._stones.pop(handle, None)

    def __len__(self) -> int:
        return len(self._stones)
