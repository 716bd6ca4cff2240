"""The entry of the deployment brain: each event goes to the part that it concerns; commands are drained.

What lives here: ``DeploymentBrain``, which passes each event to the part that it concerns. What does not: any rule.

After each ``handle`` and ``tick`` the caller carries out the commands that ``drain`` gives, in order, and ends each
piece of work with its one event (``commands``). It calls ``tick`` when ``next_deadline`` has come. Times are seconds:
``now`` on any clock that never goes back, ``wall_s`` since 1970.
"""

from __future__ import annotations

from random import Random

from gossipd.deployment import events
from gossipd.deployment.commands import DeploymentCommand
from gossipd.deployment.context import BrainContext
from gossipd.deployment.deployment_table import DeploymentTable
from gossipd.deployment.dissemination import Dissemination
from gossipd.deployment.followed_budgets import FollowedBudgets
from gossipd.deployment.orders import Orders
from gossipd.deployment.restored_versions import RestoredVersions
from gossipd.deployment.supersession import Supersession
from gossipd.deployment.told_deployers import ToldDeployers


class DeploymentBrain:
    """One per daemon. ``deployment_table`` is the table of deployments, to be read."""

    def __init__(self, context: BrainContext, rng: Random) -> None:
        self._context = context
        self.lifecycle = DeploymentTable(context, rng)
        self._dissemination = Dissemination(context, self.lifecycle)
        self._supersession = Supersession(context, self.lifecycle)
        self._orders = Orders(context, self.lifecycle, self._dissemination)
        self._budgets = FollowedBudgets(context, self.lifecycle)
        self._restored = RestoredVersions(context)
        self._deployers = ToldDeployers(
            context, self.lifecycle, self._restored, self._dissemination, self._budgets
        )  # fmt: skip

    def handle(self, event: events.DeploymentEvent, now: float, wall_s: float) -> None:
        """Take in what happened."""
        match event:
            case events.StatementHeard():
                self._dissemination.heard(event, now, wall_s)
            case events.RosterChanged():
                self._dissemination.roster_changed(now, wall_s)
            case events.TrustReloaded() | events.ClockJudged():
                self.lifecycle.judge_again(now, wall_s)
                self._budgets.judge_again()
                self._restored.begin()
            case events.WantsChanged():
                self.lifecycle.wants_changed(event, wall_s)
            case events.DaemonStarted():
                self._restored.begin()
                self._dissemination.begin(now, wall_s)
            case events.VersionEvicted():
                self.lifecycle.evicted(event.deployment)
                label = self.lifecycle.label(event.name, event.version)
                self._context.audit(
                    "evicted", label=label, name=event.name, version=event.version, reason=event.cause
                )  # fmt: skip
            case events.CopyWanted():
                self.lifecycle.take_again(event.deployment, wall_s)
            case _ if isinstance(event, events.WorkEnded):
                self._context.work_ended(event, now, wall_s)
            case _ if isinstance(event, events.Order):
                self._orders.handle(event, wall_s)
            case events.ProgressHeard():
                self._progress_heard(event)
            case _:
                self.lifecycle.handle(event)
        self.lifecycle.make_space()
        self.lifecycle.currents.settle()
        self._dissemination.look_into_unproven(wall_s)
        self._deployers.settle(wall_s)
        self._budgets.settle()
        self._supersession.note(now)

    def _progress_heard(self, event: events.ProgressHeard) -> None:
        if event.tells_deployer:
            self._deployers.heard(event.node, event.key)
        if event.tells_budget:
            self._budgets.heard(event.key)
        if event.has_manifest:
            self._dissemination.vouched(event.key, (event.node,))
        self.lifecycle.handle(event)

    def tick(self, now: float, wall_s: float) -> None:
        """Do what is due."""
        self.lifecycle.tick(now)
        self._dissemination.tick(now, wall_s)
        self._dissemination.look_into_unproven(wall_s)
        self._supersession.note(now)
        self._supersession.tick(now)

    def next_deadline(self) -> float:
        """When ``tick`` is wanted next."""
        parts = (self.lifecycle, self._dissemination, self._supersession)
        return min(part.next_deadline() for part in parts)

    def drain(self) -> list[DeploymentCommand]:
        """What is to be done, in order; each is given once."""
        commands, self._context.commands = self._context.commands, []
        return commands
