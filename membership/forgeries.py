"""How many words of one sender may turn out badly signed: a check of a signature costs far more than a forgery.

What lives here: a budget for each sender. What does not: the checks (``verified_cache``, the host's rules), and what is
dropped (``item_dispatcher``, ``swim``).

Nobody passes on what it has not checked, so an honest relay never pays. A header is only a claim, so a sender is a
member only when it speaks from its own address; all others count by the address that they speak from. Otherwise one
holder of the cluster's key could spend the budget of another.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable

_SENDERS_MAX = 4096


class ForgeryBudgets:
    """One budget per sender that was ever charged; bounded, the sender charged longest ago goes first."""

    def __init__(self, burst: float, per_s: float) -> None:
        self._burst = burst
        self._per_s = per_s
        self._left: OrderedDict[Hashable, tuple[float, float]] = OrderedDict()

    def is_spent(self, sender: Hashable, now: float) -> bool:
        """Whether nothing more of this sender is checked at the moment."""
        return sender in self._left and self._now(sender, now) < 1.0

    def charge(self, sender: Hashable, now: float) -> None:
        """A word of this sender was badly signed."""
        self._left[sender] = (self._now(sender, now) - 1.0, now)
        self._left.move_to_end(sender)
        if len(self._left) > _SENDERS_MAX:
            self._left.popitem(last=False)

    def _now(self, sender: Hashable, now: float) -> float:
        left, at = self._left.get(sender, (self._burst, now))
        return min(self._burst, left + (now - at) * self._per_s)

    def __len__(self) -> int:
        return len(self._left)
