"""Takes records and goodbyes into the roster: who is a member, which of two records wins, whose name is free. What does
not live here: forgetting (``forgets``).

Of two records of a member the higher boot wins, then the higher version, then the larger bytes, so that merging
commutes even if a member lies. A goodbye is final for its life. A member known by hearsay only (from the roster of an
earlier life, or another node's list) lives as soon as any node says so; one that this node declared dead does not.

A member can tell of any number of others that do not exist. So where the roster is full, or an address has as many
members as it may have, a node that speaks for itself from the address in its record takes the place of one that never
answered.
"""

from __future__ import annotations

import math
from collections import OrderedDict

from msgspec.structs import replace

from membership import wire
from membership.errors import WireError
from membership.events import MemberChanged, MemberLeft, MemberUp, NameConflict, OwnRecordOutdone
from membership.forgets import Forgets
from membership.judge import Judge
from membership.member import Address, Handle, MemberState
from membership.node import LEAVE_LABEL, MembershipNode
from membership.record import BOOT_MAX
from membership.roster import Gone
from membership.verified_cache import Claim

_NEIGHBOURS_MAX = 2  # members at one address
_OUTDO_PAUSE_S, _OUTDO_PAUSE_MAX_S = 1.0, 60.0  # two processes with one key must not fill the network with records
_MOVED_MAX = 256


