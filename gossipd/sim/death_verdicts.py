"""When each host hears that another is dead, where its membership is not run (``membership``): drawn as measured.

What lives here: the measured quantiles and the draw. What does not: what a verdict does.

Measured are, for every crash, the median over the observers of the time to their verdict, and every observer's distance
from that median. Rejected: drawing each verdict by itself, because all observers wait for the same suspicion. More dead
at once take longer, since each accusation is a rumour in a budget of bytes. Between the measured numbers of dead the
logarithm interpolates; below and above, the nearest measured one is taken, so thousands of deaths at once are too
quick. A suspicion lasts ``suspicion_per_decade_s`` longer for each ten times as many members; that is added.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import log10
from random import Random

from membership.settings import SwimSettings

# python -m tests.bench.membership --members 1000 --scenario NAME --json: number of dead, and at _SHARES crash_median_s
# and crash_spread_s of the row. NAME is quiet (its last row), mass_death, fifth_death; seed 1.
_MEMBERS = 1000
_SHARES = (0.0, 0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99, 1.0)
_MEASURED: tuple[tuple[int, tuple[float, ...], tuple[float, ...]], ...] = (
    (10, (4.991, 4.991, 5.097, 5.392, 5.964, 6.473, 6.555, 6.555, 6.555),
     (-1.427, -0.657, -0.267, -0.078, 0.0, 0.095, 0.256, 0.701, 1.391)),
    (40, (5.0, 5.0, 5.313, 5.994, 6.753, 7.469, 7.981, 8.738, 8.738),
     (-2.666, -1.21, -0.607, -0.301, 0.0, 0.337, 0.774, 1.509, 2.781)),
    (200, (4.988, 5.57, 7.888, 9.13, 10.46, 11.682, 12.385, 13.304, 14.091),
     (-7.946, -4.441, -2.524, -1.366, 0.0, 1.559, 3.186, 6.811, 21.409)),
)  # fmt: skip


class Verdicts:
    """Draws for a cluster of ``hosts`` hosts."""

    def __init__(self, hosts: int, rng: Random) -> None:
        self._rng = rng
        settings = SwimSettings()
        self._longer_s = settings.suspicion_per_decade_s * log10(hosts / _MEMBERS)
        self._least_s = settings.suspicion_s(hosts)  # no host judges sooner

    def draw(self, dead: int) -> Iterator[Iterator[float]]:
        """The times from the death of ``dead`` hosts at once to each host's verdict, without end."""
        medians, spread = _interpolated(dead)
        for _ in range(dead):
            yield self._waits(self._longer_s + self._at(medians), spread)

    def _waits(self, median_s: float, spread: Sequence[float]) -> Iterator[float]:
        while True:
            yield max(self._least_s, median_s + self._at(spread))

    def _at(self, quantiles: Sequence[float]) -> float:
        share = self._rng.random()
        above = next(place for place, known in enumerate(_SHARES) if known > share)
        part = (share - _SHARES[above - 1]) / (_SHARES[above] - _SHARES[above - 1])
        return quantiles[above - 1] + part * (quantiles[above] - quantiles[above - 1])


def _interpolated(dead: int) -> tuple[Sequence[float], Sequence[float]]:
    """The quantiles for that number of dead at once."""
    below = _MEASURED[0]
    for above in _MEASURED:
        if dead <= above[0]:
            part = log10(dead / below[0]) / log10(above[0] / below[0]) if dead > below[0] else 1.0
            mixed = [
                tuple(low + part * (high - low) for low, high in zip(lows, highs, strict=True))
                for lows, highs in zip(below[1:], above[1:], strict=True)
            ]
            return mixed[0], mixed[1]
        below = above
    return below[1], below[2]
