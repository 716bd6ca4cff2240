"""Who is suspected, and who is dead: accusations, contradictions, deadlines.

What lives here: what is heard about whether a member lives, and the verdicts. What does not: which record wins and who
is on the roster (``record_merger``), probing (``prober``), the formula for the wait and its theory (``suspicion``).

Within one life a higher signed incarnation beats suspicion and death, an equal one does not. No third party's word
revives a member, and no node takes "dead" over from another: it comes with the accusations that led to it, and these
start a suspicion here. Each probe carries a sum over the members that the sender suspects on enough accusations. Where
sums differ, suspects are named and missed accusations asked for, so a rumour may miss a few nodes without harm.
"""

from __future__ import annotations

from msgspec.structs import replace

from membership import wire
from membership.bounds import INCARNATION_STEP, ceiling, fits
from membership.errors import WireError
from membership.events import DownReason, MemberChanged, MemberDown, MemberSuspected, MemberUp
from membership.member import Handle, MemberState
from membership.node import ACCUSE_LABEL, ALIVE_LABEL, MembershipNode
from membership.pings import Pings
from membership.roster import Gone
from membership.suspicion import Credit, Suspicion
from membership.verified_cache import Claim

# A rumour reaches all members within a second (simulated, 10,000 members); a node without it by then has missed it.
_WORRY_FROM_S = 0.8
# Before a verdict every node asks the subject itself: time for two round trips of a busy host.
_LAST_WORD_S = 0.6
# Local health stretches our own wait too, up to this, because busy hosts stall for seconds.
_PATIENCE_MAX = 4
_WORRY_DEAD_S = 6.0
_WORRIES_MAX = 100  # named in one datagram
WORRY_WANTS_MAX = 4  # their accusations (three of 94 B each) fit into one answer
_REFUTE_GAP_S = 0.05  # at most 20 contradictions a second, whatever provokes them
_INCARNATION_SPENT = ceiling(wire.INCARNATION_MAX) - 2 * INCARNATION_STEP  # a new life is begun before others refuse


