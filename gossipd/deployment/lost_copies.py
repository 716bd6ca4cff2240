"""Which versions a host takes again that it has evicted, because its rack has lost copies of them.

What lives here: the decision, and since when copies are missing. What does not: what is told (``daemon.rack_copies``),
room on the disk (``daemon.copies_watch``), and taking it (``deployment_table``).

A copy that is missing for a while is missing, not a host that restarts. Then those hosts of the rack take the version
that come first by the hash of ``keepers`` among the living ones that have evicted it: as many as copies are missing,
and all agree without a message. If they do not, for want of room for example, the next ones do after as long again. A
copy that is on its way counts; where views differ for a moment, a copy too many is made, which may be evicted again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gossipd.core.ids import DeploymentId
from gossipd.deployment.eviction_plan import keepers
from membership.member import NodeId


@dataclass(frozen=True, slots=True)
class RackView:
    """One version in a rack, as its living hosts have told. ``copies``: of hosts that have all of it, or are about to
    have. ``evicted``: by which hosts, this one among them."""

    copies: int
    evicted: frozenset[NodeId]


class LostCopies:
    """One per daemon. Times are seconds on a clock that never goes back."""

    def __init__(self, own: NodeId) -> None:
        self._own = own
        self._missing_since: dict[DeploymentId, float] = {}  # of the views that were given last

    def due(
        self, views: Mapping[DeploymentId, RackView], *, replicas: int, after_s: float, now: float
    ) -> list[DeploymentId]:  # fmt: skip
        """Which this host should take now; those whose copies are missing for longest come first.

        Args:
            views: of all that this host has evicted and may have again.
            replicas: copies that a rack should have.
            after_s: how long one must be missing.
        """
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
