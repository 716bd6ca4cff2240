"""Local health: how much a node distrusts its own slowness (Lifeguard, LHA-Probe).

The score grows when our probes fail and the helpers do not confirm it, when others accuse us and when we were stopped;
it shrinks with each answered probe. Interval and time-out are both multiplied by 1 + score, as in the paper.
"""

from __future__ import annotations


class LocalHealth:
    """A score from 0 (well) to ``score_max - 1``."""

    def __init__(self, score_max: int, *, enabled: bool = True) -> None:
        self._top = score_max - 1 if enabled else 0
        self.score = 0

    def worsen(self, by: int = 1) -> None:
        """Evidence that we are slow or cut off."""
        self.score = min(self._top, self.score + by)

    def improve(self) -> None:
        """A probe was answered in time."""
        if self.score:
            self.score -= 1

    @property
    def factor(self) -> int:
        """The factor by which intervals and time-outs are stretched."""
        return 1 + self.score
