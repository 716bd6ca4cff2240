"""When each host hears that another is dead, where its membership is not run (``membership``): drawn as measured.

What lives here: the measured quantiles and the draw. What does not: what a verdict does.

Measured were, for every crash, the median over the observers of the time to their verdict, and every observer's
distance from that median: with ten dead it is under a second, and all of them wait for the same suspicion, so that
to draw each verdict by itself would be wrong. More dead at once take longer, since each accusation is a rumour in a
budget of bytes. Between the measured numbers of dead it is interpolated by the logarithm; below and above, the nearest
measured is taken. A suspicion lasts 0.8 s longer for each ten times as many members (``suspicion_per_decade_s``), and
the benchmark's 10,000 take as much longer than its 1,000; that is added.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import log10
from random import Random

from membership.settings import SwimSettings

# python -m tests.bench.membership --members 2000 --scenario NAME --json: died, the quantiles at _SHARES of
# crash_median_s and of crash_spread_s. quiet (its last row), mass_death, fifth_death; seed 1.
_SHARES = (0.0, 0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99, 1.0)
_MEMBERS = 2000
_MEASURED: tuple[tuple[int, tuple[float, ...], tuple[float, ...]], ...] = (
    (
        10,
        (5.43, 5.43, 5.55, 5.63, 6.03, 6.41, 7.67, 7.67, 7.67),
        (-1.4, -0.55, -0.25, -0.1, 0.0, 0.11, 0.27, 0.7, 1.47),
    ),
    (
        80,
        (5.26, 5.26, 6.43, 6.82, 7.56, 8.18, 8.57, 9.27, 9.27),
        (-3.69, -1.78, -0.92, -0.48, 0.0, 0.56, 1.2, 2.22, 4.96),
    ),
)


class Verdicts:
    """Draws for a cluster of so many hosts."""

    def __init__(self, hosts: int, rng: Random) -> None:
        self._hosts = hosts
        self._rng = rng
        self._longer_s = SwimSettings().suspicion_per_decade_s * log10(hosts / _MEMBERS)

    def draw(self, dead: int) -> Iterator[Iterator[float]]:
        """For each of so many that die at once: the time to each host's verdict, without end."""
        medians, spread = _interpolated(dead)
        for _ in range(dead):
            yield self._waits(max(0.0, self._longer_s + self._at(medians)), spread)

    def _waits(self, median_s: float, spread: Sequence[float]) -> Iterator[float]:
        while True:
            yield max(0.0, median_s + self._at(spread))

    def _at(self, quantiles: Sequence[float]) -> float:
        share = self._rng.random()
        above = next(place for place, known in enumerate(_SHARES) if known > share)
        part = (share - _SHARES[above - 1]) / (_SHARES[above] - _SHARES[above - 1])
        return quantiles[above - 1] + part * (quantiles[above] - quantiles[above - 1])


def _interpolated(dead: int) -> tuple[Sequence[float], Sequence[float]]:
    """The quantiles for that many dead at once."""
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
