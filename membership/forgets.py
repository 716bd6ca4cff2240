"""Forgetting: who is taken off the roster here, and how each host comes to hear of it.

What lives here: FORGET words, those that wait, those that are told again; what is buried. What does not: the table of
tombstones (``tombstones``), whether a member lives (``judge``).

Any member may say a FORGET, in its own name, of a member that it takes for gone. Nobody can have a living member
forgotten: the word waits until this node itself finds the member dead, and the member is probed next. Digests do not
show who has missed a FORGET, and a host that has missed the goodbye as well finds no peer that still has it. So a
FORGET is sent more often than other rumours, with the goodbye of its subject before it. A host that was away hears the
word late. So a node that knows the word tells it again, under its own signature, to two kinds of peers: those that
speak of a buried life as of a member, and those that ask after a member that is gone there (``dead_prober``). A buried
life counts again when the member speaks for itself. Rejected: to bury a member that is not known here, because a liar
could hide the living from a joiner in this way.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from membership import wire
from membership.errors import WireError
from membership.event_store import EventStore
from membership.events import MemberForgotten
from membership.judge import Judge
from membership.member import Address, Handle, MemberState, NodeId
from membership.node import FORGET_LABEL, MembershipNode
from membership.tombstones import Tombstone, Tombstones
from membership.verified_cache import Claim

_WAIT_S = 300.0  # the longest wait of a slow node for its own verdict, and some
_LOOK_S = 1.0
_WAITING_MAX = 1024
_EXTRA_SENDINGS = 6  # with the usual sendings one of fifty nodes misses a rumour
_TOLD_MAX = 8  # words in one answer; each is smaller than the record that called for it


class _Forget(NamedTuple):
    """A FORGET whose subject still lives here."""

    data: bytes
    issuer: Handle
    boot: int
    until_s: float


class Forgets:
    """One per brain."""

    def __init__(self, node: MembershipNode, judge: Judge, event_store: EventStore) -> None:
        self._node = node
        self._event_store = event_store
        self._roster = node.roster
        self._judge = judge
        self._waiting: dict[Handle, _Forget] = {}  # for our own verdict, oldest first
        self._spoken_of: dict[Handle, None] = {}  # buried lives in the datagram at hand
        self.tombstones = Tombstones(node.settings.tombstone_count_max, node.settings.tombstone_keep_s)

    # ---- words

    def forget(self, handle: Handle, now: float) -> None:
        """Take a member that is not alive off the roster, everywhere."""
        self._carry_out(handle, None, now)

    def on_forget(self, data: bytes, now: float) -> None:
        """A signed statement that a member is off the roster. The newest life that is named waits."""
        node, roster = self._node, self._roster
        issuer, subject, boot = wire.parse_forget(data)
        claim, issuing = roster.claims.get(subject), roster.claims.get(issuer)
        if claim is None or issuing is None or claim is roster.own or claim.record.boot > boot:
            return
        waiting = self._waiting.get(subject)
        if (waiting is not None and waiting.boot >= boot) or not node.is_boot_possible(boot, subject):
            return
        part, signature = wire.signed_parts(data)
        message = FORGET_LABEL + node.verified_cache.cluster_id + part
        if not node.verified_cache.is_signed(data, issuing.record.public_key, message, signature):
            raise WireError("a FORGET of somebody else's making")
        if subject in roster.gone:
            self._carry_out(subject, data, now)
        else:
            self._wait(subject, _Forget(data, issuer, boot, now + _WAIT_S), now)

    def _wait(self, subject: Handle, word: _Forget, now: float) -> None:
        waiting = self._waiting
        if not waiting:
            self._node.at(now + _LOOK_S, self._look)
        if subject not in waiting:
            self._roster.probe_next(subject)
        waiting[subject] = word
        self._node.counts["forgets_kept_back"] += 1
        if len(waiting) > _WAITING_MAX:
            loudest = Counter(one.issuer for one in waiting.values()).most_common(1)[0][0]
            del waiting[next(one for one, known in waiting.items() if known.issuer == loudest)]

    def _look(self, now: float) -> None:
        for subject, word in list(self._waiting.items()):
            claim = self._roster.claims.get(subject)
            is_meant = claim is not None and claim.record.boot <= word.boot
            if is_meant and subject in self._roster.gone:
                self._carry_out(subject, word.data, now)
            elif is_meant and now < word.until_s:
                continue
            del self._waiting[subject]
        if self._waiting:
            self._node.at(now + _LOOK_S, self._look)

    def _carry_out(self, subject: Handle, heard: bytes | None, now: float) -> None:
        word = self._word_of(subject, self._roster.claims[subject].record.boot)
        gone = self._roster.gone[subject]
        goodbye = b"".join(gone.evidence) if gone.state is MemberState.LEFT else b""
        self.remove(subject, now)
        self.tombstones.inscribe(subject, goodbye + word)
        rumour = goodbye + (heard or word)
        self._node.rumours.membership.add(("forget", subject), rumour, subject, extra=_EXTRA_SENDINGS)

    def _word_of(self, subject: Handle, boot: int) -> bytes:
        node = self._node
        part = wire.forget_part(node.own.handle, subject, boot)
        return wire.item(wire.FORGET, part + node.sign(FORGET_LABEL + node.verified_cache.cluster_id + part))

    # ---- the roster

    def remove(self, handle: Handle, now: float) -> None:
        """Take a member off the roster here, with a tombstone; others are told nothing."""
        claim = self._roster.claims[handle]
        self._judge.drop_suspicion(handle)
        self._roster.remove(handle)
        self._event_store.drop_progress(claim.node)
        self.tombstones.add(handle, claim.record.boot, now)
        self._node.tell(MemberForgotten(claim.node, claim.record.name))

    def recall(self, stones: Iterable[Tombstone], now: float) -> None:
        """What an earlier life of this node has kept (``kept``)."""
        for stone in stones:
            if stone.handle not in self._roster.claims:
                self.tombstones.add(stone.handle, stone.boot, now)
                if stone.is_told:
                    self.tombstones.inscribe(stone.handle, self._word_of(stone.handle, stone.boot))

    def kept(self) -> list[Tombstone]:
        """The tombstones, and the lives that ended with a goodbye, for the next life of this node."""
        roster = self._roster
        left = [handle for handle, gone in roster.gone.items() if gone.state is MemberState.LEFT]
        ended = [Tombstone(handle, roster.claims[handle].record.boot, False) for handle in left]
        return self.tombstones.kept() + ended

    def is_buried(self, handle: Handle, boot: int, now: float) -> bool:
        """Whether a life is off the roster, so that others' word of it is ignored; they are told so (``answer``)."""
        if not self.tombstones.blocks(handle, boot, now):
            return False
        self._node.counts["buried_records"] += 1
        self._spoken_of[handle] = None
        return True

    # ---- telling it again

    def answer(self, address: Address, peer: NodeId) -> None:
        """The datagram at hand is done with: tell its sender which members that it spoke of are forgotten."""
        spoken_of, self._spoken_of = self._spoken_of, {}
        words = self._words_about(list(spoken_of))
        if words:
            self._node.send_to_address(address, bytes((wire.ITEMS,)) + words, peer)

    def on_question(self, handles: list[Handle], peer: Claim) -> None:
        """A peer asks after members that are gone there."""
        words = self._words_about(handles)
        if words:
            self._node.send_bare(peer, bytes((wire.ITEMS,)) + words)

    def _words_about(self, handles: list[Handle]) -> bytes:
        words = [word for word in map(self.tombstones.word, handles) if word][:_TOLD_MAX]
        self._node.counts["forgets_told_again"] += len(words)
        return b"".join(words)
