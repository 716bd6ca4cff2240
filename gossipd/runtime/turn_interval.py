"""How long the loop rests between two turns: briefly, but longer where the CPU is short.

What lives here: that decision. What does not: resting and taking turns (``turn_loop``).

Beginning a turn costs as much CPU time as its work. A host with spare CPU does not notice; a host without wakes the
loop late, by the length of its run queue, and then rarer turns that do more are better: a plan is hardly more stale
than it is anyway. So the rest grows with the lateness of wake-ups.

Planning much more often than a chunk arrives is useless too, because the next chunk is requested before the last has
ended (``swarm.pipelining``). So the rest also grows with the time of a chunk.

Rejected: a longer rest for all hosts, because an idle host would plan late for nothing; a rest as long as turns take,
because turns also grow with their work, when rests should be short.
"""

from __future__ import annotations

# Half of the chunk time of the smallest chunks at 100 Mbit/s (21 ms), so it never decides how stale a plan is.
TURN_S = 0.01
# Half the time of seven fetches of 16 MiB at 10 Gbit/s: other fetches continue beside one that has ended.
REST_S_MAX = 0.05
# Measurements did not distinguish values near this one.
_LATES = 10.0
_CHUNK_SHARE = 0.75  # of a chunk time, between two plans
_SMOOTH = 0.125  # about the last eight rests; one pause of the whole host fades within two seconds


class TurnInterval:
    """Follows the lateness of wake-ups and the time of a chunk."""

    def __init__(self) -> None:
        self._late_s = 0.0
        self.chunk_time_s = 0.0
        """Of the smallest chunks that arrive now; 0 while none do, or when unknown."""

    def woken(self, late_s: float) -> None:
        """A rest ended this late."""
        self._late_s += (min(late_s, REST_S_MAX) - self._late_s) * _SMOOTH

    @property
    def rest_s(self) -> float:
        """The length of the next rest, from ``TURN_S`` to ``REST_S_MAX``."""
        return min(REST_S_MAX, max(TURN_S, _LATES * self._late_s, _CHUNK_SHARE * self.chunk_time_s))
