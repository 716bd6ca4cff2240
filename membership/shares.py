"""How much of what this node does for others each of them may have: a budget per member.

What lives here: the budgets. What does not: what costs what, and the limit for all members together.
"""

from __future__ import annotations

from collections import OrderedDict

from membership.member import Handle

_MEMBERS_MAX = 4096


class Shares:
    """``burst`` at once, and ``per_s`` back each second. Bounded: the member that asked longest ago begins again."""

    def __init__(self, *, burst: float, per_s: float) -> None:
        self._burst, self._per_s = burst, per_s
        self._left: OrderedDict[Handle, tuple[float, float]] = OrderedDict()

    def take(self, handle: Handle, now: float, count: int = 1) -> bool:
        """Whether that member may have so many more; pays for them."""
        left, at = self._left.pop(handle, (self._burst, now))
        left = min(self._burst, left + (now - at) * self._per_s)
        may = left >= count
        self._left[handle] = (left - count if may else left, now)
        if len(self._left) > _MEMBERS_MAX:
            self._left.popitem(last=False)
        return may
