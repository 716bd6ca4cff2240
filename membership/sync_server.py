"""The answering side of anti-entropy: lists what this node has where hashes differ, and sends what is asked for.

A budget of datagrams per second bounds all of it, so that a thousand joiners do not drown the few members that they
know; a peer beyond the budget is told so at once and asks another one. Each member has a share of it.
"""

from __future__ import annotations

import struct

from membership import wire
from membership.digest import BUCKET_COUNT
from membership.errors import WireError
from membership.event_store import EventStore
from membership.member import MemberState
from membership.node import MembershipNode
from membership.seal import BODY_BYTES_MAX
from membership.shares import Shares
from membership.sync_rows import LOW, ROW, pack_rows
from membership.verified_cache import Claim

HASHES = struct.Struct(f">{BUCKET_COUNT}I")
ASK_BYTES = wire.SEQUENCE_HEAD.size + HASHES.size
WANT_ROW = struct.Struct(">8sB")
_SHARE = 1 / 8  # of the last half of the budget, for one member: a lone joiner has all of the first half
LISTS_MAX = 24  # list datagrams per answer: 2,000 rows


class SyncServer:
    """One per brain."""

    def __init__(self, node: MembershipNode, event_store: EventStore, now: float) -> None:
        self._node = node
        self._event_store = event_store
        self._tokens = node.settings.sync_datagrams_burst
        self._tokens_at = now
        settings = node.settings
        self._shares = Shares(
            burst=_SHARE * settings.sync_datagrams_burst, per_s=_SHARE * settings.sync_datagrams_per_s
        )

    def on_ask(self, body: bytes, peer: Claim, now: float) -> None:
        """List what this node has in the buckets that differ."""
        node = self._node
        _, sequence = wire.SEQUENCE_HEAD.unpack_from(body)
        if len(body) < ASK_BYTES:
            raise WireError("a SYNC_ASK of the wrong size")
        if not self._take_tokens(2, peer, now):
            node.send_bare(peer, wire.SEQUENCE_HEAD.pack(wire.BUSY, sequence))
            return
        theirs = HASHES.unpack_from(body, wire.SEQUENCE_HEAD.size)
        ours = node.roster.digest.bucket_hashes()
        differing = [index for index in range(BUCKET_COUNT) if ours[index] != theirs[index]]
        turn = int(node.rng.random() * len(differing)) if differing else 0
        rows: dict[int, list[bytes]] = {index: [] for index in differing[turn:] + differing[:turn]}
        for claim in node.roster.claims.values():
            if claim.bucket in rows:
                mark = claim.mark if claim.handle not in node.roster.gone else claim.mark & ~LOW
                rows[claim.bucket].append(ROW.pack(claim.handle, mark))
        for bucket, row_id, mark in self._event_store.rows():
            if bucket in rows:
                rows[bucket].append(ROW.pack(row_id, mark))
        head = wire.SEQUENCE_HEAD.pack(wire.SYNC_LIST, sequence)
        for number, part in enumerate(pack_rows(rows, BODY_BYTES_MAX - len(head))):
            if number >= LISTS_MAX or (number and not self._take_tokens(1, peer, now)):
                break
            node.send_bare(peer, head + part)

    def on_want(self, body: bytes, peer: Claim, now: float) -> None:
        """Send what was asked for, as far as the budgets go."""
        at = wire.SEQUENCE_HEAD.size
        if (len(body) - at) % WANT_ROW.size:
            raise WireError("a SYNC_WANT of the wrong size")
        items: list[bytes] = []
        for row_id, what in WANT_ROW.iter_unpack(body[at:]):
            items += self.items_of(row_id, what)
        self.send_items(peer, items, now)

    def items_of(self, row_id: bytes, what: int) -> list[bytes]:
        """The items to send about one row."""
        roster = self._node.roster
        claim = roster.claims.get(row_id)
        if claim is None:
            statement = self._event_store.item_of(row_id)
            return [] if statement is None else [statement]
        gone = roster.gone.get(row_id)
        if gone is None:
            wanted = [claim.item] if what & wire.WANT_RECORD else []
            return [*wanted, claim.proof] if claim.proof else wanted
        state = wire.STATE_LEFT if gone.state is MemberState.LEFT else wire.STATE_DEAD
        listed = wire.roster(state, claim.incarnation, claim.record_bytes)
        if what & wire.WANT_RECORD:
            return [listed, *gone.evidence]
        # It lives there, perhaps at an incarnation so far behind that the accusations alone would be refused.
        return [claim.proof, *gone.evidence] if claim.proof and gone.evidence else list(gone.evidence)

    def send_items(self, peer: Claim, items: list[bytes], now: float) -> None:
        """Send the items in as few datagrams as hold them, as far as the budget goes."""
        parts: list[bytes] = [bytes((wire.ITEMS,))]
        size = 1
        for data in items:
            if size + len(data) > BODY_BYTES_MAX:
                if not self._take_tokens(1, peer, now):
                    return
                self._node.send_bare(peer, b"".join(parts))
                parts, size = [bytes((wire.ITEMS,))], 1
            parts.append(data)
            size += len(data)
        if size > 1 and self._take_tokens(1, peer, now):
            self._node.send_bare(peer, b"".join(parts))

    def _take_tokens(self, count: int, peer: Claim, now: float) -> bool:
        settings = self._node.settings
        gained = (now - self._tokens_at) * settings.sync_datagrams_per_s
        self._tokens = min(settings.sync_datagrams_burst, self._tokens + gained)
        self._tokens_at = now
        is_scarce = self._tokens < settings.sync_datagrams_burst / 2
        if self._tokens < count or (is_scarce and not self._shares.take(peer.handle, now, count)):
            self._node.counts["sync_budget_used_up"] += 1
            return False
        self._tokens -= count
        return True
