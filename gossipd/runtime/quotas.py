"""How much each writer may ask of this host: a token bucket per writer. Pure.

What lives here: the buckets. What does not: which amount costs what, and the answer to a writer that is over its
bound.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

WRITERS_MAX = 4096  # more than members and clients there are; the one that has asked least lately is forgotten

Writer = TypeVar("Writer", bound=Hashable)


class Quotas(Generic[Writer]):
    """Not thread-safe. ``refused`` counts what was over a bound.

    Args:
        burst: the amount that a writer may ask for at once.
        per_s: the amount that comes back each second.
    """

    def __init__(self, *, burst: float, per_s: float) -> None:
        self._burst = burst
        self._per_s = per_s
        self._left: OrderedDict[Writer, tuple[float, float]] = OrderedDict()
        self.refused = 0

    def has(self, writer: Writer, now: float, amount: float = 1.0) -> bool:
        """Whether ``writer`` could have ``amount`` at ``now``; nothing is spent."""
        left, at = self._left.get(writer, (self._burst, now))
        return amount <= min(self._burst, left + (now - at) * self._per_s)

    def take(self, writer: Writer, now: float, amount: float = 1.0) -> bool:
        """Whether ``writer`` may have ``amount`` at ``now``, in monotonic seconds; then it is spent."""
        left, at = self._left.pop(writer, (self._burst, now))
        left = min(self._burst, left + (now - at) * self._per_s)
        is_granted = amount <= left
        self._left[writer] = (left - amount if is_granted else left, now)
        self._forget(now)
        self.refused += not is_granted
        return is_granted

    def _forget(self, now: float) -> None:
        """Of those that have asked least lately, up to two whose amount has come back whole; more where there are too
        many."""
        for _ in range(min(2, len(self._left))):
            left, at = next(iter(self._left.values()))
            if left + (now - at) * self._per_s < self._burst:
                break
            self._left.popitem(last=False)
        while len(self._left) > WRITERS_MAX:
            self._left.popitem(last=False)
