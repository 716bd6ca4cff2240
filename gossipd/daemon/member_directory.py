"""The members by node, key and address, for all threads; their changes as the planner's events.

What lives here: the answers to "who is that, where is it, may it come in", kept so that worker threads can read
them, and the translation from membership's events to the planner's. What does not: the verdicts (``membership``).

A record names the CURVE key of its host, and nothing in it proves that the host has the secret half: a member can name
another's. So a key has claimants, and who shows it is the one that speaks from where it connects.

Nor does it prove that there is a host at all. The planner is told which members have spoken to this host. A member that
would matter at once is asked: one that claims to be a seed or tells progress, one of this host's rack, and the first of
each other rack. What it tells of its progress waits for its answer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Protocol

from gossipd.core.events import Event, IsolationChanged, PeerLost, PeerSeen
from gossipd.core.model import PeerView
from gossipd.core.targets import Targets
from gossipd.daemon.unheard_words import UnheardWords
from gossipd.deployment.progress_record import ProgressFormatError
from gossipd.deployment.signed_progress import ProgressKey
from gossipd.runtime.logs import get_logger
from gossipd.swarm.capabilities import NodeCapabilities
from membership import events as membership_events
from membership.member import Member, NodeId, Record

log = get_logger("cluster")
_ASKED_RACKS_MAX = 1_024  # the oldest goes: its members may be asked once more


class MemberListener(Protocol):
    """What else has to know of members. Called on the trio loop; nothing waits."""

    def post(self, event: Event) -> None:
        """An event for the planner."""

    def member_changed(self, node: NodeId) -> None:
        """A member is new or back, or is elsewhere or in another life."""

    def ask(self, node: NodeId) -> None:
        """A member must speak for itself before it counts: ask it."""

    def roster_changed(self) -> None:
        """A member came, moved or went: who may sign has changed."""

    def payload_heard(self, event: membership_events.PayloadHeard) -> None:
        """A statement or a record of progress."""

    def probe_wanted(self, node: NodeId) -> None:
        """Membership wants this member asked over the control channel."""

    def alarm(self, code: str, sentence: str) -> None:
        """The operator must know."""

    def cured(self, code: str) -> None:
        """Nothing of this code is wrong any more."""


class MemberDirectory:
    """The records of all members. Written on the loop, read from anywhere."""

    def __init__(self, own: NodeId) -> None:
        self.own = own
        self.records: dict[NodeId, Record] = {}
        self.revision = 0
        """Grows when a record, or who lives or may be made up, may have changed."""
        self.unheard: frozenset[NodeId] = frozenset()
        """Members that may be made up, gone ones too, as ``note_unheard`` was told."""
        self._live: set[NodeId] = set()
        self._answered: set[NodeId] = set()
        self._by_curve: dict[bytes, tuple[NodeId, ...]] = {}  # the claimants of each key, the first one first
        self._addresses: Counter[str] = Counter()
        self._asked_racks: dict[str, None] = {}
        self._unheard_words = UnheardWords()

    def begin(self, own: Record, others: list[Record]) -> None:
        """Ourselves, and those known from an earlier run: they may come in before gossip has found them again."""
        for record in (*others, own):
            self._put(record)
        self._answered.update(record.node for record in others)  # in that run

    # ---- from any thread ---------------------------------------------------------------------------

    def record(self, node: NodeId) -> Record | None:
        """A member's record, alive or not."""
        return self.records.get(node)

    def is_member(self, node: NodeId) -> bool:
        """Whether it is on the roster. A host that counts as dead and dials us is plainly alive, so it is let in."""
        return node in self.records

    def member_of(self, curve_key: bytes, address: str = "") -> NodeId | None:
        """Whose CURVE key that is, shown by a connection from that IP address. Of several members that name it: this
        host; one that speaks from that address; one that names it; the first."""
        claimants = self._by_curve.get(curve_key, ())
        if len(claimants) < 2:
            return claimants[0] if claimants else None
        return max(claimants, key=lambda node: self._nearness(node, address))

    def _nearness(self, node: NodeId, address: str) -> int:
        if node == self.own:
            return 3
        record = self.records.get(node)
        is_from_there = record is not None and record.host == address
        return is_from_there + (is_from_there and node in self._answered)

    def bulk_endpoint(self, node: NodeId) -> tuple[str, int] | None:
        """Where its chunks are served."""
        record = self.records.get(node)
        return None if record is None else (record.host, record.bulk_port)

    def is_member_address(self, address: str) -> bool:
        """Whether a record names this IP address. A member behind address translation is taken for a stranger."""
        return address in self._addresses

    def is_rack_peer(self, node: NodeId) -> bool:
        """Whether that member is in our rack."""
        own, other = self.records.get(self.own), self.records.get(node)
        return own is not None and other is not None and own.rack == other.rack

    def is_target(self, node: NodeId, targets: Targets) -> bool:
        """Whether a member is one of the targets, by the name and the rack in its own signed record."""
        record = self.records.get(node)
        return record is not None and targets.include(name=record.name, rack=record.rack)

    def name_of(self, node: NodeId) -> str:
        """The member's name; the head of its id when it is unknown."""
        record = self.records.get(node)
        return record.name if record is not None else node.hex()[:12]

    def live(self) -> set[NodeId]:
        """The members that membership counts on, without this host."""
        return set(self._live)

    def answered(self) -> set[NodeId]:
        """Those of them that have spoken to this host from the address in their record."""
        return self._live & self._answered

    def unanswered(self) -> set[NodeId]:
        """All other members that have not spoken to this host, dead ones too."""
        return self.records.keys() - self._answered - {self.own}

    # ---- on the loop -------------------------------------------------------------------------------

    def note_unheard(self, nodes: Iterable[NodeId]) -> None:
        """Which of ``unanswered`` membership has asked in vain, or has seen go."""
        found = frozenset(nodes) & self.records.keys()
        if found != self.unheard:
            self.unheard = found
            self.revision += 1

    def hear(self, event: membership_events.Event, listener: MemberListener) -> None:
        """Take in what membership says, and tell the others."""
        match event:
            case membership_events.MemberUp(member):
                self._seen(member, listener)
                listener.cured("E_JOIN_REFUSED")  # a host that sees others was let in
                log.info("member up", member=member.record.name, rack=member.record.rack)
            case membership_events.MemberChanged(member) | membership_events.MemberSuspected(member):
                self._seen(member, listener)
            case membership_events.MemberDown(member, reason):
                self._lost(member.record.node, listener, is_forgotten=reason is membership_events.DownReason.FORGOTTEN)
                log.info("member down", member=member.record.name, reason=reason.value)
            case membership_events.MemberLeft(member):
                self._lost(member.record.node, listener, is_forgotten=False)
                log.info("member down", member=member.record.name, reason="left")
            case membership_events.MemberForgotten(node, name):
                self._lost(node, listener, is_forgotten=True)
                log.info("member forgotten", member=name)
            case membership_events.MemberAnswered(node):
                self._has_spoken(node, listener)
            case membership_events.PayloadHeard():
                self._payload_heard(event, listener)
            case membership_events.ControlProbeWanted(node):
                listener.probe_wanted(node)
            case membership_events.Isolated(isolated):
                _isolated(listener, isolated=isolated)
            case membership_events.JoinRefused(reason):
                listener.alarm("E_JOIN_REFUSED", reason)

    def _seen(self, member: Member, listener: MemberListener) -> None:
        record = member.record
        node = record.node
        known = self.records.get(node)
        self._put(record)
        if node == self.own:
            return
        is_back = node not in self._live
        self._live.add(node)
        self.revision += 1
        self._tell(record, listener)
        has_moved = known is None or (known.host, known.port, known.boot) != (record.host, record.port, record.boot)
        if is_back or has_moved:
            listener.member_changed(node)
        if has_moved:
            listener.roster_changed()

    def _tell(self, record: Record, listener: MemberListener) -> None:
        capable = NodeCapabilities.from_bytes(record.payload)
        view = PeerView(
            record.node, record.rack, record.zone, capable.can_read_sources, capable.seed_term, name=record.name
        )
        has_answered = record.node in self._answered
        listener.post(PeerSeen(view, has_answered))
        if not has_answered and (capable.seed_term or self._is_of_interest(record)):
            listener.ask(record.node)

    def _is_of_interest(self, record: Record) -> bool:
        own = self.records.get(self.own)
        if own is not None and own.rack == record.rack:
            return True
        is_new = record.rack not in self._asked_racks
        self._asked_racks[record.rack] = None
        if len(self._asked_racks) > _ASKED_RACKS_MAX:
            del self._asked_racks[next(iter(self._asked_racks))]
        return is_new

    def _has_spoken(self, node: NodeId, listener: MemberListener) -> None:
        self._answered.add(node)
        self.unheard -= {node}
        self.revision += 1
        if node in self._live and (record := self.records.get(node)) is not None:
            self._tell(record, listener)
        listener.member_changed(node)
        for word in self._unheard_words.take(node):
            listener.payload_heard(word)

    def _payload_heard(self, word: membership_events.PayloadHeard, listener: MemberListener) -> None:
        author = _author_of_progress(word)
        if author is None or author == self.own or author in self._answered or author not in self.records:
            listener.payload_heard(word)
        else:
            self._unheard_words.hold(author, word)
            listener.ask(author)

    def _lost(self, node: NodeId, listener: MemberListener, *, is_forgotten: bool) -> None:
        self._live.discard(node)
        self.revision += 1
        listener.post(PeerLost(node))
        if is_forgotten:
            self._drop(node)
        listener.roster_changed()

    def _put(self, record: Record) -> None:
        old = self.records.get(record.node)
        if old is not None and old.transport_key != record.transport_key:
            self._forget_key(old)
        if old is not None:
            self._forget_address(old)
            if (old.host, old.port) != (record.host, record.port):
                self._answered.discard(record.node)
        self._addresses[record.host] += 1
        self.records[record.node] = record
        claimants = self._by_curve.get(record.transport_key, ())
        if record.node not in claimants:
            self._by_curve[record.transport_key] = (*claimants, record.node)

    def _drop(self, node: NodeId) -> None:
        record = self.records.pop(node, None)
        self._answered.discard(node)
        self.unheard -= {node}
        self._unheard_words.take(node)
        if record is not None:
            self._forget_address(record)
            self._forget_key(record)

    def _forget_key(self, record: Record) -> None:
        claimants = self._by_curve.get(record.transport_key, ())
        if left := tuple(node for node in claimants if node != record.node):
            self._by_curve[record.transport_key] = left
        else:
            self._by_curve.pop(record.transport_key, None)

    def _forget_address(self, record: Record) -> None:
        self._addresses[record.host] -= 1
        if not self._addresses[record.host]:
            del self._addresses[record.host]


def _author_of_progress(word: membership_events.PayloadHeard) -> NodeId | None:
    """None where it is no progress, or cannot be read, which is for the listener to say."""
    if word.kind is not membership_events.PayloadKind.PROGRESS:
        return None
    try:
        return ProgressKey.decode(word.key).node
    except ProgressFormatError:
        return None


def _isolated(listener: MemberListener, *, isolated: bool) -> None:
    listener.post(IsolationChanged(isolated))
    if isolated:
        log.warning("isolated")
        listener.alarm("E_ISOLATED", "this host receives nothing from the cluster; check its network")
    else:
        log.warning("no longer isolated")
        listener.cured("E_ISOLATED")
