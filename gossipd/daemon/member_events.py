"""What membership's events mean to the rest of the daemon: the body of ``member_directory.MemberListener``.

What lives here: which part hears of a member, of a statement, of progress, and of a wanted probe. What does not: the
table of members (``member_directory``), and verdicts (``membership``).
"""

from __future__ import annotations

from typing import NamedTuple

import structlog
import trio

from gossipd.control.control_plane import ControlPlane
from gossipd.core.errors import GossipdError
from gossipd.core.events import Event, PeerLost
from gossipd.daemon.deployment_driver import DeploymentDriver
from gossipd.daemon.driver import PlannerDriver
from gossipd.daemon.membership_host import MembershipHost
from gossipd.daemon.progress_publisher import ProgressPublisher
from gossipd.daemon.reports import Alarms
from gossipd.deployment.events import ProgressHeard, RosterChanged, StatementHeard
from gossipd.deployment.progress import ProgressFormatError
from gossipd.wire import control
from membership.events import PayloadHeard, PayloadKind
from membership.member import NODE_ID_BYTES, NodeId

PING_S = 0.8  # the fall-back probe's answer counts only while the suspicion is young
PINGS_MAX = 16  # fall-back probes at once; a suspicion storm must not become a storm of dials
log = structlog.get_logger("members")


class Hearers(NamedTuple):
    """The parts that hear of members."""

    driver: PlannerDriver
    plane: ControlPlane
    deployments: DeploymentDriver
    progress_publisher: ProgressPublisher
    membership_host: MembershipHost
    alarms: Alarms


class MemberEvents:
    """See MemberListener. On the trio loop.

    Args:
        nursery: in which probes run; the daemon's.
    """

    def __init__(self, hearers: Hearers, nursery: trio.Nursery) -> None:
        self._to = hearers
        self._nursery = nursery
        self._pings = 0

    def post(self, event: Event) -> None:
        """See MemberListener. The sessions hear of a lost peer after the planner."""
        self._to.driver.post(event)
        if isinstance(event, PeerLost):
            self._to.plane.hear(event)

    def member_changed(self, node: NodeId) -> None:
        """See MemberListener."""
        self._to.plane.member_changed(node)

    def roster_changed(self) -> None:
        """See MemberListener."""
        self._to.deployments.post(RosterChanged())
        self._to.membership_host.judge_again()

    def alarm(self, code: str, sentence: str) -> None:
        """See MemberListener."""
        self._to.alarms.ring(code, sentence)

    def cured(self, code: str) -> None:
        """See MemberListener."""
        self._to.alarms.cured(code)

    def payload_heard(self, event: PayloadHeard) -> None:
        """See MemberListener."""
        if event.kind is PayloadKind.STATEMENT:
            self._to.deployments.post(StatementHeard(event.payload, event.key, event.forwarder))
            return
        node, short_key = NodeId(event.key[:NODE_ID_BYTES]), event.key[NODE_ID_BYTES:]
        try:
            if self._to.progress_publisher.heard(node, short_key, event.version, event.payload):
                self._to.deployments.post(ProgressHeard(node, short_key))
        except ProgressFormatError as error:
            log.debug("progress not understood", code=error.code)

    def probe_wanted(self, node: NodeId) -> None:
        """See MemberListener: a ping over the control channel, and membership hears of an answer."""
        if self._pings < PINGS_MAX:
            self._pings += 1
            self._nursery.start_soon(self._ping, node)

    async def _ping(self, node: NodeId) -> None:
        try:
            await self._to.plane.request(node, control.Ping(), PING_S)
        except GossipdError:
            return  # silence says nothing more than membership knows
        finally:
            self._pings -= 1
        self._to.membership_host.answered(node)
