"""What the control plane asks of the daemon: whose key and address it is, tokens, answers to requests.

What lives here: ``ControlDelegate``, the body of ``control.delegate.ControlPort``. What does not: trigger requests
(``control.trigger_server``), and sockets.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

import trio

from gossipd import __version__
from gossipd.audit.log import AuditLog
from gossipd.control.authenticator import Identity
from gossipd.control.delegate import Reply
from gossipd.control.listener import UNFINISHED
from gossipd.control.trigger_server import TriggerServer
from gossipd.core.events import Event
from gossipd.core.ids import DeploymentId
from gossipd.core.targets import Targets
from gossipd.daemon.alarms import NOT_A_TARGET
from gossipd.daemon.fine_sketches import SketchAnswers
from gossipd.daemon.live_settings import LiveSettings
from gossipd.daemon.member_directory import MemberDirectory
from gossipd.daemon.membership_host import MembershipHost
from gossipd.daemon.planner_driver import PlannerDriver
from gossipd.daemon.self_checks import SelfChecks
from gossipd.runtime.quotas import Quotas
from gossipd.sessions.peer_channel import Endpoint
from gossipd.transfer.tokens import TOKEN_LIFE_S, IssuedTokens, ReceivedTokens
from gossipd.wire import control
from membership.member import NodeId

DOUBT_S = 10.0  # by then a joiner's record has come by gossip
DOUBTED_MAX = 64
PROBES = (
    2  # connections without a word that an address may make at once, then one in PROBE_S: a load balancer's look at
)
PROBE_S = 5.0  # the port, or ``doctor --peers``. ZeroMQ without encryption dials ten times a second


class BulkTokens(NamedTuple):
    """Tokens of plain bulk connections; ``issued`` is None where connections are encrypted."""

    issued: IssuedTokens | None
    received: ReceivedTokens


@dataclass(slots=True, kw_only=True, eq=False)
class ControlDelegate:
    """One per daemon; everything is quick and on the trio loop. ``ControlPort`` says what each method does."""

    directory: MemberDirectory
    live: LiveSettings
    tokens: BulkTokens
    driver: PlannerDriver
    trigger_server: TriggerServer
    audit: AuditLog
    membership_host: MembershipHost
    self_checks: SelfChecks
    sketches: SketchAnswers
    _doubted: deque[tuple[float, str, str, bytes]] = field(default_factory=deque, init=False)
    _probes: Quotas[str] = field(default_factory=lambda: Quotas(burst=PROBES, per_s=1 / PROBE_S), init=False)

    def member_of(self, curve_key: bytes, address: str = "") -> NodeId | None:
        return self.directory.member_of(curve_key, address)

    def client_of(self, curve_key: bytes) -> bytes | None:
        return next((key.ed25519 for key in self.live.clients if key.curve25519 == curve_key), None)

    def endpoint_of(self, node: NodeId) -> Endpoint | None:
        record = self.directory.record(node)
        return None if record is None else Endpoint(record.host, record.port, record.transport_key, record.boot)

    def has_answered(self, node: NodeId) -> bool:
        return self.membership_host.swim.has_answered(node)

    def ask(self, node: NodeId) -> None:
        self.membership_host.ask(node)

    def is_target(self, node: NodeId, targets: Targets) -> bool:
        return self.directory.is_target(node, targets)

    def on_subscriber_refused(self, node: NodeId, deployment: DeploymentId) -> None:
        self.audit.record(
            NOT_A_TARGET, subject=self.directory.name_of(node), by=node.hex(), deployment=deployment.hex()
        )

    def is_member_address(self, address: str) -> bool:
        return self.directory.is_member_address(address)

    def greeting(self) -> control.Hello:
        return control.Hello(f"gossipd {__version__}")

    def tokens_for(self, node: NodeId) -> tuple[tuple[bytes, ...], int]:
        issued = self.tokens.issued
        return ((), 0) if issued is None else (issued.issue_ahead(node), int(TOKEN_LIFE_S))

    def on_tokens(self, node: NodeId, tokens: tuple[bytes, ...], valid_s: int) -> None:
        if self.tokens.issued is not None:
            self.tokens.received.put(node, tokens, min(valid_s, TOKEN_LIFE_S))

    def on_event(self, event: Event) -> None:
        self.driver.post(event)

    def on_request(self, identity: Identity, message: control.Message, reply: Reply) -> None:
        if isinstance(message, control.TokenWanted):
            if self.tokens.issued is None or identity.node is None:
                reply(control.Refused("E_TOKEN"))
            elif (token := self.tokens.issued.issue_asked(identity.node)) is None:
                reply(control.Refused("E_BUSY"))
            else:
                reply(control.Token(token, int(TOKEN_LIFE_S)))
        elif isinstance(message, control.SketchWanted) and identity.node is not None:
            reply(self.sketches.answer(identity.node, message.deployment, trio.current_time()))
        elif not self.trigger_server.hear(identity, message, reply):
            reply(control.Refused("E_TRIGGER_FIELD", "this node does not know the request"))

    def on_refused(self, reason: str, address: str, key: bytes) -> None:
        """Who was refused may be a joiner whose record is on its way: that shows in a while. Or this daemon's check, or
        a probe that only looks whether the port is open."""
        if self.self_checks.explain(address, key):
            return
        if reason == UNFINISHED and (not address or self._probes.take(address, trio.current_time())):
            return  # of one that was gone at once there is nobody to tell
        if key and len(self._doubted) < DOUBTED_MAX:
            self._doubted.append((trio.current_time() + DOUBT_S, reason, address, key))
        else:
            self._record_refusal(reason, address)

    def record_refusals(self) -> None:
        """Write down the strangers that are strangers still. Called every second."""
        while self._doubted and self._doubted[0][0] <= trio.current_time():
            _, reason, address, key = self._doubted.popleft()
            if self.member_of(key) is None and self.client_of(key) is None:
                self._record_refusal(reason, address)

    def _record_refusal(self, reason: str, address: str) -> None:
        # The port is a new one each time; by the host, so that one stranger's knocking is cut short in the log.
        host = address.rpartition(":")[0] if "://" in address else address
        self.audit.record("stranger refused", subject=host or "unknown", reason=reason)
