"""By how much this host's wall clock differs from those of most others, as their own words show.

What lives here: the estimate. What does not: whose words count (``daemon.gossip_rules``), the alarm
(``daemon.clock_watch``), and what follows for a deployment (``deployment_steps``).

A host signs with each record of progress the time at which it wrote the record, and gossip brings a record within
seconds. So the told time, less a clock of this host that never goes back, says where the other's wall clock stands. A
step of this host's own wall clock shows at once and takes back nothing that was heard. Of all hosts, this one among
them, the middle one counts: while most tell the truth, the middle lies among what these tell, so a few liars can
neither raise the alarm nor silence it. Of two hosts none can say which is wrong. Rejected: to set the difference off in
every judgement, because others could then revive what has expired.
"""

from __future__ import annotations

from collections import OrderedDict

from membership.member import NodeId

WRONG_S = 600.0  # what two hosts' clocks may differ by in a statement's and a manifest's date
FRESH_S = 900.0  # the slowest refresh of a record at rest is 5 minutes, at a thousand hosts
_HOSTS_MAX = 8_192


class ClusterClock:
    """One per daemon."""

    def __init__(self) -> None:
        self._epochs: OrderedDict[NodeId, tuple[float, float]] = OrderedDict()  # by host: its epoch, and when heard
        self.offset_s = 0.0
        """How far this host's clock is ahead of most others; negative: behind."""
        self.hosts = 0
        """Whose words that rests on."""
        self._own = 0.0

    def heard(self, node: NodeId, told_s: float, now: float) -> None:
        """A host has signed that it was ``told_s`` (seconds since 1970) a moment ago."""
        self._epochs[node] = told_s - now, now
        self._epochs.move_to_end(node)
        if len(self._epochs) > _HOSTS_MAX:
            self._epochs.popitem(last=False)

    def look(self, wall_s: float, now: float) -> None:
        """Estimate again; ``now`` is on the clock of ``heard``, which never goes back."""
        for node, (_, heard_s) in list(self._epochs.items()):
            if now - heard_s <= FRESH_S:
                break
            del self._epochs[node]
        self._own = own = wall_s - now
        differences = sorted([0.0, *(own - epoch for epoch, _ in self._epochs.values())])
        middle = len(differences) // 2
        both = differences[middle], differences[(len(differences) - 1) // 2]
        self.offset_s, self.hosts = min(both, key=abs), len(self._epochs)

    def ahead_s(self, node: NodeId) -> float | None:
        """How far a host's clock was ahead of this one's when both were looked at; None while it has told nothing."""
        told = self._epochs.get(node)
        return None if told is None else told[0] - self._own

    @property
    def is_wrong(self) -> bool:
        """Whether it differs by more than dates are allowed to."""
        return abs(self.offset_s) > WRONG_S

    def true_s(self, wall_s: float) -> float:
        """The time as most hosts have it, for our own words: others believe none from the future."""
        return wall_s - self.offset_s if self.is_wrong else wall_s

    def latest_s(self, wall_s: float) -> float:
        """The later of the two, for bounds on what others may say."""
        return max(wall_s, self.true_s(wall_s))
