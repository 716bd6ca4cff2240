"""Which versions a host takes again that it has evicted, because its rack has lost copies of them.

What lives here: the decision, and since when copies are missing. What does not: what is told (``daemon.rack_copies``),
looking at the disk (``daemon.copies_watch``), and taking it (``deployment_table``).

A copy that is missing for a while is missing, not a host that restarts. Then those hosts of the rack take the version
that come first by the hash of ``keepers`` among the living ones that have evicted it: as many as copies are missing,
and all agree without a message. If they do not, for want of room for example, the next ones do after as long again. A
copy that is on its way counts; where views differ for a moment, a copy too many is made, which may be evicted again.

One at a time, and none while anything else is under way here. It must fit below the high watermark: nothing is evicted
for it.
"""

from __future__ import annotations

from collections.abc import Container, Mapping

from msgspec import Struct

from gossipd.core.ids import DeploymentId
from gossipd.core.reasons import HostReason
from gossipd.deployment.deployment_record import DeploymentRecord
from gossipd.deployment.deployment_table import DeploymentTable
from gossipd.deployment.eviction_plan import keepers
from gossipd.deployment.progress_record import HostState
from gossipd.deployment.statement import Verb
from membership.member import NodeId


class RackView(Struct, frozen=True):
    """One version in a rack, as its living hosts have told. ``copies``: of hosts that have all of it, or are about to
    have. ``evicted``: by which hosts, this one among them."""

    copies: int
    evicted: frozenset[NodeId]


class CopyRules(Struct, frozen=True, kw_only=True):
    """What the operator has set, section ``store``, and the size of the disk in bytes."""

    replicas: int
    """Copies that a rack should have."""
    after_s: float
    """How long one must be missing."""
    versions_kept: int
    wanted_in_part: Container[str]
    """Models that this host wants in part: it never holds a copy for others."""
    disk_bytes: int
    free_bytes: int
    high_percent: int
    """The high watermark; 0: none."""

    def fits(self, record: DeploymentRecord) -> bool:
        """Whether it may lie on the disk. The size of one whose manifest is not read yet is seen later."""
        wanted = 0 if record.manifest is None else record.manifest.bytes_total
        used_bytes = self.disk_bytes - self.free_bytes + wanted
        is_below = not self.high_percent or used_bytes * 100 < self.high_percent * self.disk_bytes
        return wanted <= self.free_bytes and is_below


class LostCopies:
    """One per daemon. Times are seconds on a clock that never goes back."""

    def __init__(self, own: NodeId) -> None:
        self._own = own
        self._missing_since: dict[DeploymentId, float] = {}  # of the views that were given last

    def next(
        self, table: DeploymentTable, views: Mapping[DeploymentId, RackView], rules: CopyRules, now: float
    ) -> DeploymentRecord | None:  # fmt: skip
        """What this host should take now. ``views``: of all that it has evicted."""
        admitted = {one: view for one, view in views.items() if _may_come_again(table, one, rules)}
        due = self.due(admitted, replicas=rules.replicas, after_s=rules.after_s, now=now)
        if any(map(_is_moving, table)):
            return None
        return next((record for one in due if (record := table.get(one)) is not None and rules.fits(record)), None)

    def due(
        self, views: Mapping[DeploymentId, RackView], *, replicas: int, after_s: float, now: float
    ) -> list[DeploymentId]:  # fmt: skip
        """Which copies this host should make; those that are missing for longest come first. ``views``: of all that
        this host has evicted and may have again; the rest as in ``CopyRules``."""
        missing = {one: replicas - view.copies for one, view in views.items() if view.copies < replicas}
        self._missing_since = {one: self._missing_since.get(one, now) for one in missing}
        found = [
            one
            for one, since_s in self._missing_since.items()
            if now - since_s >= after_s * (1 + self._hosts_before(one, views[one]) // missing[one])
        ]
        return sorted(found, key=lambda one: (self._missing_since[one], one))

    def _hosts_before(self, deployment: DeploymentId, view: RackView) -> int:
        return keepers(deployment, view.evicted | {self._own}, len(view.evicted) + 1).index(self._own)


def _may_come_again(table: DeploymentTable, deployment: DeploymentId, rules: CopyRules) -> bool:
    """Not what ``keep_versions`` would delete at once."""
    record, found = table.get(deployment), table.model_of(deployment)
    if record is None or record.state is not HostState.EVICTED or record.statement.verb is not Verb.DEPLOY:
        return False
    if found is None or found[0] in rules.wanted_in_part:
        return False
    name, version = found
    complete = [one.manifest for one in table.find(name) if one.told_state is HostState.COMPLETE]
    return sum(one is not None and one.version > version for one in complete) < rules.versions_kept


def _is_moving(record: DeploymentRecord) -> bool:
    """What waits for an operator holds up nothing."""
    return record.is_live and not record.is_paused and record.stall is None and record.reason is HostReason.NONE
