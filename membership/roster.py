"""The table of members: the roster, its living members, and a digest of the living.

What lives here: the table, the shuffled probe order, picking at random. What does not: deciding that a member is dead
(``judge``). *Roster* (which nodes belong) and *liveness* are apart: a dead member stays in ``claims`` and gains an
entry in ``gone``; only forgetting removes it. Living members are in the digest, dead ones are not, because two nodes
that forget a dead member at different times must not look different for ever.
"""

from __future__ import annotations

import math
from contextlib import suppress
from ipaddress import ip_address
from random import Random

from msgspec import Struct

from membership.digest import Digest
from membership.member import Address, Handle, MemberState
from membership.verified_cache import Claim

IN_VAIN = 3  # pings: with a tenth lost each way, one member of 150 that lives answers none of so many
_ASKS_APART_S = 0.9


def canonical_address(claim: Claim) -> Address:
    """The address in a record, spelled in one way."""
    host, port = claim.address
    if ":" in host:
        with suppress(ValueError):  # no such address, so nothing is ever sent there
            host = ip_address(host).compressed
    return host, port


class Gone(Struct):
    """Why a member of the roster is not alive. ``evidence`` are the signed items that say so. ``hearsay``: this node
    never judged the member (it comes from the roster of an earlier life, or another node's list), so any node's word
    that it lives is enough."""

    state: MemberState
    since_s: float
    evidence: tuple[bytes, ...] = ()
    hearsay: bool = False


