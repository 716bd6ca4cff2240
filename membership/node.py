"""The state that all parts of one brain share: identity, roster, rumours, outbox, timers, counters.

What lives here: no decisions, only the state under ``prober``, ``judge``, ``synchroniser``, ``joiner`` and
``event_store``. Timers are a heap of (deadline, sequence, callback). A callback looks at the state it finds and does
nothing when it came too late, so nothing is ever cancelled.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable
from random import Random
from typing import TypeAlias

from msgspec.structs import replace

from membership.bounds import BOOT_STEP, fits
from membership.credentials import Credentials
from membership.events import Event, MemberAnswered, Output, SendDatagram
from membership.health import LocalHealth
from membership.host_rules import HostRules
from membership.isolation import Isolation
from membership.member import Address, Handle, Member, MemberState, NodeId, Record
from membership.reachability import Reachability
from membership.record import BOOT_MAX, sign_record
from membership.roster import Roster, canonical_address
from membership.rumours import Rumours
from membership.seal import BODY_BYTES_MAX, OVERHEAD_BYTES, KeyRing
from membership.settings import SwimSettings
from membership.suspicion import Suspicion
from membership.verified_cache import Claim, VerifiedCache
from membership.wire import ALIVE, FLAG_SETTLED, GOSSIP, STATE_DEAD, STATE_LEFT, STATE_SUSPECT, claim_part, item, notice

ALIVE_LABEL = b"gossip alive 1\x00"
LEAVE_LABEL = b"gossip leave 1\x00"
ACCUSE_LABEL = b"gossip accuse 1\x00"
FORGET_LABEL = b"gossip forget 1\x00"
_UNHEARD_SHARE = 0.25  # of the members that are picked, where others have answered
_FIRST_S = 10.0  # a node that has just started has heard few; a thousand of them would tell their contacts all
_GOSSIP_OVERHEAD_BYTES = 28 + OVERHEAD_BYTES + 1  # IPv4 and UDP headers, seal, body type


TimerNumber: TypeAlias = int


class MembershipNode:
    """The shared state of one brain."""

    def __init__(
        self, settings: SwimSettings, record: Record, credentials: Credentials, rules: HostRules, *, rng: Random,
        now: float,
    ) -> None:  # fmt: skip
        self.settings = settings
        self.rules = rules
        self.sign = credentials.sign
        cluster_id = credentials.keyring.cluster_id
        self.verified_cache = verified_cache = credentials.verified_cache or VerifiedCache(cluster_id)
        self._credentials = credentials
        self.seal = credentials.make_seal(credentials.keyring, record.node, record.boot)
        self.rng = rng
        self.started_s = now
        self.changed_s = now
        self.now_s = now  # of the datagram or timer that is being handled
        self.reachability = Reachability()
        self._unheard_due = 0.0
        signed, data = sign_record(record, cluster_id, self.sign)
        self.roster = Roster(verified_cache.own_claim(signed, data, 0, b""), rng)
        self.rumours = Rumours(
            settings.rumour_bytes_per_s, settings.statement_bytes_per_s, settings.progress_bytes_per_s
        )
        self.isolation = Isolation(settings.isolation_share, settings.isolation_window, settings.isolation_subjects_min)
        self.health = LocalHealth(settings.health_max, timeout_s=settings.probe_timeout_s, enabled=settings.lifeguard)
        self.suspected: dict[Handle, Suspicion] = {}
        self.isolated = False
        self.returning = False
        self.catching_up = True
        self.has_left = False
        self.counts: Counter[str] = Counter()
        self.out: list[Output] = []
        self._timers: list[tuple[float, int, Callable[[float], object]]] = []
        self._timer_number: TimerNumber = 0
        self._called_off: set[TimerNumber] = set()  # of ``_timers``
        self.gossip_due = False  # pass rumours on at the next opportunity instead of the next round

    @property
    def own(self) -> Claim:
        """What this node says of itself now."""
        return self.roster.own

    @property
    def frozen(self) -> bool:
        """Whether this node passes no verdicts: it hears too few members, or is back and has not caught up."""
        return self.isolated or self.returning

    def worry(self) -> int:
        """A sum over the members suspected on enough accusations; on every probe, so that a missed accusation shows."""
        firm = (int.from_bytes(handle[:4]) for handle, known in self.suspected.items() if known.is_firm)
        return sum(firm) & 0xFFFFFFFF

    def is_boot_possible(self, boot: int, handle: Handle) -> bool:
        """Whether a life of this member may have that number; counts those that may not."""
        held = self.roster.claims.get(handle)
        known = 0 if held is None else held.record.boot
        bound = self.rules.latest_boot()
        possible = fits(boot, known=known, step=BOOT_STEP, maximum=BOOT_MAX, clock_bound=bound)
        self.counts["boots_refused"] += not possible
        return possible

    # ---- timers

    def at(self, when: float, callback: Callable[[float], object]) -> TimerNumber:
        """Call back at ``when`` or later."""
        self._timer_number += 1
        heapq.heappush(self._timers, (when, self._timer_number, callback))
        return self._timer_number

    def call_off(self, timer: TimerNumber) -> None:
        """The host need not wake for a timer that has nothing to do any more. Only before it has run."""
        self._called_off.add(timer)

    def next_deadline(self) -> float:
        """When the first timer is due."""
        timers = self._timers
        while timers and timers[0][1] in self._called_off:
            self._called_off.discard(heapq.heappop(timers)[1])
        return timers[0][0] if timers else float("inf")

    def run_timers(self, now: float) -> None:
        """Run all timers that are due, in order."""
        timers = self._timers
        while timers and timers[0][0] <= now:
            _, number, callback = heapq.heappop(timers)
            if number in self._called_off:
                self._called_off.discard(number)
            else:
                callback(now)

    # ---- out

    def tell(self, event: Event) -> None:
        """Queue an event for the host."""
        self.out.append(event)

    def may_send(self, claim: Claim, *, is_probe: bool = False) -> bool:
        """Whether a datagram may go to a member's address; pays for it where nobody has answered from there yet."""
        if self.roster.has_answered(claim.handle):
            return True
        may = self.reachability.may_send(canonical_address(claim), self.now_s, is_probe=is_probe)
        self.counts["sends_withheld"] += not may
        return may

    def _has_just_started(self, now: float) -> bool:
        return now < self.started_s + _FIRST_S

    def pick_reachable(self, count: int) -> list[Claim]:
        """Up to ``count`` living members at random to which one datagram may go each. But for the first seconds of this
        node, one of four at most has never answered, as long as others are there, and a silent address takes nobody's
        place: a liar's made-up members would keep most words from the rest."""
        roster = self.roster
        drawn = roster.pick(count)
        picked = [claim for claim in drawn if roster.has_answered(claim.handle)]
        if len(picked) == count:
            return picked
        if self._has_just_started(self.now_s):
            return [claim for claim in drawn if self.may_send(claim)]
        others = roster.next_heard(count - len(picked), avoid={claim.handle for claim in picked})
        self._unheard_due = min(1.0, self._unheard_due + count * _UNHEARD_SHARE)
        places = max(int(self._unheard_due), count - len(picked) - len(others))
        unheard: list[Claim] = []
        for claim in drawn:
            if len(unheard) < places and not roster.has_answered(claim.handle) and self.may_send(claim):
                unheard.append(claim)
        self._unheard_due = max(0.0, self._unheard_due - len(unheard))
        return (picked + unheard + others)[:count]

    def note_answered(self, handle: Handle) -> None:
        """A member has spoken from the address in its record; the host hears of the first time."""
        if not self.roster.has_answered(handle):
            self.roster.note_answered(handle)
            self.tell(MemberAnswered(self.roster.claims[handle].node))

    def send(self, claim: Claim, head: bytes, now: float, items: bytes = b"", *, is_probe: bool = False) -> bool:
        """One datagram to a member: head, notice if it is suspected or dead, items, and, unless it may be nobody,
        rumours as far as they fit. False when it is withheld (``reachability``)."""
        if not self.may_send(claim, is_probe=is_probe):
            return False
        handle = claim.handle
        if (handle in self.suspected or handle in self.roster.gone) and self.settings.lifeguard:
            items = self.notice_for(claim) + items
        body = head + items
        if self.roster.has_answered(handle) or self._has_just_started(now):
            room = BODY_BYTES_MAX - len(body)
            body += self.rumours.take(room, self.settings.transmit_limit(self.roster.live), now)
        self.out.append(SendDatagram(claim.address, self.seal.seal(body, claim.node)))
        return True

    def send_rumours(self, claim: Claim, now: float) -> bool:
        """One datagram of nothing but rumours, to one of ``pick_reachable``. False when the budgets allow none; then
        nothing is sent."""
        limit = self.settings.transmit_limit(self.roster.live)
        rumours = self.rumours.take(BODY_BYTES_MAX - 1, limit, now, _GOSSIP_OVERHEAD_BYTES)
        if rumours:
            self._send_sealed(claim, bytes((GOSSIP,)) + rumours)
        return bool(rumours)

    def send_bare(self, claim: Claim, body: bytes) -> None:
        """One datagram to a member, nothing added."""
        if self.may_send(claim):
            self._send_sealed(claim, body)

    def send_some(self, count: int, body: bytes) -> None:
        """Send one datagram to up to ``count`` living members at random, nothing added."""
        for claim in self.pick_reachable(count):
            self._send_sealed(claim, body)

    def _send_sealed(self, claim: Claim, body: bytes) -> None:
        self.out.append(SendDatagram(claim.address, self.seal.seal(body, claim.node)))

    def send_to_address(self, address: Address, body: bytes, node: NodeId | None) -> None:
        """One datagram to a node that is not on the roster."""
        self.out.append(SendDatagram(address, self.seal.seal(body, node)))

    def notice_for(self, claim: Claim) -> bytes:
        """Tells a suspected or dead member so (Lifeguard's buddy system), so that it can contradict."""
        gone = self.roster.gone.get(claim.handle)
        state = STATE_SUSPECT
        if gone is not None:
            state = STATE_LEFT if gone.state is MemberState.LEFT else STATE_DEAD
        return notice(state, claim.handle, claim.record.boot, claim.incarnation)

    # ---- ourselves

    def set_keys(self, keyring: KeyRing) -> None:
        """Seal and open with these keys from now, in a later life too."""
        self.seal.set_keys(keyring)
        self._credentials = replace(self._credentials, keyring=keyring)

    def probe_flags(self, now: float) -> int:
        """Flags of our next ping or ack."""
        return FLAG_SETTLED if now - self.changed_s >= self.settings.settle_s and not self.frozen else 0

    def resign(self, record: Record, incarnation: int, now: float) -> None:
        """Put a new own record (or incarnation) into force and tell all members."""
        if record.boot != self.own.record.boot:
            kept = self._credentials
            self.seal = kept.make_seal(kept.keyring, self.own.node, record.boot)  # a life has its own sealing keys
        signed, data = sign_record(record, self.verified_cache.cluster_id, self.sign)
        proof = self.proof_of_life(signed, incarnation) if incarnation else b""
        claim = self.verified_cache.own_claim(signed, data, incarnation, proof)
        self.roster.put(claim, now)
        self.changed_s = now
        self.rumours.membership.add(("record", claim.handle), claim.item, claim.handle)
        if proof:
            self.rumours.membership.add(("alive", claim.handle), proof, claim.handle, urgent=True)

    def raise_incarnation(self, incarnation: int, now: float) -> None:
        """Contradict every accusation below ``incarnation``."""
        own = self.own
        proof = self.proof_of_life(own.record, incarnation)
        self.roster.put(self.verified_cache.raised(own, incarnation, proof), now)
        self.changed_s = now
        self.rumours.membership.add(("alive", own.handle), proof, own.handle, urgent=True)
        self.gossip_due = True

    def proof_of_life(self, record: Record, incarnation: int) -> bytes:
        """A signed ALIVE item."""
        part = claim_part(self.own.handle, record.boot, incarnation)
        return item(ALIVE, part + self.sign(ALIVE_LABEL + self.verified_cache.cluster_id + part))

    # ---- what others may see

    def member(self, claim: Claim) -> Member:
        """A row of the view."""
        handle = claim.handle
        gone = self.roster.gone.get(handle)
        if gone is not None:
            return Member(claim.record, gone.state, claim.incarnation, gone.since_s)
        state = MemberState.SUSPECT if handle in self.suspected else MemberState.ALIVE
        return Member(claim.record, state, claim.incarnation, self.roster.since.get(handle, self.started_s))
