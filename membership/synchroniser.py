"""The asking side of anti-entropy: makes two views equal when their digests differ.

A session is one node asking one peer. The asker sends the hashes of its 256 buckets. The peer answers with a row (id,
mark) for all that it believes in the buckets that differ. The asker then asks for exactly what it lacks, in pieces of
at most 48, and pushes what the peer lacks. Nothing travels that both have. A peer whose budget of datagrams is used up
says so, and the asker takes another one: a thousand joiners spread over all members that they have just learnt of.

When: at once after joining or after coming back (``catching_up``). Else only when both sides say that their views have
been still for a while, or when no digest has been equal to ours for some seconds, because a rumour on its way makes all
digests differ for a moment. A session that brought nothing doubles the pause before the next.

A peer that did not answer lengthens no pause. But for a while, each time twice as long, nothing that it sends unasked
begins a session: a liar that pings all hosts would otherwise keep them from asking others. The same holds for a peer
whose session was cut: every session is cut after some seconds, whatever it brings, because each answer puts off its
end, and a liar could answer for ever. What such a peer answers to our own probes may still begin a session, because on
busy machines all peers are late at times.

A session asks for only a little of what was refused here lately, and a first refusal does not make the pause long.
Otherwise the surplus words of one member would be sent again and again, or would hide those of all others. Rejected: to
ask for nothing that was refused, because a forged statement has the row of the true one; full exchanges on a timer of
30 s and more (memberlist, foca), because their last joiner waits for minutes.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Sequence

from msgspec import Struct, field

from membership import wire
from membership.event_store import EventStore
from membership.member import Handle
from membership.node import MembershipNode
from membership.seal import BODY_BYTES_MAX
from membership.sync_rows import LOW, unpack_rows
from membership.sync_server import HASHES, LISTS_MAX, WANT_ROW, SyncServer
from membership.verified_cache import Claim

_WANTS_AT_ONCE = 48
_WANTED_MAX = 20000
_PUSHES_MAX = 400
_PUSHED_STATEMENTS_MAX = 16  # in one session
_QUIET_S = 0.2  # a session without an answer for this long is over
_QUIETS_MAX = 15  # so many times as long lasts a session at most; what is missing then is asked of the next peer
_EQUALS_ENOUGH = 3
_FRUITLESS_ENOUGH = 8  # sessions that brought nothing: what differs still is refused here, and stays so
_SHUN_S, _SHUN_MAX_S = 2.0, 120.0  # a peer that did not answer
_SHUNNED_MAX = 1024
_REFUSED_MAX = 4096
_AGAIN_MAX = _WANTS_AT_ONCE  # in one session; lists begin at random, so each comes to its turn
_REFUSED_GAP_S = 1.5  # the longest pause after a session in which little, or what is refused first, has come
_UNEQUAL_S = 4.0  # no equal digest for this long: reconcile although views are moving


class Session(Struct, eq=False):
    """What this node is asking one peer."""

    peer: Claim
    sequence: int
    heard_s: float
    until_s: float
    wanted: deque[tuple[bytes, int]] = field(default_factory=deque)
    asked: int = 0
    lists: int = 0
    """Datagrams of rows that were compared: each costs a look at all members."""
    pushed: int = 0
    """Statements that the peer lacks."""
    again: int = 0
    """Rows that are asked for although they were refused lately."""
    heard: int = 0
    """Items that came."""
    refused: int = 0
    """Statements of them that were refused."""
    refused_first: int = 0
    """Likewise, and not refused before."""
    gained: int = 0
    is_answered: bool = False


class Synchroniser:
    """One per brain."""

    def __init__(self, node: MembershipNode, event_store: EventStore, answers: SyncServer, now: float) -> None:
        self._node = node
        self._event_store = event_store
        self._answers = answers
        self._session: Session | None = None
        self._sequence = 0
        self._gap_s = node.settings.sync_gap_s
        self._next_s = now
        self._equal_s = now
        self._equals = 0
        self._fruitless = 0
        self._shunned: OrderedDict[Handle, tuple[float, float]] = OrderedDict()  # until when, and how long
        self._refused: OrderedDict[bytes, int] = OrderedDict()  # rows and their last mark, the latest last

    def on_digest(self, peer: Claim, digest: int, flags: int, now: float, *, chosen: bool) -> None:
        """A ping or ack carried the sender's digest. ``chosen``: in the answer to a probe of ours. No other says
        that views are equal, or a liar that pings us with our own digest would keep us from asking anybody."""
        node = self._node
        if digest == node.roster.digest.total:
            if chosen:
                self._equal_s = now
            self._gap_s = node.settings.sync_gap_s
            self._equals += 1
            # One equal digest may be that of a node that is as far behind as this one.
            if self._equals >= _EQUALS_ENOUGH:
                node.catching_up = False
                node.returning = False
            return
        self._equals = 0
        if self._session is not None or now < self._next_s or node.has_left:
            return
        if not chosen and self._is_shunned(peer.handle, now):
            return
        still = flags & wire.FLAG_SETTLED and now - node.changed_s >= node.settings.settle_s
        if node.catching_up or still or now - self._equal_s > _UNEQUAL_S:
            self.start(peer, now)

    def start(self, peer: Claim, now: float) -> None:
        """Ask this peer, unless a session is running."""
        if self._session is not None:
            return
        node = self._node
        self._sequence = (self._sequence + 1) & 0xFFFFFFFF
        self._session = Session(peer, self._sequence, now, now + _QUIETS_MAX * self._quiet_s())
        node.counts["sync_sessions"] += 1
        ask = wire.SEQUENCE_HEAD.pack(wire.SYNC_ASK, self._sequence)
        ask += HASHES.pack(*node.roster.digest.bucket_hashes())
        if node.catching_up and len(ask) + len(node.own.item) <= BODY_BYTES_MAX:
            ask += node.own.item  # the peer may not know us yet
        node.send_bare(peer, ask)
        node.at(now + self._quiet_s(), self._on_quiet)

    def _on_quiet(self, now: float) -> None:
        session = self._session
        if session is None:
            return
        quiet = self._quiet_s()
        if now - session.heard_s >= quiet * 0.99 or now >= session.until_s:
            self._finish(now)
        else:
            self._node.at(min(session.heard_s + quiet, session.until_s), self._on_quiet)

    def _quiet_s(self) -> float:
        return _QUIET_S * self._node.health.factor(self._node.now_s)

    def _finish(self, now: float, *, busy: bool = False) -> None:
        node, session = self._node, self._session
        assert session is not None
        self._session = None
        settings = node.settings
        if session.gained or not node.catching_up:
            self._fruitless = 0
        elif session.is_answered:
            self._fruitless += 1
            node.catching_up = self._fruitless < _FRUITLESS_ENOUGH
        is_cut = now >= session.until_s
        node.counts["sync_sessions_cut"] += is_cut
        if (session.is_answered or busy) and not is_cut:
            self._shunned.pop(session.peer.handle, None)
        else:
            self._shun(session.peer.handle, now)
        is_mostly_refused = 2 * session.refused > session.heard
        if (session.gained and not is_mostly_refused) or busy or node.catching_up:
            self._gap_s = settings.sync_gap_s
        elif session.is_answered:
            may_bring_more = session.gained or session.refused_first
            gap_max_s = min(_REFUSED_GAP_S, settings.sync_gap_max_s) if may_bring_more else settings.sync_gap_max_s
            self._gap_s = min(gap_max_s, self._gap_s * 2)
        self._next_s = now + self._gap_s * (0.5 + node.rng.random()) * (0.5 if node.catching_up else 1.0)
        if session.gained and not busy:
            node.returning = False
        if node.catching_up:
            node.at(self._next_s, self._on_again)

    def _shun(self, peer: Handle, now: float) -> None:
        _, last_s = self._shunned.get(peer, (now, _SHUN_S / 2))
        pause_s = min(_SHUN_MAX_S, 2 * last_s)
        self._shunned[peer] = now + pause_s, pause_s
        if len(self._shunned) > _SHUNNED_MAX:
            self._shunned.popitem(last=False)

    def _is_shunned(self, peer: Handle, now: float) -> bool:
        return peer in self._shunned and now < self._shunned[peer][0]

    def _on_again(self, now: float) -> None:
        # Still catching up: do not wait for the next ping to show that views differ.
        node = self._node
        if self._session is None and node.catching_up and now >= self._next_s and not node.has_left:
            for peer in node.pick_reachable(1):
                self.start(peer, now)

    # ---- asking

    def on_busy(self, body: bytes, peer: Claim, now: float) -> None:
        """The peer has no budget left: ask another one, soon."""
        _, sequence = wire.SEQUENCE_HEAD.unpack_from(body)
        if self._is_current(sequence, peer):
            self._finish(now, busy=True)

    def on_list(self, body: bytes, peer: Claim, now: float) -> None:
        """Compare with ours: ask for what this node lacks, push what the peer lacks."""
        _, sequence = wire.SEQUENCE_HEAD.unpack_from(body)
        if not self._is_current(sequence, peer):
            return
        session = self._session
        assert session is not None
        if session.lists >= LISTS_MAX:
            self._node.counts["sync_lists_refused"] += 1
            return
        session.heard_s = now
        session.is_answered = True
        session.lists += 1
        pushes: list[tuple[bytes, int]] = []
        theirs: dict[int, dict[bytes, int]] = {}
        for bucket, whole, rows in unpack_rows(body, wire.SEQUENCE_HEAD.size):
            self._compare(session, rows, pushes)
            if whole:
                theirs[bucket] = rows
        everything = wire.WANT_RECORD | wire.WANT_LIVENESS
        pushes += [(row_id, everything) for row_id in self._missing_there(session, theirs)]
        if pushes:
            items: list[bytes] = []
            for row_id, what in pushes[:_PUSHES_MAX]:
                items += self._answers.items_of(row_id, what)
            self._answers.send_items(peer, items, now)
        self._want_more(session, now)

    def _compare(self, session: Session, rows: dict[bytes, int], pushes: list[tuple[bytes, int]]) -> None:
        roster = self._node.roster
        for row_id, mark in rows.items():
            claim = roster.claims.get(row_id)
            if claim is None:
                if self._event_store.mark_of(row_id) == mark:
                    continue
                self._want_unknown(session, row_id)
                continue
            ours = claim.mark if row_id not in roster.gone else claim.mark & ~LOW
            if ours == mark:
                continue
            everything = wire.WANT_RECORD | wire.WANT_LIVENESS
            same_record = ours >> 32 == mark >> 32
            if len(session.wanted) < _WANTED_MAX:
                # A member that is not alive here may need the record itself as its sign of life (hearsay).
                what = wire.WANT_LIVENESS if same_record and row_id not in roster.gone else everything
                session.wanted.appendleft((row_id, what))
            # Where it lives here and not there, the peer may lack the record; a death is proved without it.
            pushes.append((row_id, wire.WANT_LIVENESS if same_record and mark & LOW else everything))

    def _want_unknown(self, session: Session, row_id: bytes) -> None:
        """A member or statement that is not known here."""
        if row_id in self._refused:
            session.again += 1
            if session.again > _AGAIN_MAX:
                return
        if len(session.wanted) < _WANTED_MAX:
            session.wanted.append((row_id, wire.WANT_RECORD | wire.WANT_LIVENESS))

    def _missing_there(self, session: Session, theirs: dict[int, dict[bytes, int]]) -> list[bytes]:
        """What this node has, and the peer lacks, in the buckets that the peer listed as a whole; one pass over all. Of
        statements a few, picked at random: the peer may have refused them, and asks itself for what it lacks."""
        claims = [(claim.bucket, claim.handle) for claim in self._node.roster.claims.values()]
        statements = ((bucket, row_id) for bucket, row_id, _ in self._event_store.rows())
        members, lacking = (
            [row_id for bucket, row_id in ours if bucket in theirs and row_id not in theirs[bucket]]
            for ours in (claims, statements)
        )
        count = min(len(lacking), _PUSHED_STATEMENTS_MAX - session.pushed)
        session.pushed += count
        return members + self._node.rng.sample(lacking, count)

    def _want_more(self, session: Session, now: float) -> None:
        if session.asked > 0:
            return
        batch = [session.wanted.popleft() for _ in range(min(_WANTS_AT_ONCE, len(session.wanted)))]
        if not batch:
            return
        session.asked = len(batch)
        head = wire.SEQUENCE_HEAD.pack(wire.SYNC_WANT, session.sequence)
        self._node.send_bare(session.peer, head + b"".join(WANT_ROW.pack(*row) for row in batch))

    def on_items(self, items: Sequence[bytes], peer: Claim, now: float, *, is_news: bool) -> None:
        """Items came from a peer; ``is_news``: they have changed our view."""
        session = self._session
        if session is None or peer.handle != session.peer.handle:
            return
        session.heard_s = now
        session.asked -= len(items)
        session.heard += len(items)
        session.gained += is_news
        self._note_refused(session, items)
        if session.asked <= 0:
            session.asked = 0
            self._want_more(session, now)
        if not session.asked or now >= session.until_s:
            self._finish(now)

    def _note_refused(self, session: Session, items: Sequence[bytes]) -> None:
        """Statements that came and are not known now."""
        for row_id, mark in filter(None, map(self._event_store.row_of, items)):
            if self._event_store.mark_of(row_id) == mark:
                continue
            session.refused += 1
            session.refused_first += self._refused.get(row_id) != mark
            self._refused[row_id] = mark
            self._refused.move_to_end(row_id)
            if len(self._refused) > _REFUSED_MAX:
                self._refused.popitem(last=False)

    def _is_current(self, sequence: int, peer: Claim) -> bool:
        session = self._session
        return session is not None and session.sequence == sequence and session.peer.handle == peer.handle