class Roster:
    """One node's table, its own claim included."""

    def __init__(self, own: Claim, rng: Random) -> None:
        self._rng = rng
        self.own = own
        self.claims: dict[Handle, Claim] = {}
        self.gone: dict[Handle, Gone] = {}
        self.since: dict[Handle, float] = {}
        self.racks: dict[str, int] = {}
        self._answered: set[Handle] = set()
        self._is_answered_shared = False  # by a simulator's nodes; copied before it changes
        self._asked: dict[Handle, tuple[int, float]] = {}  # of members that have not answered: pings, and the last one
        self._places: dict[Address, tuple[Handle, ...]] | None = None  # by address, made when it is first wanted
        self.live = 0
        self.digest = Digest()
        self._order: list[Handle] = []
        self._at = 0
        self._heard_at = 0  # in the order: whom ``next_heard`` gave last
        self._count(own, 1)
        self.claims[own.handle] = own

    def put(self, claim: Claim, now: float, gone: Gone | None = None) -> None:
        """Insert or replace; ``gone`` says that the member does not live, None that it does."""
        handle = claim.handle
        old = self.claims.get(handle)
        if old is None:
            self._insert_into_order(handle)
        elif handle not in self.gone:
            self._count(old, -1)
        if old is None or old.address != claim.address:
            self._move(handle, old, claim)
            self.note_answered(handle, False)
        self.claims[handle] = claim
        if gone is None:
            self._count(claim, 1)
            if self.gone.pop(handle, None) is not None or old is None:
                self.since[handle] = now
        else:
            self.gone[handle] = gone
        if claim.node == self.own.node:
            self.own = claim

    def bury(self, handle: Handle, gone: Gone) -> None:
        """A living member is dead or has left."""
        self._count(self.claims[handle], -1)
        self.gone[handle] = gone
        self.since.pop(handle, None)

    def remove(self, handle: Handle) -> None:
        """Take a member off the roster. The probe order drops it in passing."""
        claim = self.claims.pop(handle)
        if self.gone.pop(handle, None) is None:
            self._count(claim, -1)
        self.since.pop(handle, None)
        self.note_answered(handle, False)
        self._asked.pop(handle, None)
        self._move(handle, claim, None)

    def has_answered(self, handle: Handle) -> bool:
        """Whether it has spoken from the address in its record, in this life of ours or an earlier one."""
        return handle in self._answered

    def note_answered(self, handle: Handle, has: bool = True) -> None:
        """A member has spoken from its address; ``has`` false: it has another address now."""
        if has:
            self._asked.pop(handle, None)
        if has is not (handle in self._answered):
            if self._is_answered_shared:
                self._answered, self._is_answered_shared = self._answered.copy(), False
            (self._answered.add if has else self._answered.discard)(handle)

    def note_asked(self, handle: Handle, now: float) -> None:
        """A member was pinged. Pings within a second count as one, because one loss may take them all."""
        if handle in self._answered or handle not in self.claims:
            return
        count, last_s = self._asked.get(handle, (0, -math.inf))
        if now - last_s >= _ASKS_APART_S:
            self._asked[handle] = (count + 1, now)

    def is_unheard(self, handle: Handle) -> bool:
        """Whether a member has never answered, and was pinged ``IN_VAIN`` times or is gone. It may have had several
        addresses meanwhile: a member that one host makes up may move as often as that host likes."""
        if handle in self._answered or handle == self.own.handle or handle not in self.claims:
            return False
        return handle in self.gone or self._asked.get(handle, (0, 0.0))[0] >= IN_VAIN

    def names_borne(self) -> set[str]:
        """The names of living members, but for those that may be made up."""
        return {
            claim.record.name
            for handle, claim in self.claims.items()
            if handle not in self.gone and not self.is_unheard(handle)
        }

    def neighbours(self, claim: Claim) -> list[Handle]:
        """Other members that name the same address."""
        if self._places is None:
            self._places = {}
            for handle, known in self.claims.items():
                self._move(handle, None, known)
        return [handle for handle in self._places.get(canonical_address(claim), ()) if handle != claim.handle]

    def is_live(self, handle: Handle) -> bool:
        """On the roster and not gone (it may be suspected)."""
        return handle in self.claims and handle not in self.gone

    def adopt(self, other: Roster, rng: Random) -> None:
        """Believe what ``other`` believes of all members but this node (for a simulator's warm start)."""
        own = self.own
        claims = other.claims.copy()
        claims[own.handle] = own
        self.claims = claims
        self.gone = other.gone.copy()
        self.racks = other.racks.copy()
        self.live = other.live
        self.digest = other.digest.copy()
        self._places = None
        if not other._is_answered_shared:
            other._answered, other._is_answered_shared = set(other.claims), True
        self._answered, self._is_answered_shared = other._answered, True
        self._order = [handle for handle in claims if handle != own.handle]
        rng.shuffle(self._order)
        self._at = 0

    def next_to_probe(self, *, heard: bool = False) -> Claim | None:
        """The next living member in a shuffled round; each member's turn comes within two rounds. ``heard``: the next
        that has ever answered; the others before it lose their turn."""
        order = self._order
        left = len(order) + 1
        while left:
            left -= 1
            if self._at >= len(order):
                order[:] = [handle for handle in order if handle in self.claims]
                self._rng.shuffle(order)
                self._at = 0
                if not order:
                    return None
            handle = order[self._at]
            self._at += 1
            if self.is_live(handle) and (not heard or handle in self._answered):
                return self.claims[handle]
        return None

    def probe_next(self, handle: Handle) -> None:
        """A member's turn comes before that of all others in this round."""
        order = self._order
        at = order.index(handle)
        if at < self._at:  # it has had its turn, and has another
            self._at -= 1
        order[at], order[self._at] = order[self._at], order[at]

    def pick(self, count: int, avoid: tuple[Handle, ...] = ()) -> list[Claim]:
        """Up to ``count`` different living members at random, never this node."""
        order = self._order
        size = len(order)
        picked: list[Claim] = []
        if not size:
            return picked
        draw = self._rng.random
        gone, claims = self.gone, self.claims
        taken: set[Handle] = set(avoid)
        for _ in range(4 * count + 8):
            handle = order[int(draw() * size)]
            if handle in taken or handle in gone:
                continue
            claim = claims.get(handle)
            if claim is None:
                continue
            taken.add(handle)
            picked.append(claim)
            if len(picked) == count:
                break
        return picked

    def next_heard(self, count: int, avoid: set[Handle]) -> list[Claim]:
        """Up to ``count`` living members that have answered, each in its turn, without those in ``avoid``."""
        order = self._order
        found: list[Claim] = []
        for _ in range(len(order) if count > 0 else 0):
            self._heard_at = (self._heard_at + 1) % len(order)
            handle = order[self._heard_at]
            if handle in self._answered and handle not in avoid and self.is_live(handle):
                found.append(self.claims[handle])
                if len(found) == count:
                    break
        return found

    def pick_helpers(self, count: int, subject: Claim) -> list[Claim]:
        """Helpers that probe ``subject`` too, if possible of different racks, neither ours nor the subject's, and such
        as have answered: a liar's made-up members would say nothing."""
        bad_racks = {subject.record.rack, self.own.record.rack}
        best: list[Claim] = []
        rest: list[Claim] = []
        for claim in self.pick(count * 6, avoid=(subject.handle,)):
            rack = claim.record.rack
            if rack in bad_racks or claim.handle not in self._answered:
                rest.append(claim)
                continue
            bad_racks.add(rack)
            best.append(claim)
            if len(best) == count:
                return best
        # Better a second helper of a rack than none: other racks first, the subject's own and the unheard last.
        rest.sort(key=lambda claim: (claim.handle not in self._answered, claim.record.rack == subject.record.rack))
        return (best + rest)[:count]

    def dead(self) -> list[Handle]:
        """Members to be tried now and then; those that said goodbye are not among them."""
        return [handle for handle, gone in self.gone.items() if gone.state is MemberState.DEAD]

    def _count(self, claim: Claim, sign: int) -> None:
        self.digest.change(claim.bucket, claim.mark * sign)
        rack = claim.record.rack
        left = self.racks.get(rack, 0) + sign
        if left:
            self.racks[rack] = left
        else:
            del self.racks[rack]
        self.live += sign

    def _move(self, handle: Handle, old: Claim | None, new: Claim | None) -> None:
        places = self._places
        if places is None:
            return
        if old is not None:
            left = tuple(other for other in places.pop(canonical_address(old), ()) if other != handle)
            if left:
                places[canonical_address(old)] = left
        if new is not None:
            places[canonical_address(new)] = (*places.get(canonical_address(new), ()), handle)

    def _insert_into_order(self, handle: Handle) -> None:
        # At a random place among those still to come in this round, as SWIM says.
        order = self._order
        at = self._at + int(self._rng.random() * (len(order) - self._at + 1))
        order.append(handle)
        order[at], order[-1] = order[-1], order[at]
