"""When datagrams that no member can have sealed are a flood: a decision by counts. Pure.

What lives here: the rule. What does not: counting (``swim``), and what is done about a flood (``socket_filter``).

A flood is dropped by the kernel for some seconds at a time only: in between, a host of another cluster or with another
key is counted as before, which an operator needs to see. Rejected: a filter that is always on, which would hide a wrong
cluster key.
"""

from __future__ import annotations

UNSEALED_PER_S = 400
"""More datagrams without our seal within a second are a flood. A cluster of 1,000 hosts with another key sends less."""
FILTER_S = 10.0
"""How long the kernel drops before the socket hears everything again."""


class UnsealedRate:
    """Judges the count of one socket. Times are monotonic seconds."""

    def __init__(self) -> None:
        self._heard = 0  # at the last look
        self._counted = 0  # when the present second began
        self._since_s = self._until_s = float("-inf")

    def is_flood(self, total: int, now: float) -> bool:
        """``total`` unsealed datagrams were heard until now. True for ``FILTER_S`` from a second with too many."""
        before, self._heard = self._heard, total
        if now < self._until_s:
            return True
        if now - self._since_s > 1.0:
            self._since_s, self._counted = now, before
        if total - self._counted <= UNSEALED_PER_S:
            return False
        self._until_s, self._since_s = now + FILTER_S, float("-inf")  # what comes afterwards is counted by itself
        return True
