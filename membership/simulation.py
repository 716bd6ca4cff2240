"""Virtual time: one heap of actions, and the time of the action that runs.

What lives here: the clock of every simulation of this repository. What does not: hosts, networks and faults, which are
the simulations' own. Deterministic: actions due at one time run in the order in which they were scheduled.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count
from typing import Any


class VirtualClock:
    """``now`` is the time in seconds; it moves only in ``step``, or when the owner sets it between steps."""

    def __init__(self, now: float = 0.0) -> None:
        self.now = now
        self._heap: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._ticket = count()

    def at(self, when: float, action: Callable[..., None], *arguments: Any) -> None:
        """Run ``action`` at that time."""
        heappush(self._heap, (when, next(self._ticket), action, arguments))

    def after(self, delay_s: float, action: Callable[..., None], *arguments: Any) -> None:
        """Run ``action`` in ``delay_s``."""
        heappush(self._heap, (self.now + delay_s, next(self._ticket), action, arguments))

    def step(self, until: float) -> bool:
        """Run the next action if it is due by ``until``; False when none is."""
        if not self._heap or self._heap[0][0] > until:
            return False
        self.now, _, action, arguments = heappop(self._heap)
        action(*arguments)
        return True
