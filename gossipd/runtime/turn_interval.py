"""How long the beat rests between two turns: as short as is of use, and longer where the CPU is short.

What lives here: that decision. What does not: resting, and taking turns (``turn_loop``), and how long a chunk takes.

A turn costs about as much to begin as what is done in it: half a millisecond of CPU with cold caches, at sixty turns a
second. A host with CPU to spare does not notice. One without wakes us late, by what its run queue is long, and turns
that come rarer and do more each are what it needs: then a plan is little staler than it is anyway. Sixteen daemons on
two cores took 1.14 and 1.26 downloads with 45 and 52 CPU seconds; with a beat of 10 ms 1.23 to 1.47 in seven runs of
two days, the last two with 56 and 59 (lab, 256 MiB in chunks of 256 KiB at 100 Mbit/s).

Nor is it of use to plan much more often than a chunk comes, since the next is asked for before the last has ended
(``swarm.pipelining``): where a chunk takes 44 ms sixteen hosts are 20 chunk times behind the bound with a plan every 5
ms, 21 with one every 40 and 23 with one every 50; before that was so 28, and 45 with one every 50 (simulated lab).

Rejected: a longer beat for all (an idle host would plan late for nothing), and one as long as turns take (their time on
the wall grows with the run queue too, but also with what there is to do, when rests should be short).
"""

from __future__ import annotations

# Half of the chunk time of the smallest chunks at 100 Mbit/s (21 ms): it never decides how stale a plan is.
TURN_S = 0.01
# Seven fetches of 16 MiB on a link of 10 Gbit/s take twice that: one that has ended has others beside it. What it costs
# a pair of daemons on two cores is not settled: with 0.08 1.20 and 1.19 GB/s in turn with 1.23 and 1.26 without any of
# it; with 0.04 1.26 and 1.22 in turn with 1.11; with 0.05 1.19, and nothing in turn.
REST_S_MAX = 0.05
# Single runs in the lab, too far apart to tell these from each other: 4 and 0.05 s 1.28, 1.24; 10 and 0.04 s 1.40; 10
# and 0.05 s 1.14, 1.26; 10 and 0.08 s 1.20, 1.25; 20 and 0.15 s 1.25.
_LATES = 10.0
_CHUNK_SHARE = 0.75  # of a chunk time: what may be between two plans
_SMOOTH = 0.125  # about the last eight rests; one pause of the whole host is forgotten within two seconds


class TurnInterval:
    """Follows how late the loop is woken from its rests, and what a chunk takes."""

    def __init__(self) -> None:
        self._late_s = 0.0
        self.chunk_time_s = 0.0
        """Of the smallest chunks that come now; 0 while none do, or it is not known."""

    def woken(self, late_s: float) -> None:
        """A rest ended so late."""
        self._late_s += (min(late_s, REST_S_MAX) - self._late_s) * _SMOOTH

    @property
    def rest_s(self) -> float:
        """How long the next rest should be, from ``TURN_S`` to ``REST_S_MAX``."""
        return min(REST_S_MAX, max(TURN_S, _LATES * self._late_s, _CHUNK_SHARE * self.chunk_time_s))
