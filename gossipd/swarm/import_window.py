"""How many chunks may be under way to this host from other racks at once.

What lives here: that number, and how long such a fetch takes. What does not: which chunks (``demand``), whom to ask
(``scheduler``).

Fetches inside a rack share the two hosts' links; those from other racks share the rack's uplink with all that the rack
mates import, and no host sees how many those are. Four hosts with some seven imports each, on an uplink as slow as one
host's link (12 Mbit/s, 4:1), gave each fetch less than the least that both ends wait for: transfers were cut, begun
again, and asked for twice, as they took far longer than fetches inside the rack. Three racks of four were done after
57 s (the bound: 45 s), the fourth after 100 s, and the uplinks had carried 0.8 models that did not arrive
(``tests.bench.lab --racks 4,4,4,4 --mb 64 --mbit 12 --uplink-mbit 12 --congestion reno``). So the number follows what
the uplink shows, as TCP's window does (Chiu and Jain 1989, "Analysis of the increase and decrease algorithms for
congestion avoidance"): halved when a fetch is cut for being slow, one more for each windowful that arrives. An uplink
that was never slow is never limited.
"""

from __future__ import annotations

_SMOOTH = 0.25  # weight of the newest of about the last four samples, as for peers


class ImportWindow:
    """Fetches from other racks, all of one deployment."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._window = float(most)
        self._halved_s = 0.0
        self.usual_s = 0.0
        """What such a fetch takes, smoothed; 0 before the first has arrived."""

    def room(self, under_way: int) -> int:
        """How many more may begin; one may always be under way."""
        return max(0, int(self._window) - under_way)

    def arrived(self, elapsed_s: float) -> None:
        """A fetch from another rack brought its chunk."""
        self.usual_s += (elapsed_s - self.usual_s) * _SMOOTH if self.usual_s else elapsed_s
        self._window = min(self._most, self._window + 1 / self._window)

    def too_slow(self, began_s: float, under_way: int, now: float) -> None:
        """A fetch from another rack was cut because it was slow.

        Args:
            began_s: fetches that began before the last cut are part of what it was for, and count once.
            under_way: such fetches, this one included.
        """
        if began_s >= self._halved_s:
            self._window = max(1.0, min(self._window, under_way) / 2)
            self._halved_s = now
