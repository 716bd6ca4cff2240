"""The cluster as this host sees it: member records by node and by key, and what their changes mean to the planner.

What lives here: the answers to "who is that, where is it, may it come in", kept so that worker threads can read
them, and the translation from membership's events to the planner's. What does not: the verdicts (``membership``).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import structlog

from gossipd.core.events import Event, IsolationChanged, PeerLost, PeerSeen
from gossipd.core.model import PeerView
from gossipd.swarm.capabilities import NodeCapabilities
from membership import events as membership_events
from membership.member import Member, NodeId, Record

log = structlog.get_logger("cluster")


@dataclass(frozen=True, slots=True)
class MemberCallbacks:
    """What else has to know; all are quick and on the trio loop."""

    post: Callable[[Event], None]
    member_changed: Callable[[NodeId], None]
    member_gone: Callable[[NodeId], None]
    roster_changed: Callable[[], None]
    heard: Callable[[membership_events.PayloadHeard], None]
    probe_wanted: Callable[[NodeId], None]
    alarm: Callable[[str, str], None]
    cured: Callable[[str], None] = lambda code: None


class MemberDirectory:
    """Records of everybody who belongs. Written on the loop, read from anywhere."""

    def __init__(self, own: NodeId) -> None:
        self._own = own
        self.records: dict[NodeId, Record] = {}
        self._live: set[NodeId] = set()
        self._by_curve: dict[bytes, NodeId] = {}
        self._namesakes: dict[NodeId, str] = {}
        self.callbacks: MemberCallbacks | None = None

    def begin(self, own: Record, others: list[Record]) -> None:
        """Ourselves, and those known from an earlier run: they may come in before gossip has found them again."""
        for record in (*others, own):
            self._put(record)

    # ---- from any thread ---------------------------------------------------------------------------

    def record(self, node: NodeId) -> Record | None:
        """The record of whoever belongs, alive or not."""
        return self.records.get(node)

    def is_member(self, node: NodeId) -> bool:
        """Belongs to the cluster. One that is taken for dead and knocks is plainly not, so it is let in."""
        return node in self.records

    def member_of(self, curve_key: bytes) -> NodeId | None:
        """Whose CURVE key that is."""
        return self._by_curve.get(curve_key)

    def bulk_endpoint(self, node: NodeId) -> tuple[str, int] | None:
        """Where its chunks are served."""
        record = self.records.get(node)
        return None if record is None else (record.host, record.bulk_port)

    def live(self) -> set[NodeId]:
        """Those that membership counts on, without ourselves."""
        return set(self._live)

    # ---- on the loop -------------------------------------------------------------------------------

    def hear(self, event: membership_events.Event) -> None:
        """Take in what membership says."""
        calls = self.callbacks
        assert calls is not None
        if isinstance(
            event, membership_events.MemberUp | membership_events.MemberChanged | membership_events.MemberSuspected
        ):
            self._seen(event.member, calls)
            if isinstance(event, membership_events.MemberUp):
                calls.cured("E_JOIN_REFUSED")  # who sees others was let in
                log.info("member up", member=event.member.record.name, rack=event.member.record.rack)
        elif isinstance(event, membership_events.MemberDown | membership_events.MemberLeft):
            node = event.member.record.node
            self._live.discard(node)
            calls.post(PeerLost(node))
            calls.member_gone(node)
            self._no_namesake(node, calls)
            reason = event.reason.value if isinstance(event, membership_events.MemberDown) else "left"
            log.info("member down", member=event.member.record.name, reason=reason)
            if (
                isinstance(event, membership_events.MemberDown)
                and event.reason is membership_events.DownReason.FORGOTTEN
            ):
                self._drop(node)
            calls.roster_changed()
        elif isinstance(event, membership_events.MemberForgotten):
            self._live.discard(event.node)
            calls.post(PeerLost(event.node))
            calls.member_gone(event.node)
            self._no_namesake(event.node, calls)
            self._drop(event.node)
            calls.roster_changed()
            log.info("member forgotten", member=event.name)
        elif isinstance(event, membership_events.PayloadHeard):
            calls.heard(event)
        elif isinstance(event, membership_events.ControlProbeWanted):
            calls.probe_wanted(event.node)
        elif isinstance(event, membership_events.Isolated):
            _isolated(calls, isolated=event.isolated)
        elif isinstance(event, membership_events.NameConflict):
            self._namesakes[event.other] = event.name
            calls.alarm("E_NAME_CONFLICT", f"another live host has the name {event.name}; rename one of the two")
        else:
            calls.alarm("E_JOIN_REFUSED", event.reason)

    def _seen(self, member: Member, calls: MemberCallbacks) -> None:
        record = member.record
        node = record.node
        known = self.records.get(node)
        self._put(record)
        if node == self._own:
            return
        if self._namesakes.get(node, record.name) != record.name:
            self._no_namesake(node, calls)
        self._live.add(node)
        capabilities = NodeCapabilities.from_bytes(record.payload)
        calls.post(
            PeerSeen(
                PeerView(
                    node,
                    record.rack,
                    record.zone,
                    capabilities.can_read_sources,
                    capabilities.seed_term,
                    name=record.name,
                )
            )
        )
        moved = known is None or (known.host, known.port, known.boot) != (record.host, record.port, record.boot)
        if moved:
            calls.member_changed(node)
            calls.roster_changed()

    def _no_namesake(self, node: NodeId, calls: MemberCallbacks) -> None:
        """The host that had our name is gone or has another."""
        if self._namesakes.pop(node, None) is not None and not self._namesakes:
            calls.cured("E_NAME_CONFLICT")

    def _put(self, record: Record) -> None:
        old = self.records.get(record.node)
        if old is not None and old.transport_key != record.transport_key:
            self._by_curve.pop(old.transport_key, None)
        self.records[record.node] = record
        self._by_curve[record.transport_key] = record.node

    def _drop(self, node: NodeId) -> None:
        record = self.records.pop(node, None)
        if record is not None and self._by_curve.get(record.transport_key) == node:
            del self._by_curve[record.transport_key]


def _isolated(calls: MemberCallbacks, *, isolated: bool) -> None:
    calls.post(IsolationChanged(isolated))
    if isolated:
        log.warning("isolated")
        calls.alarm("E_ISOLATED", "this host receives nothing from the cluster; check its network")
    else:
        log.warning("no longer isolated")
        calls.cured("E_ISOLATED")
