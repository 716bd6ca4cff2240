"""How long the beat rests between two turns: as short as is of use, and longer where the CPU is short.

What lives here: that decision. What does not: resting, and taking turns (``beat``).

A turn costs about as much to begin as what is done in it: half a millisecond of CPU with cold caches, at sixty turns a
second. A host with CPU to spare does not notice. One without wakes us late, by what its run queue is long, and turns
that come rarer and do more each are what it needs: then a plan is little staler than it is anyway. Sixteen daemons on
two cores took 1.14 and 1.26 downloads with 45 and 52 CPU seconds where a beat of 10 ms took 1.37 and 1.47 with 56 and
59 (lab, 256 MiB in chunks of 256 KiB at 100 Mbit/s).

Rejected: a longer beat for all (an idle host would plan late for nothing), and one as long as turns take (their time on
the wall grows with the run queue too, but also with what there is to do, when rests should be short).
"""

from __future__ import annotations

# Half of the chunk time of the smallest chunks at 100 Mbit/s (21 ms): it never decides how stale a plan is.
BEAT_S = 0.01
# Seven fetches of 16 MiB on a link of 10 Gbit/s take twice that: one that has ended has others beside it. With 0.08 a
# pair of daemons on two cores was slower by 4 % in two runs of two (1.19 for 1.24 GB/s), with this as fast as before.
REST_S_MAX = 0.05
_LATES = 10.0  # 4 gave 1.24 and 1.28 in the lab; 10 with rests up to 0.08 s 1.20 and 1.25, 20 with 0.15 s 1.25
_SMOOTH = 0.125  # about the last eight rests; one pause of the whole host is forgotten within two seconds


class Tempo:
    """Follows how late the loop is woken from its rests."""

    def __init__(self) -> None:
        self._late_s = 0.0

    def woken(self, late_s: float) -> None:
        """A rest ended so late."""
        self._late_s += (min(late_s, REST_S_MAX) - self._late_s) * _SMOOTH

    @property
    def rest_s(self) -> float:
        """How long the next rest should be, from ``BEAT_S`` to ``REST_S_MAX``."""
        return min(REST_S_MAX, max(BEAT_S, _LATES * self._late_s))
