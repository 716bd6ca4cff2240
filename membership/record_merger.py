"""Which nodes are on the roster: records, goodbyes, forgetting.

Of two records of a member the higher boot wins, then the higher version, then the larger bytes, so that merging
commutes even if a member lies. A goodbye is final for its life. A member known by hearsay only (from the roster of an
earlier life, or another node's list) lives as soon as any node says so; one that this node declared dead does not.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import NamedTuple

from membership import wire
from membership.errors import WireError
from membership.events import MemberChanged, MemberForgotten, MemberLeft, MemberUp, NameConflict
from membership.judge import Judge
from membership.member import Address, Handle, MemberState
from membership.node import FORGET_LABEL, LEAVE_LABEL, MembershipNode
from membership.record import VERSION_MAX
from membership.roster import Gone
from membership.tombstones import Tombstones
from membership.verified_cache import Claim

# Another process with our key may have used up the versions of this boot; half are then left for our own changes.
_VERSION_SPENT = VERSION_MAX // 2
_NEIGHBOURS_MAX = 2  # members at one address
_FORGET_WAIT_S = 300.0  # the longest wait of a slow node for its own verdict, and some
_FORGET_LOOK_S = 1.0
_FORGETS_MAX = 1024


class _Forget(NamedTuple):
    """A FORGET whose subject still lives here."""

    data: bytes
    issuer: Handle
    boot: int
    until_s: float


class RecordMerger:
    """One per brain."""

    def __init__(self, node: MembershipNode, judge: Judge) -> None:
        self._node = node
        self._roster = node.roster
        self._judge = judge
        self._forgets: dict[Handle, _Forget] = {}  # that wait for our own verdict, oldest first
        self.tombstones = Tombstones(node.settings.tombstone_count_max, node.settings.tombstone_keep_s)

    # ---- records

    def on_record(self, data: bytes, now: float, *, relay: bool = True, asker: Address | None = None) -> Claim | None:
        """Merge a record (bytes); ``asker`` is from where its owner asks to be admitted, None when others tell of it.
        Returns the claim that is held now."""
        node, roster = self._node, self._roster
        claim = node.verified_cache.first_claim(data)
        handle = claim.handle
        if not node.is_boot_possible(claim.record.boot, handle):
            return None
        if handle == roster.own.handle:
            self._on_own_record(claim, now)
            return roster.own
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
        if len(self._roster.claims) >= node.settings.member_count_max:
            node.counts["members_refused_full"] += 1
            return None
        if self.tombstones.blocks(claim.handle, claim.record.boot, now) and asker is None:
            node.counts["buried_records"] += 1
            return None
        if not self._has_place(claim, now, asker):
            return None
        self.tombstones.lift(claim.handle)
        self._roster.put(claim, now)
        self._note(claim, now, relay=relay)
        if claim.record.name == self._roster.own.record.name:
            node.tell(NameConflict(claim.record.name, claim.node))
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
                self.remove(handle, now)
                return True
        self._node.counts["members_refused_address"] += 1
        return False

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
            record = replace(own.record, boot=max(heard.record.boot, own.record.boot) + 1, version=1)
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
        if not self._node.is_boot_possible(claim.record.boot, handle):
            return
        if len(self._roster.claims) >= self._node.settings.member_count_max:
            return
        if not self._has_place(claim, now, None):
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
        """A signed statement that a member is off the roster. A living member is not forgotten, whatever the issuer:
        the word waits for this node's own verdict, because its issuer may have come to it sooner."""
        node, roster = self._node, self._roster
        issuer, subject, boot = wire.parse_forget(data)
        claim, issuing = roster.claims.get(subject), roster.claims.get(issuer)
        if claim is None or issuing is None or claim is roster.own or claim.record.boot > boot:
            return
        if subject in self._forgets or not node.is_boot_possible(boot, subject):
            return
        part, signature = wire.signed_parts(data)
        message = FORGET_LABEL + node.verified_cache.cluster_id + part
        if not node.verified_cache.is_signed(data, issuing.record.public_key, message, signature):
            raise WireError("a FORGET of somebody else's making")
        self._forgets[subject] = _Forget(data, issuer, boot, now + _FORGET_WAIT_S)
        if len(self._forgets) == 1:
            node.at(now + _FORGET_LOOK_S, self._look_at_forgets)
        if len(self._forgets) > _FORGETS_MAX:
            loudest = Counter(one.issuer for one in self._forgets.values()).most_common(1)[0][0]
            del self._forgets[next(one for one, word in self._forgets.items() if word.issuer == loudest)]
        self._carry_out_forgets(now)
        node.counts["forgets_kept_back"] += subject in self._forgets

    def _look_at_forgets(self, now: float) -> None:
        self._carry_out_forgets(now)
        if self._forgets:
            self._node.at(now + _FORGET_LOOK_S, self._look_at_forgets)

    def _carry_out_forgets(self, now: float) -> None:
        for subject, word in list(self._forgets.items()):
            claim = self._roster.claims.get(subject)
            is_meant = claim is not None and claim.record.boot <= word.boot
            if is_meant and subject in self._roster.gone:
                self.remove(subject, now)
                self._node.rumours.membership.add(("forget", subject), word.data)
            elif is_meant and now < word.until_s:
                continue
            del self._forgets[subject]

    def remove(self, handle: Handle, now: float) -> None:
        """Take a member off the roster here, with a tombstone."""
        claim = self._roster.claims[handle]
        self._judge.drop_suspicion(handle)
        self._roster.remove(handle)
        self.tombstones.add(handle, claim.record.boot, now)
        self._node.tell(MemberForgotten(claim.node, claim.record.name))
