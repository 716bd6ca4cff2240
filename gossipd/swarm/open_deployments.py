"""The deployments that are open on this host, and those of them that the planner looks at.

What lives here: which deployments are at rest. What does not: any decision about one (``deployment_swarm``), and the
order of a plan (``planner``).

A host keeps serving what is complete, for months, and a hundred models may be complete where one comes. So a deployment
is at rest while nothing is missing here and nobody listens, some seconds after its last event: no plan and no tick
looks at it, its roles stay as they are, and it is not told who is out of reach. Its next event ends the rest: who has
gone meanwhile holds nothing, and before its roles are looked at nothing is decided for it. Rejected: to look at such
deployments less often, because what a host pays for one that comes must not grow with those that have come.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from gossipd.core.ids import DeploymentId
from gossipd.swarm.deployment_swarm import DeploymentSwarm

_SETTLES_AFTER_S = 5.0  # a host that has saved a step offers more uploads before the first of many asks for it


class OpenDeployments:
    """``busy``: those not at rest, by priority. ``told_who_is_lost``: these, and those at rest of which hosts want
    parts: what is known of their peers says for whom there is a copy."""

    def __init__(self) -> None:
        self._all: dict[DeploymentId, DeploymentSwarm] = {}
        self._at_rest: dict[DeploymentId, int] = {}  # with the number of departures of peers when its rest began
        self._heard_s: dict[DeploymentId, float] = {}
        self.busy: list[DeploymentSwarm] = []
        self.told_who_is_lost: list[DeploymentSwarm] = []

    def __len__(self) -> int:
        return len(self._all)

    def __contains__(self, deployment: DeploymentId) -> bool:
        return deployment in self._all

    def __iter__(self) -> Iterator[DeploymentSwarm]:
        return iter(self._all.values())

    def get(self, deployment: DeploymentId) -> DeploymentSwarm | None:
        """For a look; the deployment stays at rest if it is."""
        return self._all.get(deployment)

    def woken(self, deployment: DeploymentId, now: float) -> DeploymentSwarm | None:
        """For an event, which ends its rest; None if it is not open."""
        if (swarm := self._all.get(deployment)) is None:
            return None
        self._heard_s[deployment] = now
        if (since := self._at_rest.pop(deployment, None)) is not None:
            self._order()
            _end_rest(swarm, since, now)
        return swarm

    def is_at_rest(self, deployment: DeploymentId) -> bool:
        """Whether no plan looks at it."""
        return deployment in self._at_rest

    def open(self, swarm: DeploymentSwarm, now: float) -> None:
        """One more. A host that starts with a hundred complete ones computes no roles of them."""
        is_to_come = swarm.replica.missing_count or swarm.origins.is_own
        self._all[swarm.deployment] = swarm
        self._heard_s[swarm.deployment] = now if is_to_come else -math.inf
        self._order()

    def close(self, swarm: DeploymentSwarm) -> None:
        """One less."""
        del self._all[swarm.deployment], self._heard_s[swarm.deployment]
        self._at_rest.pop(swarm.deployment, None)
        self._order()

    def settle(self, now: float) -> None:
        """Let those rest of which nothing is under way and to which nobody listens."""
        quiet = [swarm for swarm in self.busy if now >= self._heard_s[swarm.deployment] + _SETTLES_AFTER_S]
        settled = {swarm.deployment: swarm.peers.departures for swarm in quiet if _is_settled(swarm)}
        if settled:
            self._at_rest.update(settled)
            self._order()

    def _order(self) -> None:
        at_rest, every = self._at_rest, self._all.values()
        busy = [swarm for swarm in every if swarm.deployment not in at_rest]
        self.busy = sorted(busy, key=lambda swarm: -swarm.priority)
        self.told_who_is_lost = [one for one in every if one.deployment not in at_rest or not one.interests.is_uniform]


def _is_settled(swarm: DeploymentSwarm) -> bool:
    if swarm.replica.missing_count or swarm.replica.flights or swarm.commands or swarm.stall.reported:
        return False
    return swarm.subscriptions.are_ended and swarm.announcements.are_told


def _end_rest(swarm: DeploymentSwarm, since: int, now: float) -> None:
    """Forget what was true when it began, with ``since`` departures of peers. One that came back may be empty."""
    known, peers = swarm.availability.counts.keys() | swarm.reader.claimants, swarm.peers
    stayed = {node for node in peers.usable(known, now) if peers.records[node].departure <= since}
    for node in sorted(known - stayed):
        swarm.forget(node, now)
    swarm.stand_in.begin_again(now)
    swarm.upkeep_s = -math.inf
