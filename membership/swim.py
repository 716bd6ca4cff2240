"""``Swim``, one member's brain: datagrams and timers are passed to its parts; what a host may call. Datagram or timer
in with ``now``; datagrams, events and the next deadline out.

What lives here: the entry (unseal, replay check, dispatch by kind of datagram), housekeeping, and what a host may call.
What does not: what is inside a datagram (``item_dispatcher``), when rumours are told (``gossip_rounds``), and decisions
(``prober``, ``judge``, ``synchroniser``, ``joiner``, ``event_store``), over the state in ``node``.

The host calls ``handle_datagram`` and ``handle_timer`` with its monotonic clock, then drains. After a long stop it must
hand over waiting datagrams before it calls the timer, because answers that were waiting must not look like silence.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from random import Random
from struct import error as struct_error

from msgspec.structs import replace

from membership import wire
from membership.credentials import Credentials
from membership.errors import SealError, WireError
from membership.event_store import EventStore
from membership.events import JoinRefused, Output, PayloadKind
from membership.forgets import Forgets
from membership.gossip_rounds import GossipRounds
from membership.host_rules import HostRules, LenientRules
from membership.indirect_prober import IndirectProber
from membership.item_dispatcher import ItemDispatcher
from membership.joiner import Joiner
from membership.judge import WORRY_WANTS_MAX, Judge
from membership.member import HANDLE_BYTES, Address, Member, MemberState, NodeId, Record
from membership.node import LEAVE_LABEL, MembershipNode
from membership.pings import Pings
from membership.prober import Prober
from membership.record import encode_signed
from membership.record_merger import RecordMerger
from membership.replay import ReplayWindows
from membership.roster import Gone
from membership.seal import KeyRing, OpenedDatagram
from membership.settings import SwimSettings
from membership.sync_server import ASK_BYTES, SyncServer
from membership.synchroniser import Synchroniser
from membership.tombstones import Tombstone
from membership.verified_cache import Claim

_HOUSEKEEPING_S = 60.0
_PAST_LIFE_GAP_S = 0.2  # a replayed JOIN must not make this node send much
_FAREWELL_FANOUT = 12  # goodbye goes to this many at once, without waiting for rounds
_KNOCKS = tuple(bytes((kind,)) for kind in (wire.JOIN, wire.WELCOME, wire.REFUSAL))  # checked before items are


class Swim:
    """See the module. All times in seconds of one monotonic clock; not thread-safe."""

    def __init__(
        self, settings: SwimSettings, record: Record, credentials: Credentials, *, rng: Random, now: float,
        roster: Iterable[Record] = (), rules: HostRules | None = None,
    ) -> None:  # fmt: skip
        """Begin a life.

        Args:
            record: what this node says of itself, unsigned. ``boot`` must be larger than in any earlier life (the time
                in milliseconds will do), because keys for sealing derive from it.
            roster: signed records of members known in an earlier life; they count as dead until they answer.
            rules: the host's clock, and what it knows of application events; by default everything is believed.

        Raises: SettingsError, RecordError: the caller's fault.
        """
        settings.validate()
        self._node = node = MembershipNode(
            settings, record, credentials, rules or LenientRules(), rng=rng, now=now
        )  # fmt: skip
        self._pings = Pings(node)
        self._judge = Judge(node, self._pings)
        self._event_store = EventStore(node)
        self._forgets = Forgets(node, self._judge, self._event_store)
        self._record_merger = RecordMerger(node, self._judge, self._forgets)
        self._prober = Prober(node, self._judge, self._pings, now)
        self._indirect_prober = IndirectProber(node, self._judge, self._pings, now)
        self._answers = SyncServer(node, self._event_store, now)
        self._synchroniser = Synchroniser(node, self._event_store, self._answers, now)
        self._joiner = Joiner(node, self._record_merger, self._forgets, self._judge, self._synchroniser)
        self._replays = ReplayWindows(settings.member_count_max)
        self._items = ItemDispatcher(node, self._judge, self._record_merger, self._event_store, self._forgets)
        self._rounds = GossipRounds(node)
        self._past_life_s = float("-inf")
        for old in roster:
            self._remember(old, now)
        node.rumours.membership.add(("record", node.own.handle), node.own.item, node.own.handle)
        node.at(now + _HOUSEKEEPING_S, self._housekeep)
        self._handlers: Mapping[int, Callable[[bytes, Claim, float], None]] = {
            wire.PING_REQ: self._on_ping_req,
            wire.ACK: self._on_ack,
            wire.NACK: self._on_nack,
            wire.GOSSIP: self._on_gossip,
            wire.ITEMS: self._on_items,
            wire.SYNC_ASK: self._answers.on_ask,
            wire.SYNC_LIST: self._synchroniser.on_list,
            wire.SYNC_WANT: self._answers.on_want,
            wire.BUSY: self._synchroniser.on_busy,
            wire.WORRIES: self._judge.on_worries,
            wire.WORRY_WANT: self._on_worry_want,
        }

    # ---- what a host calls

    def join(self, contacts: Sequence[Address], now: float) -> None:
        """Ask these contacts to admit this node, until one does. Call again when a DNS name has another address."""
        self._joiner.join(contacts, now)
        self._after(now)

    def leave(self, now: float) -> None:
        """Say goodbye: a dozen members hear it at once. Afterwards the brain is silent; drain, send, and stop."""
        node = self._node
        if node.has_left:
            return
        own = node.own
        part = wire.claim_part(own.handle, own.record.boot, own.incarnation)
        goodbye = wire.item(wire.LEAVE, part + node.sign(LEAVE_LABEL + node.verified_cache.cluster_id + part))
        node.send_some(_FAREWELL_FANOUT, bytes((wire.GOSSIP,)) + goodbye)
        node.has_left = True

    def update_payload(self, payload: bytes, now: float) -> None:
        """Put a new application payload (at most 64 bytes) into our record and tell all members."""
        own = self._node.own
        if own.record.payload != payload:
            record = replace(own.record, payload=payload, version=own.record.version + 1)
            self._node.resign(record, own.incarnation, now)
            self._after(now)

    def publish(self, kind: PayloadKind, key: bytes, version: int, payload: bytes, now: float) -> None:
        """Tell all members an application event, the highest version per kind and key. Raises PayloadRefusedError."""
        self._event_store.publish(kind, key, version, payload, now)
        self._after(now)

    def forget_statement(self, key: bytes, now: float) -> None:
        """Keep and tell a statement no longer, which the host's rules call ``is_over`` from now on."""
        self._event_store.forget(key, now)
        self._after(now)

    def tell_some(self, key: bytes, version: int, payload: bytes, count: int) -> None:
        """Tell that many living members, picked at random, an AUDIT event. They do not pass it on."""
        if not self._node.has_left:
            self._event_store.tell_some(key, version, payload, count)

    def judge_again(self, now: float) -> None:
        """The host's rules know more writers than before: events that were kept back may be told now."""
        self._event_store.judge_again(now)
        self._after(now)

    def set_keys(self, keyring: KeyRing) -> None:
        """Another key ring of the same cluster, without a restart. The first key seals, all of them open. A rotation
        takes three rounds over all hosts, and loses no datagram: the new key last, the new key first, the new key
        alone. Raises SealError when the ring is another cluster's; then nothing is changed."""
        self._node.set_keys(keyring)

    @property
    def key_tags(self) -> Collection[bytes]:
        """The tags of the keys that open a datagram (``Seal.key_tags``)."""
        return self._node.seal.key_tags

    @property
    def unsealed(self) -> int:
        """Datagrams until now that no member can have sealed."""
        return self._node.counts["dropped_unsealed"]

    def count_filtered(self, count: int) -> None:
        """The kernel has dropped so many datagrams for us, in a flood."""
        self._node.counts["dropped_filtered"] += count

    def has_answered(self, node: NodeId) -> bool:
        """Whether a member has spoken from the address in its record, in this life of ours or an earlier one."""
        roster = self._node.roster
        claim = roster.claims.get(node[:HANDLE_BYTES])
        return claim is not None and claim.node == node and roster.has_answered(claim.handle)

    def is_unheard(self, node: NodeId) -> bool:
        """Whether a member has never answered, and was pinged several times or is gone. A member that another one has
        made up looks so. False from its first answer on."""
        roster = self._node.roster
        claim = roster.claims.get(node[:HANDLE_BYTES])
        return claim is not None and claim.node == node and roster.is_unheard(claim.handle)

    def ask(self, node: NodeId, now: float) -> None:
        """The host is about to speak to a member. Ping it if it has never answered; ``MemberAnswered`` when it does."""
        claim = self._node.roster.claims.get(node[:HANDLE_BYTES])
        if claim is not None and claim.node == node and not self._node.roster.has_answered(claim.handle):
            self._pings.ask(claim, now)
            self._after(now)

    def control_probe_answered(self, node: NodeId, now: float) -> None:
        """The member that ``ControlProbeWanted`` named has answered over the control channel."""
        self._prober.on_control_result(node, now)
        self._after(now)

    def forget(self, node: NodeId, now: float) -> bool:
        """Take a member that is not alive off all rosters. False when it is unknown or alive."""
        handle = node[:HANDLE_BYTES]
        claim = self._node.roster.claims.get(handle)
        if claim is None or claim.node != node or handle not in self._node.roster.gone:
            return False
        self._forgets.forget(handle, now)
        self._after(now)
        return True

    def members(self) -> list[Member]:
        """All members on the roster, this node too, in whatever state."""
        return [self._node.member(claim) for claim in self._node.roster.claims.values()]

    def member(self, node: NodeId) -> Member | None:
        """One row of the roster."""
        claim = self._node.roster.claims.get(node[:HANDLE_BYTES])
        return None if claim is None or claim.node != node else self._node.member(claim)

    def roster_records(self) -> list[Record]:
        """Signed records of the others that have answered and have not left: for the next life, in which they count as
        members that have. One that never answered may be made up; if it is not, others tell of it again."""
        roster = self._node.roster
        left = {handle for handle, gone in roster.gone.items() if gone.state is MemberState.LEFT}
        others = [claim for claim in roster.claims.values() if claim is not roster.own and claim.handle not in left]
        return [claim.record for claim in others if roster.has_answered(claim.handle)]

    def tombstones(self) -> list[Tombstone]:
        """Lives that are over, for the next life: of members that were forgotten, and of those that left."""
        return self._forgets.kept()

    def recall(self, tombstones: Iterable[Tombstone], now: float) -> None:
        """What ``tombstones`` gave at the end of an earlier life; before anything is heard."""
        self._forgets.recall(tombstones, now)

    def self_record(self) -> Record:
        """Our own record as it is in force, signed."""
        return self._node.own.record

    def statistics(self) -> dict[str, int]:
        """Counters and sizes, for status and metrics."""
        node = self._node
        roster = node.roster
        return {
            **node.counts,
            "members_live": roster.live,
            "members_known": len(roster.claims),
            "members_left": sum(gone.state is MemberState.LEFT for gone in roster.gone.values()),
            "members_suspected": len(node.suspected),
            "tombstones": len(self._forgets.tombstones),
            "rumours_queued": sum(map(len, node.rumours.classes)),
            "rumours_dropped": sum(queue.dropped for queue in node.rumours.classes),
            "events_kept": len(self._event_store),
            "events_kept_back": self._event_store.kept_back,
            "health_score": node.health.score,
            "isolated": int(node.isolated),
            "catching_up": int(node.catching_up),
            "signatures_verified": node.verified_cache.verifications,
        }

    def drain(self) -> list[Output]:
        """Datagrams to send and events that happened, in order, since the last call."""
        out, self._node.out = self._node.out, []
        return out

    def next_deadline(self) -> float:
        """When ``handle_timer`` wants to be called; inf for never."""
        return float("inf") if self._node.has_left else self._node.next_deadline()

    def adopt_view(self, others: Sequence[Swim]) -> None:
        """Believe what others believe, without a datagram: a simulator's warm start. One other: its whole view.
        Several: that each of them lives."""
        roster = self._node.roster
        if len(others) == 1:
            roster.adopt(others[0]._node.roster, self._node.rng)
        else:
            for other in others:
                if other is not self:
                    roster.put(other._node.own, self._node.started_s)
                    roster.note_answered(other._node.own.handle)
        self._node.catching_up = False
        self._node.rumours.membership.discard(("record", self._node.own.handle))
        self._joiner.welcomed = True

    def slowness(self, now: float) -> int:
        """By how much this node stretches its time-outs: 1 when it is well, 8 at most."""
        return self._node.health.factor(now)

    @property
    def view_digest(self) -> int:
        """Equal for equal views."""
        return self._node.roster.digest.total

    # ---- in

    def handle_timer(self, now: float) -> None:
        """A deadline may have passed; harmless when none has."""
        if self._node.has_left:
            return
        self._check_gap(now)
        self._node.run_timers(now)
        self._after(now)

    def handle_datagram(self, datagram: bytes, sender: Address, now: float) -> None:
        """A datagram arrived. One that is not authentic, fresh and well-formed is dropped and counted."""
        node = self._node
        if node.has_left:
            return
        self._check_gap(now)
        checked = node.verified_cache.verifications
        try:
            opened = node.seal.open(datagram)
            if opened.node == node.own.node:
                node.counts["dropped_own"] += 1
            else:
                self._on_opened(opened, sender, now)
        except SealError:
            node.counts["dropped_unsealed"] += 1
        except (WireError, ValueError, struct_error):
            node.counts["dropped_malformed"] += 1
            if node.verified_cache.verifications > checked:
                self._items.charge_source(now)
        self._after(now)

    def _on_opened(self, opened: OpenedDatagram, address: Address, now: float) -> None:
        """An authentic datagram. Its header is only a claim: the seal proves the cluster's key, and the sender's signed
        record its boot."""
        node = self._node
        handle = opened.node[:HANDLE_BYTES]
        known = node.roster.claims.get(handle)
        if known is not None and known.node != opened.node:
            known = None
        if known is not None and opened.boot < known.record.boot:
            self._on_past_life(opened.body, known, address, now)
            return
        is_vouched = known is not None and known.record.boot == opened.boot
        if not is_vouched and not node.is_boot_possible(opened.boot, handle):
            if opened.body[:1] == bytes((wire.WELCOME,)) and not self._joiner.welcomed:
                node.tell(JoinRefused("others began later than this host's clock shows: set it, or restart them"))
            return
        sender = known if is_vouched else None
        home = None if sender is None else sender.address
        if sender is not None and address != home:  # two processes with one key may have begun in one second
            self._tell_newest(opened.body, sender, address, now)
        claimed = opened.node if known is None else known.node  # the roster's own bytes: others are not kept
        if not self._replays.is_fresh(claimed, opened.boot, opened.counter, address, home):
            node.counts["dropped_replays"] += 1
            return
        self._items.source = handle if address == home else address[0]
        if opened.body[:1] in _KNOCKS and self._items.is_source_spent(now):
            node.counts["dropped_forgers"] += 1
            return
        if address == home:
            node.note_answered(handle)
        try:
            self._dispatch(opened, sender, address, now)
        finally:
            self._forgets.answer(address, opened.node)

    def _dispatch(self, opened: OpenedDatagram, sender: Claim | None, address: Address, now: float) -> None:
        node = self._node
        body = opened.body
        if not body:
            raise WireError("empty")
        kind = body[0]
        node.counts["datagrams_in"] += 1
        if kind == wire.PING:
            self._on_ping(body, sender, opened.node, address, now)
        elif kind == wire.JOIN:
            self._joiner.on_join(body, opened.node, address, now)
        elif kind == wire.WELCOME:
            self._on_welcome(body, opened.node, now)
        elif kind == wire.REFUSAL:
            self._joiner.on_refusal(body, now)
        elif sender is None:
            self._on_stranger(body, opened, address, now)
        elif kind in self._handlers:
            self._handlers[kind](body, sender, now)
        else:
            node.counts["dropped_unknown_types"] += 1

    def _on_past_life(self, body: bytes, known: Claim, address: Address, now: float) -> None:
        """A replay, a member whose clock went back, or one of two processes with one key."""
        self._node.counts["dropped_past_lives"] += 1
        self._tell_newest(body, known, address, now)

    def _tell_newest(self, body: bytes, known: Claim, address: Address, now: float) -> None:
        """A JOIN, and whatever comes from where the member was before, is answered with its newest record, rarely."""
        node = self._node
        may = body[:1] == bytes((wire.JOIN,)) or self._record_merger.was_at(known.handle, address)
        if may and now - self._past_life_s >= _PAST_LIFE_GAP_S:
            self._past_life_s = now
            node.send_to_address(address, bytes((wire.ITEMS,)) + known.item, known.node)

    def _on_ping(self, body: bytes, sender: Claim | None, source: NodeId, address: Address, now: float) -> None:
        items = wire.split_items(body, wire.PROBE_HEAD.size)
        self._items.take(items, now, source)
        told = any(data[0] == wire.NOTICE for data in items)
        self._prober.on_ping(body, sender, source, address, now, told=told)
        if sender is not None and address == sender.address:  # else the answer would be longer than the ping
            self._see_digest(body, sender, now, chosen=False)

    def _on_ack(self, body: bytes, sender: Claim, now: float) -> None:
        self._items.take(wire.split_items(body, wire.PROBE_HEAD.size), now, sender.node)
        chosen = self._prober.on_ack(body, sender, now)
        self._see_digest(body, sender, now, chosen=chosen)

    def _see_digest(self, body: bytes, sender: Claim, now: float, *, chosen: bool) -> None:
        _, _, digest, worry, flags = wire.PROBE_HEAD.unpack_from(body)
        same = worry == self._node.worry() and digest == self._node.roster.digest.total
        self._judge.compare_worry(sender, same=same, now=now)
        if sender.handle not in self._node.roster.gone or self._node.catching_up:
            self._synchroniser.on_digest(sender, digest, flags, now, chosen=chosen)

    def _on_ping_req(self, body: bytes, sender: Claim, now: float) -> None:
        self._items.take(wire.split_items(body, wire.REQUEST_HEAD.size), now, sender.node)
        self._indirect_prober.on_ping_req(body, sender, now)

    def _on_nack(self, body: bytes, sender: Claim, now: float) -> None:
        items = wire.split_items(body, wire.SEQUENCE_HEAD.size)
        # The helper's accusation is the round's evidence, not a rumour: the prober holds it back.
        self._items.take([data for data in items if data[0] != wire.ACCUSE], now, sender.node)
        self._prober.on_nack(body, sender, now)

    def _on_gossip(self, body: bytes, sender: Claim, now: float) -> None:
        self._items.take(wire.split_items(body, 1), now, sender.node)

    def _on_items(self, body: bytes, sender: Claim, now: float) -> None:
        items = wire.split_items(body, 1)
        before = self._node.roster.digest.total, len(self._node.roster.claims)
        self._items.take(items, now, sender.node, relay=False)
        is_news = before != (self._node.roster.digest.total, len(self._node.roster.claims))
        self._synchroniser.on_items(items, sender, now, is_news=is_news)

    def _on_stranger(self, body: bytes, opened: OpenedDatagram, address: Address, now: float) -> None:
        """A datagram from a node that has the cluster's key and is not on our roster (yet)."""
        kind = body[0]
        if kind in (wire.GOSSIP, wire.ITEMS):
            items = wire.split_items(body, 1)
            self._joiner.hear_of_sender(items, opened, address, now)
            self._items.take(items, now, opened.node, relay=kind == wire.GOSSIP)
            self._joiner.hear_its_own_word(items, opened, address, now)
            return
        if kind == wire.SYNC_ASK:  # a joiner that heard of this node first brings its record along
            items = wire.split_items(body, ASK_BYTES)
            self._joiner.hear_of_sender(items, opened, address, now)
            self._items.take(items, now, opened.node)
            self._joiner.hear_its_own_word(items, opened, address, now)
            claim = self._node.roster.claims.get(opened.node[:HANDLE_BYTES])
            if claim is not None and claim.node == opened.node and claim.record.boot == opened.boot:
                if address == claim.address:
                    self._node.note_answered(claim.handle)
                self._answers.on_ask(body, claim, now)
                return
        self._node.counts["dropped_strangers"] += 1

    def _on_worry_want(self, body: bytes, sender: Claim, now: float) -> None:
        self._judge.on_worry_want(body, sender, now)
        self._forgets.on_question(wire.parse_handles(body)[:WORRY_WANTS_MAX], sender)

    def _on_welcome(self, body: bytes, source: NodeId, now: float) -> None:
        self._items.take(wire.split_items(body, wire.WELCOME_HEAD.size), now, source, relay=False)
        sender = self._node.roster.claims.get(source[:HANDLE_BYTES])
        if sender is not None and sender.node == source:
            self._joiner.on_welcome(sender, now)

    # ---- rounds

    def _check_gap(self, now: float) -> None:
        node = self._node
        node.now_s = now
        late_s = now - node.next_deadline()
        if late_s > 2 * node.settings.probe_interval_s:
            self._prober.on_gap(now)
        elif late_s > 0:
            node.health.note_late(late_s, now)

    def _after(self, now: float) -> None:
        self._node.now_s = now
        self._rounds.begin(now)

    def _housekeep(self, now: float) -> None:
        node = self._node
        node.at(now + _HOUSEKEEPING_S, self._housekeep)
        keep = node.settings.roster_keep_s
        names = node.roster.names_borne()
        for handle, gone in list(node.roster.gone.items()):
            is_over = now - gone.since_s > (keep / 14 if gone.state is MemberState.LEFT else keep)
            if is_over or node.roster.claims[handle].record.name in names:
                self._forgets.remove(handle, now)

    def _remember(self, record: Record, now: float) -> None:
        """A member of an earlier life: on the roster, to be tried, dead until it answers."""
        node = self._node
        data = encode_signed(record)
        try:
            claim = node.verified_cache.first_claim(data)
        except WireError:
            node.counts["roster_refused"] += 1
            return
        if claim.handle not in node.roster.claims:
            node.roster.put(claim, now, Gone(MemberState.DEAD, now, hearsay=True))
            node.roster.note_answered(claim.handle)  # then
