"""Which part of the daemon hears each of membership's events: members, statements, progress, wanted probes.

What lives here: passing on. What does not: the table of members (``member_directory``), and verdicts (``membership``).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import trio

from gossipd.control.control_plane import ControlPlane
from gossipd.core.errors import GossipdError
from gossipd.core.events import Event, PeerLost
from gossipd.daemon.alarms import Alarms
from gossipd.daemon.audit_gossip import AuditGossip
from gossipd.daemon.deployment_driver import DeploymentDriver
from gossipd.daemon.membership_host import MembershipHost
from gossipd.daemon.planner_driver import PlannerDriver
from gossipd.daemon.progress_publisher import ProgressPublisher
from gossipd.deployment.events import RosterChanged, StatementHeard
from gossipd.deployment.progress_record import ProgressFormatError
from gossipd.runtime.logs import get_logger
from gossipd.wire import control
from membership.events import PayloadHeard, PayloadKind
from membership.member import NodeId

PING_S = 0.8  # the fall-back probe's answer counts only while the suspicion is young
PINGS_MAX = 16  # fall-back probes at once; a suspicion storm must not become a storm of dials
# Statements whose signer was not known are judged again when members have come, up to 128 signatures. A member may
# begin a new life with every datagram.
ROSTER_PAUSE_S = 0.25
log = get_logger("members")


@dataclass(slots=True, eq=False)
class MemberEvents:
    """The body of ``MemberListener``, which says what each method does. On the trio loop; probes run in ``nursery``."""

    driver: PlannerDriver
    plane: ControlPlane
    deployments: DeploymentDriver
    progress_publisher: ProgressPublisher
    membership_host: MembershipHost
    alarms: Alarms
    audit_gossip: AuditGossip
    nursery: trio.Nursery
    _pings: int = field(default=0, init=False)
    _roster_told_s: float = field(default=-math.inf, init=False)
    _is_roster_due: bool = field(default=False, init=False)

    def post(self, event: Event) -> None:
        """The sessions hear of a lost peer after the planner."""
        self.driver.post(event)
        if isinstance(event, PeerLost):
            self.plane.hear(event)

    def member_changed(self, node: NodeId) -> None:
        self.plane.member_changed(node)

    def ask(self, node: NodeId) -> None:
        self.membership_host.ask(node)

    def roster_changed(self) -> None:
        """At once, unless that was a moment ago."""
        if self._is_roster_due:
            return
        if trio.current_time() >= self._roster_told_s + ROSTER_PAUSE_S:
            self._tell_roster()
            return
        self._is_roster_due = True
        self.nursery.start_soon(self._tell_roster_later)

    async def _tell_roster_later(self) -> None:
        await trio.sleep_until(self._roster_told_s + ROSTER_PAUSE_S)
        self._is_roster_due = False
        self._tell_roster()

    def _tell_roster(self) -> None:
        self._roster_told_s = trio.current_time()
        self.deployments.post(RosterChanged())
        self.membership_host.judge_again()

    def alarm(self, code: str, sentence: str) -> None:
        self.alarms.ring(code, sentence)

    def cured(self, code: str) -> None:
        self.alarms.cured(code)

    def payload_heard(self, event: PayloadHeard) -> None:
        if event.kind is PayloadKind.STATEMENT:
            self.deployments.post(StatementHeard(event.payload, event.key, event.forwarder))
            return
        if event.kind is PayloadKind.AUDIT:
            self.audit_gossip.heard(event)
            return
        try:
            heard = self.progress_publisher.heard(event.key, event.version, event.payload)
            if heard is not None:
                self.deployments.post(heard)
        except ProgressFormatError as error:
            log.debug("progress not understood", code=error.code)

    def probe_wanted(self, node: NodeId) -> None:
        """A ping over the control channel; membership hears of an answer."""
        if self._pings < PINGS_MAX:
            self._pings += 1
            self.nursery.start_soon(self._ping, node)

    async def _ping(self, node: NodeId) -> None:
        try:
            await self.plane.request(node, control.Ping(), PING_S)
        except GossipdError:
            return  # silence says nothing more than membership knows
        finally:
            self._pings -= 1
        self.membership_host.answered(node)