class Judge:
    """One per brain."""

    def __init__(self, node: MembershipNode, pings: Pings) -> None:
        self._node = node
        self._pings = pings
        self._roster = node.roster
        self._suspicions: dict[Handle, Suspicion] = node.suspected
        self._credit = Credit()
        self._refuted_s = float("-inf")
        self._died: dict[Handle, float] = {}

    # ---- signs of life

    def on_alive(self, data: bytes, now: float, *, relay: bool = True) -> None:
        """A member's signed contradiction."""
        node, roster = self._node, self._roster
        handle, boot, incarnation, part, signature = wire.parse_claim(data)
        claim = roster.claims.get(handle)
        if claim is None or boot != claim.record.boot or incarnation <= claim.incarnation:
            if claim is not None and incarnation == claim.incarnation:
                node.rumours.membership.heard_again(("alive", handle))
            return
        if handle == roster.own.handle:
            return
        gone = roster.gone.get(handle)
        if gone is not None and gone.state is MemberState.LEFT:
            return
        message = ALIVE_LABEL + node.verified_cache.cluster_id + part
        if not node.verified_cache.is_signed(data, claim.record.public_key, message, signature):
            raise WireError("an ALIVE of somebody else's making")
        suspicion = self._suspicions.get(handle)
        claim = node.verified_cache.raised(claim, incarnation, data)
        roster.put(claim, now)
        node.changed_s = now
        if relay or suspicion is not None:
            node.rumours.membership.add(("alive", handle), data, handle, urgent=True)
            if suspicion is not None:
                node.gossip_due = True
        if suspicion is not None:
            for accuser in suspicion.accusers:
                self._credit.contradicted(accuser, now)
            self.drop_suspicion(handle)
        node.tell(MemberUp(node.member(claim)) if gone else MemberChanged(node.member(claim)))

    def on_notice(self, data: bytes, now: float) -> None:
        """Another node tells us what it believes of us."""
        state, handle, boot, incarnation = wire.parse_notice(data)
        own = self._node.own
        if handle != own.handle or boot != own.record.boot or self._node.has_left:
            return
        if not _is_near(incarnation, own):
            self._node.counts["notices_refused"] += 1
        elif state in (wire.STATE_SUSPECT, wire.STATE_DEAD):
            self._contradict(incarnation, now)

    def _contradict(self, incarnation: int, now: float) -> None:
        node = self._node
        if incarnation < node.own.incarnation or node.has_left:
            if node.own.proof:  # the sender has missed the proof: send it again
                node.rumours.membership.add(("alive", node.own.handle), node.own.proof, node.own.handle, urgent=True)
            return
        if now - self._refuted_s < _REFUTE_GAP_S:
            return
        self._refuted_s = now
        node.counts["contradictions"] += 1
        node.health.worsen()
        if incarnation + 1 < _INCARNATION_SPENT:
            node.raise_incarnation(incarnation + 1, now)
        else:
            node.resign(replace(node.own.record, boot=node.own.record.boot + 1, version=1), 0, now)
            node.gossip_due = True

    # ---- accusations

    def accusation(self, subject: Claim) -> bytes:
        """Our signed statement that ``subject`` does not answer."""
        node = self._node
        part = wire.accusation_part(node.own.handle, subject.handle, subject.record.boot, subject.incarnation)
        return wire.item(wire.ACCUSE, part + node.sign(ACCUSE_LABEL + node.verified_cache.cluster_id + part))

    def on_accuse(self, data: bytes, now: float, *, relay: bool = True) -> None:
        """A signed statement that a member does not answer."""
        node, roster = self._node, self._roster
        accuser, subject, boot, incarnation = wire.parse_accusation(data)
        claim = roster.claims.get(subject)
        if claim is None or boot != claim.record.boot or incarnation < claim.incarnation:
            return
        suspicion = self._suspicions.get(subject)
        if suspicion is not None and accuser in suspicion.accusers:
            node.rumours.membership.heard_again((subject, accuser))
            return
        accusing = roster.claims.get(accuser)
        if accusing is None or accuser in roster.gone or accuser == subject or subject in roster.gone:
            return
        if not self._is_believed(accuser, incarnation, claim, now):
            return
        if suspicion is not None and not suspicion.has_room_for(accusing.record.rack, claim.record.rack):
            return
        part, signature = wire.signed_parts(data)
        message = ACCUSE_LABEL + node.verified_cache.cluster_id + part
        if not node.verified_cache.is_signed(data, accusing.record.public_key, message, signature):
            raise WireError("an accusation of somebody else's making")
        if claim is roster.own:
            self._contradict(incarnation, now)
            return
        self._add_accuser(claim, suspicion, accusing, data, now, relay=relay)

    def _is_believed(self, accuser: Handle, incarnation: int, claim: Claim, now: float) -> bool:
        counts = self._node.counts
        if not _is_near(incarnation, claim):
            counts["accusations_refused"] += 1
            return False
        if self._node.settings.corroborate and not self._credit.is_believed(accuser, now):
            counts["accusations_disbelieved"] += 1
            return False
        return True

    def _add_accuser(
        self, claim: Claim, suspicion: Suspicion | None, accusing: Claim, data: bytes, now: float, *, relay: bool
    ) -> None:
        node, roster = self._node, self._roster
        first = suspicion is None
        if suspicion is None:
            suspicion = self._suspicions[claim.handle] = Suspicion(claim.incarnation, now)
        enough = suspicion.is_corroborated(claim.record.rack, roster.racks)
        suspicion.add(accusing.handle, accusing.record.rack, data)
        if relay and not enough:
            # A further accuser would shorten the wait a little, but is not worth the bandwidth of all nodes.
            node.rumours.membership.add((claim.handle, accusing.handle), data, accusing.handle)
            node.gossip_due = True
        self._set_deadline(claim, suspicion, now)
        if first:
            node.tell(MemberSuspected(node.member(claim)))

    def _set_deadline(self, claim: Claim, suspicion: Suspicion, now: float) -> None:
        node = self._node
        wait = suspicion.wait_s(node.settings, self._roster.live, claim.record.rack, self._roster.racks)
        # A late second accuser may make an old suspicion overdue: the subject is asked all the same.
        deadline = max(suspicion.since_s + wait, now + _LAST_WORD_S)
        if deadline < suspicion.deadline:
            suspicion.deadline = deadline
            handle = claim.handle
            node.at(deadline, lambda later: self._on_deadline(handle, suspicion, later))
            node.at(deadline - _LAST_WORD_S, lambda later: self._ask_for_last_word(handle, suspicion, later))

    def compare_worry(self, peer: Claim, *, same: bool, now: float) -> None:
        """A probe showed that a peer suspects others than this node, or holds another view: name our suspects to it."""
        if same or not (self._suspicions or self._died) or not self._node.settings.corroborate:
            return
        recent = [handle for handle, since in self._died.items() if now - since <= _WORRY_DEAD_S]
        if len(recent) < len(self._died):
            self._died = {handle: self._died[handle] for handle in recent}
        old = [
            handle
            for handle, suspicion in self._suspicions.items()
            if suspicion.is_firm and now - suspicion.since_s >= _WORRY_FROM_S
        ]
        worries = [handle for handle in (*old, *recent) if handle != peer.handle][-_WORRIES_MAX:]
        if worries:
            self._node.counts["worries_told"] += 1
            self._node.send_bare(peer, bytes((wire.WORRIES,)) + b"".join(worries))

    def on_worries(self, body: bytes, peer: Claim, now: float) -> None:
        """A peer names its suspects: ask for the accusations that this node has missed."""
        missed = [
            handle
            for handle in wire.parse_handles(body)
            if self._roster.is_live(handle) and handle != self._node.own.handle and not self._is_firm(handle)
        ]
        if missed and not self._node.isolated:
            self._node.send_bare(peer, bytes((wire.WORRY_WANT,)) + b"".join(missed))

    def _is_firm(self, handle: Handle) -> bool:
        suspicion = self._suspicions.get(handle)
        return suspicion is not None and suspicion.is_firm

    def on_worry_want(self, body: bytes, peer: Claim, now: float) -> None:
        """A peer has missed accusations."""
        items: list[bytes] = []
        for handle in wire.parse_handles(body)[:WORRY_WANTS_MAX]:
            gone, suspicion = self._roster.gone.get(handle), self._suspicions.get(handle)
            known = gone.evidence if gone is not None else tuple(suspicion.accusers.values()) if suspicion else ()
            items += known[:3]
        if items:
            self._node.send_bare(peer, bytes((wire.ITEMS,)) + b"".join(items))

    def _ask_for_last_word(self, handle: Handle, suspicion: Suspicion, now: float) -> None:
        """Shortly before the verdict, ask the subject: it may not know of an accusation that only this node has."""
        due = now >= suspicion.deadline - _LAST_WORD_S - 0.001 and self._node.settings.corroborate
        if due and self._suspicions.get(handle) is suspicion and not suspicion.is_asked:
            suspicion.is_asked = True
            if not self._node.isolated:  # a ping tells it that it is suspected
                self._pings.send(self._roster.claims[handle], now)

    def restart_suspicions(self, now: float) -> None:
        """After a freeze or a gap every suspect gets the full time again."""
        for handle, suspicion in self._suspicions.items():
            suspicion.since_s = now
            suspicion.is_asked = False
            suspicion.deadline = float("inf")
            self._set_deadline(self._roster.claims[handle], suspicion, now)

    def withdraw_accusations(self) -> None:
        """This node doubts itself: it stops passing on its own accusations."""
        own = self._node.own.handle
        for handle in self._suspicions:
            self._node.rumours.membership.discard((handle, own))

    def _on_deadline(self, handle: Handle, suspicion: Suspicion, now: float) -> None:
        if self._suspicions.get(handle) is not suspicion or now < suspicion.deadline:
            return
        node = self._node
        is_doubtful = node.frozen or node.isolation.failed_mostly_since(suspicion.since_s)
        if node.settings.isolation_freeze and is_doubtful:
            node.counts["verdicts_postponed"] += 1
            suspicion.deadline = now + node.settings.probe_interval_s
            node.at(suspicion.deadline, lambda later: self._on_deadline(handle, suspicion, later))
            return
        claim = self._roster.claims[handle]
        corroborated = suspicion.is_corroborated(claim.record.rack, self._roster.racks)
        if corroborated and self._is_too_early(claim, suspicion, now):
            node.counts["verdicts_slowed"] += 1
            suspicion.deadline = now + node.settings.probe_interval_s
            node.at(suspicion.deadline, lambda later: self._on_deadline(handle, suspicion, later))
            return
        self.drop_suspicion(handle)
        self._roster.bury(handle, Gone(MemberState.DEAD, now, tuple(suspicion.accusers.values())))
        node.changed_s = now
        node.counts["deaths"] += 1
        self._died[handle] = now
        reason = DownReason.CORROBORATED if corroborated else DownReason.LONE
        node.tell(MemberDown(node.member(claim), reason))

    def _is_too_early(self, claim: Claim, suspicion: Suspicion, now: float) -> bool:
        """A slow node may not have heard the subject's answer yet, so it gives the subject more time."""
        node = self._node
        patience = min(_PATIENCE_MAX, node.health.factor(now))
        wait = suspicion.wait_s(node.settings, self._roster.live, claim.record.rack, self._roster.racks)
        return patience > 1 and now < suspicion.since_s + wait * patience

    def drop_suspicion(self, handle: Handle) -> None:
        """The suspicion is over: contradicted, judged, or about a former life."""
        suspicion = self._suspicions.pop(handle, None)
        if suspicion is not None:
            for accuser in suspicion.accusers:
                self._node.rumours.membership.discard((handle, accuser))


def _is_near(incarnation: int, claim: Claim) -> bool:
    """Whether an incarnation that others name of a member can be one that it has reached, heard of here or not."""
    return fits(incarnation, known=claim.incarnation, step=INCARNATION_STEP, maximum=wire.INCARNATION_MAX)
