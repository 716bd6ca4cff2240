"""How many chunks may be under way to this host from other racks at once.

What lives here: that number, and what such a fetch takes. What does not: which chunk from which holder (``scheduler``).

Fetches inside a rack share the two hosts' links. Fetches from other racks share the rack's uplink with everything that
the rack peers import, and no host sees how much that is. Without a bound each import on a slow uplink falls below the
least rate that both ends wait for: transfers are cut, begun a second time, and hedged. So the window follows what the
uplink shows, as TCP's does (Chiu and Jain 1989): it halves when an import is cut for being slow, and grows by one for
each windowful that arrives. An uplink that was never slow is never limited.
"""

from __future__ import annotations

_SMOOTH = 0.25  # weight of the newest of about the last four samples, as for peers


class ImportWindow:
    """Imports in flight, of one deployment."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._window = float(most)
        self._halved_s = 0.0
        self.usual_s = 0.0
        """What such a fetch takes, smoothed; 0 before the first has arrived."""

    def room(self, under_way: int) -> int:
        """How many more imports may begin; one may always be under way."""
        return max(0, int(self._window) - under_way)

    def arrived(self, elapsed_s: float) -> None:
        """A fetch from another rack brought its chunk."""
        self.usual_s += (elapsed_s - self.usual_s) * _SMOOTH if self.usual_s else elapsed_s
        self._window = min(self._most, self._window + 1 / self._window)

    def too_slow(self, began_s: float, under_way: int, now: float) -> None:
        """An import was cut because it was slow. ``began_s``: when it began. Imports that began before the last cut are
        part of its cause and cut nothing more. ``under_way``: imports in flight, this one included."""
        if began_s >= self._halved_s:
            self._window = max(1.0, min(self._window, under_way) / 2)
            self._halved_s = now