class RecordMerger:
    """One per brain."""

    def __init__(self, node: MembershipNode, judge: Judge, forgets: Forgets) -> None:
        self._node = node
        self._roster = node.roster
        self._judge = judge
        self._forgets = forgets
        self._outdone: Claim | None = None  # the newest record of another process with our key
        self._outdo_s, self._outdo_pause_s = -math.inf, _OUTDO_PAUSE_S
        self._moved: OrderedDict[Handle, Address] = OrderedDict()  # where members were before

    # ---- records

    def on_record(self, data: bytes, now: float, *, relay: bool = True, asker: Address | None = None) -> Claim | None:
        """Merge a record (bytes); ``asker`` is from where its owner asks to be admitted, None when others tell of it.
        Returns the claim that is held now."""
        node, roster = self._node, self._roster
        claim = node.verified_cache.first_claim(data)
        handle = claim.handle
        if handle == roster.own.handle:  # this node has signed it: its number was so once, whatever the clock says now
            self._on_own_record(claim, now)
            return roster.own
        if not node.is_boot_possible(claim.record.boot, handle):
            return None
        old = roster.claims.get(handle)
        if old is None:
            return self._on_new_member(claim, now, asker, relay=relay)
        if old.node != claim.node:
            node.counts["handle_collisions"] += 1
            return None
        if claim.rank() <= old.rank():
            self._on_known_record(claim, old, now)
        elif claim.address == old.address or self._has_place(claim, now, asker):
            return self._on_newer_record(claim, old, now, relay=relay)
        return old

    def _on_newer_record(self, claim: Claim, old: Claim, now: float, *, relay: bool) -> Claim:
        node, roster, handle = self._node, self._roster, claim.handle
        was_gone = roster.gone.get(handle)
        if claim.address != old.address:
            self._moved[handle] = old.address
            self._moved.move_to_end(handle)
            if len(self._moved) > _MOVED_MAX:
                self._moved.popitem(last=False)
        if claim.record.boot > old.record.boot:
            self._judge.drop_suspicion(handle)
            roster.put(claim, now)
            event: type[MemberUp | MemberChanged] | None = MemberUp if was_gone else MemberChanged
        else:
            claim = node.verified_cache.raised(claim, old.incarnation, old.proof)
            roster.put(claim, now, was_gone)
            event = None if was_gone else MemberChanged
        self._note(claim, now, relay=relay)
        if event is not None:
            node.tell(event(node.member(claim)))
        return claim

    def _on_known_record(self, claim: Claim, old: Claim, now: float) -> None:
        node, roster = self._node, self._roster
        if claim.record_bytes != old.record_bytes:
            return
        gone = roster.gone.get(old.handle)
        if gone is not None and gone.hearsay:
            roster.put(old, now)
            self._note(old, now, relay=False)
            node.tell(MemberUp(node.member(old)))
        else:
            node.rumours.membership.heard_again(("record", old.handle))

    def _on_new_member(self, claim: Claim, now: float, asker: Address | None, *, relay: bool) -> Claim | None:
        node = self._node
        # A JOIN that somebody has recorded comes from anywhere.
        if asker != claim.address and self._forgets.is_buried(claim.handle, claim.record.boot, now):
            return None
        if not self._has_place(claim, now, asker):
            return None
        if self._is_full() and not (asker == claim.address and self._make_room(now)):
            node.counts["members_refused_full"] += 1
            return None
        self._forgets.tombstones.lift(claim.handle)
        self._roster.put(claim, now)
        self._note(claim, now, relay=relay)
        if claim.record.name == self._roster.own.record.name:
            node.tell(NameConflict(claim.record.name, claim.node, claim.address))
        node.tell(MemberUp(node.member(claim)))
        return claim

    def _has_place(self, claim: Claim, now: float, asker: Address | None) -> bool:
        """Two members may name one address: a host whose key was made again, and the one that it was before. Who never
        answered from there makes room: when it is gone, or for a member that asks from there itself, as do the dead."""
        roster = self._roster
        others = roster.neighbours(claim)
        if len(others) < _NEIGHBOURS_MAX:
            return True
        for handle in others:
            is_gone, is_unheard = handle in roster.gone, not roster.has_answered(handle)
            may_go = is_gone or is_unheard if asker == claim.address else is_gone and is_unheard
            if may_go and handle != roster.own.handle:
                self._forgets.remove(handle, now)
                return True
        self._node.counts["members_refused_address"] += 1
        return False

    def _is_full(self) -> bool:
        return len(self._roster.claims) >= self._node.settings.member_count_max

    def _make_room(self, now: float) -> bool:
        """Of those that never answered the dead go first, then who was heard of last: a node that has just joined has
        heard of most members and of none itself."""
        roster = self._roster
        for handle in (*roster.gone, *reversed(roster.claims)):
            if handle != roster.own.handle and not roster.has_answered(handle):
                self._forgets.remove(handle, now)
                return True
        return False

    def on_own_word(self, data: bytes, address: Address, now: float) -> None:
        """A node that is no member tells its record (bytes) from the address in it: it may have a place where hearsay
        of it has none."""
        claim = self._node.verified_cache.first_claim(data)
        if self._is_full() or len(self._roster.neighbours(claim)) >= _NEIGHBOURS_MAX:
            self.on_record(data, now, asker=address)

    def _note(self, claim: Claim, now: float, *, relay: bool) -> None:
        self._node.changed_s = now
        if relay:
            self._node.rumours.membership.add(("record", claim.handle), claim.item, claim.handle)

    def _on_own_record(self, heard: Claim, now: float) -> None:
        """A newer record of this node is about: it lost its state, or another process uses its key. The first is
        answered at once, the second at most once a minute: neither gives way, and others see both."""
        own, node = self._node.own, self._node
        if heard.rank() <= own.rank() or heard.record_bytes == own.record_bytes or heard.record.boot >= BOOT_MAX:
            return
        if self._outdone is not None and heard.rank() <= self._outdone.rank():
            return
        node.counts["own_record_outdone"] += 1
        node.tell(OwnRecordOutdone(own.record, heard.address))
        is_waiting, self._outdone = self._outdone is not None, heard
        if now >= self._outdo_s:
            self._outdo(now)
        elif not is_waiting:
            node.at(self._outdo_s, self._outdo)

    def _outdo(self, now: float) -> None:
        """Say again what this node says of itself, with a higher rank than the other process did."""
        heard, self._outdone = self._outdone, None
        own = self._node.own
        if heard is None or heard.rank() <= own.rank():
            return
        is_calm = now - self._outdo_s > 10 * _OUTDO_PAUSE_MAX_S
        self._outdo_pause_s = _OUTDO_PAUSE_S if is_calm else min(2 * self._outdo_pause_s, _OUTDO_PAUSE_MAX_S)
        self._outdo_s = now + self._outdo_pause_s
        # Not a higher version of one boot: two processes that began in one second use up the same counters.
        self._node.resign(replace(own.record, boot=heard.record.boot + 1, version=1), 0, now)

    def was_at(self, handle: Handle, address: Address) -> bool:
        """Whether a member's record named this address before the one it names now."""
        return self._moved.get(handle) == address

    def on_roster_item(self, data: bytes, now: float) -> None:
        """A member that another node holds on its roster as not alive. New only if this node never heard of it."""
        state, _, record = wire.parse_roster(data)
        claim = self._node.verified_cache.first_claim(record)
        handle = claim.handle
        held = self._roster.claims.get(handle)
        if held is not None and held.record.boot < claim.record.boot and handle != self._roster.own.handle:
            self._on_later_life(claim, record, now)
        if held is not None or self._forgets.is_buried(handle, claim.record.boot, now):
            return
        if not self._node.is_boot_possible(claim.record.boot, handle):
            return
        if self._is_full() or not self._has_place(claim, now, None):
            return
        # Not an adopted verdict: the member was never alive here, and any sign of life of its own raises it.
        left = state == wire.STATE_LEFT
        self._roster.put(claim, now, Gone(MemberState.LEFT if left else MemberState.DEAD, now, hearsay=not left))

    def _on_later_life(self, claim: Claim, record: bytes, now: float) -> None:
        """A life that this node has missed is over elsewhere. Where the former one lives here, the evidence that
        follows judges the new one; where it is gone, the new one is gone, too, until any sign of life."""
        gone = self._roster.gone.get(claim.handle)
        if gone is None:
            self.on_record(record, now, relay=False)
        elif self._node.is_boot_possible(claim.record.boot, claim.handle) and self._has_place(claim, now, None):
            self._roster.put(claim, now, Gone(MemberState.DEAD, gone.since_s, hearsay=True))

    # ---- goodbyes

    def on_leave(self, data: bytes, now: float, *, relay: bool = True) -> None:
        """A member's signed goodbye."""
        node, roster = self._node, self._roster
        handle, boot, _incarnation, part, signature = wire.parse_claim(data)
        claim = roster.claims.get(handle)
        if claim is None or boot != claim.record.boot or handle == roster.own.handle:
            return
        gone = roster.gone.get(handle)
        if gone is not None and gone.state is MemberState.LEFT:
            node.rumours.membership.heard_again(("leave", handle))
            return
        message = LEAVE_LABEL + node.verified_cache.cluster_id + part
        if not node.verified_cache.is_signed(data, claim.record.public_key, message, signature):
            raise WireError("a goodbye of somebody else's making")
        self._judge.drop_suspicion(handle)
        farewell = Gone(MemberState.LEFT, now, (data,))
        if gone is None:
            roster.bury(handle, farewell)
        else:
            roster.gone[handle] = farewell
        node.changed_s = now
        node.rumours.membership.discard(("record", handle))
        if relay:
            node.rumours.membership.add(("leave", handle), data, handle)
            node.gossip_due = True
        if gone is None:
            node.tell(MemberLeft(node.member(claim)))
