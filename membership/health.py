"""Local health: how much a node distrusts its own slowness (Lifeguard, LHA-Probe).

The score grows when our probes fail and the helpers do not confirm it, when others accuse us and when we were stopped;
it shrinks with each answered probe. Interval and time-out are both multiplied by 1 + score, as in the paper.

The paper infers slowness from what others say. A node also sees it by itself: its timers run late. Where all hosts lack
CPU most probes are answered all the same, so the score stays near zero, while accusations and contradictions take
seconds to be heard. So the factor is at least 1 + a lateness over one time-out: the largest one of late, which fades,
since a host that was late once may be late again before the next verdict.
"""

from __future__ import annotations

_FADE_S = 5.0  # lateness counts half after that long: a suspicion of some hundred members lasts three to four seconds


class LocalHealth:
    """A score from 0 (well) to ``score_max - 1``; ``timeout_s`` is a probe's."""

    def __init__(self, score_max: int, *, timeout_s: float, enabled: bool = True) -> None:
        self._top = score_max - 1 if enabled else 0
        self._timeout_s = timeout_s
        self._late_s = 0.0
        self._late_at = 0.0
        self.score = 0

    def worsen(self, by: int = 1) -> None:
        """Evidence that we are slow or cut off."""
        self.score = min(self._top, self.score + by)

    def improve(self) -> None:
        """A probe was answered in time."""
        if self.score:
            self.score -= 1

    def note_late(self, late_s: float, now: float) -> None:
        """A timer runs that many seconds after it was due."""
        if late_s >= self._timeout_s and late_s >= self._faded_s(now):
            self._late_s, self._late_at = late_s, now

    def factor(self, now: float) -> int:
        """The factor by which intervals and time-outs are stretched."""
        return 1 + max(self.score, min(self._top, int(self._faded_s(now) / self._timeout_s)))

    def _faded_s(self, now: float) -> float:
        return self._late_s * float(0.5 ** ((now - self._late_at) / _FADE_S)) if self._late_s else 0.0
