"""Which nodes are on the roster: records, goodbyes, forgetting.

Of two records of a member the higher boot wins, then the higher version, then the larger bytes, so that merging
commutes even if a member lies. A goodbye is final for its life. A member known by hearsay only (from the roster of an
earlier life, or another node's list) lives as soon as any node says so; one that this node declared dead does not.
"""

from __future__ import annotations

from dataclasses import replace

from membership import wire
from membership.errors import WireError
from membership.events import MemberChanged, MemberForgotten, MemberLeft, MemberUp, NameConflict
from membership.judge import Judge
from membership.member import Handle, MemberState
from membership.node import FORGET_LABEL, LEAVE_LABEL, MembershipNode
from membership.record import BOOT_MAX, VERSION_MAX
from membership.roster import Gone
from membership.tombstones import Tombstones
from membership.verified_cache import Claim

# Another process with our key may have used up the versions of this boot; half are then left for our own changes.
_VERSION_SPENT = VERSION_MAX // 2


class RecordMerger:
    """One per brain."""

    def __init__(self, node: MembershipNode, judge: Judge) -> None:
        self._node = node
        self._roster = node.roster
        self._judge = judge
        self.tombstones = Tombstones(node.settings.tombstone_count_max, node.settings.tombstone_keep_s)

    # ---- records

    def on_record(self, data: bytes, now: float, *, relay: bool = True, direct: bool = False) -> Claim | None:
        """Merge a record (bytes); ``direct`` when its owner asks to be admitted. Returns the claim that is held now."""
        node, roster = self._node, self._roster
        claim = node.verified_cache.first_claim(data)
        handle = claim.handle
        if handle == roster.own.handle:
            self._on_own_record(claim, now)
            return roster.own
        old = roster.claims.get(handle)
        if old is None:
            return self._on_new_member(claim, now, relay=relay, direct=direct)
        if old.node != claim.node:
            node.counts["handle_collisions"] += 1
            return None
        if claim.rank() <= old.rank():
            gone = roster.gone.get(handle)
            if gone is not None and gone.hearsay and claim.record_bytes == old.record_bytes:
                roster.put(old, now)
                self._note(old, now, relay=False)
                node.tell(MemberUp(node.member(old)))
            elif claim.record_bytes == old.record_bytes:
                node.rumours.membership.heard_again(("record", handle))
            return old
        was_gone = roster.gone.get(handle)
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

    def _on_new_member(self, claim: Claim, now: float, *, relay: bool, direct: bool) -> Claim | None:
        node = self._node
        if len(self._roster.claims) >= node.settings.member_count_max:
            node.counts["members_refused_full"] += 1
            return None
        if self.tombstones.blocks(claim.handle, claim.record.boot, now):
            if not direct:
                node.counts["buried_records"] += 1
                return None
            self.tombstones.lift(claim.handle)
        self._roster.put(claim, now)
        self._note(claim, now, relay=relay)
        if claim.record.name == self._roster.own.record.name:
            node.tell(NameConflict(claim.record.name, claim.node))
        node.tell(MemberUp(node.member(claim)))
        return claim

    def _note(self, claim: Claim, now: float, *, relay: bool) -> None:
        self._node.changed_s = now
        if relay:
            self._node.rumours.membership.add(("record", claim.handle), claim.item)

    def _on_own_record(self, heard: Claim, now: float) -> None:
        """A newer record of this node is about: it lost its state, or another process uses its key."""
        own = self._node.own
        if heard.rank() <= own.rank() or heard.record_bytes == own.record_bytes:
            return
        self._node.counts["own_record_outdone"] += 1
        version = max(heard.record.version, own.record.version) + 1
        if heard.record.boot > own.record.boot or version > _VERSION_SPENT:
            record = replace(own.record, boot=min(BOOT_MAX, heard.record.boot + 1), version=1)
            self._node.resign(record, 0, now)
        else:
            self._node.resign(replace(own.record, version=version), own.incarnation, now)

    def on_roster_item(self, data: bytes, now: float) -> None:
        """A member that another node holds on its roster as not alive. New only if this node never heard of it."""
        state, _, record = wire.parse_roster(data)
        claim = self._node.verified_cache.first_claim(record)
        handle = claim.handle
        if handle in self._roster.claims or self.tombstones.blocks(handle, claim.record.boot, now):
            return
        if len(self._roster.claims) >= self._node.settings.member_count_max:
            return
        # Not an adopted verdict: the member was never alive here, and any sign of life of its own raises it.
        left = state == wire.STATE_LEFT
        self._roster.put(claim, now, Gone(MemberState.LEFT if left else MemberState.DEAD, now, hearsay=not left))

    # ---- goodbye and forgetting

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
            node.rumours.membership.add(("leave", handle), data)
            node.gossip_due = True
        if gone is None:
            node.tell(MemberLeft(node.member(claim)))

    def forget(self, handle: Handle, now: float) -> None:
        """Take a member that is not alive off the roster, everywhere."""
        node = self._node
        claim = self._roster.claims[handle]
        part = wire.forget_part(node.own.handle, handle, claim.record.boot)
        data = wire.item(wire.FORGET, part + node.sign(FORGET_LABEL + node.verified_cache.cluster_id + part))
        self.remove(handle, now)
        node.rumours.membership.add(("forget", handle), data)

    def on_forget(self, data: bytes, now: float) -> None:
        """A signed statement that a member is off the roster. A living member is not forgotten, whatever the issuer."""
        node, roster = self._node, self._roster
        issuer, subject, boot = wire.parse_forget(data)
        claim, issuing = roster.claims.get(subject), roster.claims.get(issuer)
        if claim is None or issuing is None or subject not in roster.gone or claim.record.boot > boot:
            return
        part, signature = wire.signed_parts(data)
        message = FORGET_LABEL + node.verified_cache.cluster_id + part
        if not node.verified_cache.is_signed(data, issuing.record.public_key, message, signature):
            raise WireError("a FORGET of somebody else's making")
        self.remove(subject, now)
        node.rumours.membership.add(("forget", subject), data)

    def remove(self, handle: Handle, now: float) -> None:
        """Take a member off the roster here, with a tombstone."""
        claim = self._roster.claims[handle]
        self._judge.drop_suspicion(handle)
        self._roster.remove(handle)
        self.tombstones.add(handle, claim.record.boot, now)
        self._node.tell(MemberForgotten(claim.node, claim.record.name))
