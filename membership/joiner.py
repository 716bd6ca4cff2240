"""Joining a cluster, and admitting other nodes.

A joiner sends its record to one contact after another, with a growing, jittered pause, until a member welcomes it;
again whenever it is alone, and slowly to contacts at whose address it knows no living member. The welcome carries the
contact's record and those of a few random members, so that a thousand joiners find each other and synchronise.

An answer goes to the address that a JOIN came from, which may be false. So the welcome is no longer than the JOIN, but
for the contact's own record: a joiner fills its JOIN up to the length of a whole welcome (as QUIC does). A JOIN that
somebody has recorded, and sends from a third party's address, makes no host send more than it got. Each JOIN admits one
welcome: a member that says welcome all day would else make this node ask all others what it lacks, all day.

A new key is refused the name of a living member, and both nodes are told. A member that is not alive loses its name to
a new key, and leaves the roster.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from membership import wire
from membership.errors import WireError
from membership.events import JoinRefused, NameConflict
from membership.forgets import Forgets
from membership.judge import Judge
from membership.member import HANDLE_BYTES, Address, NodeId
from membership.node import MembershipNode
from membership.record_merger import RecordMerger
from membership.seal import BODY_BYTES_MAX, OpenedDatagram
from membership.synchroniser import Synchroniser
from membership.verified_cache import Claim

_CONTACTS_MAX = 256
_SAMPLE = 3  # records in a welcome beside the contact's: what fits into one datagram
_FLAG_TOLD = 1  # this JOIN tells a member of a namesake that was refused


class Joiner:
    """One per brain."""

    def __init__(
        self, node: MembershipNode, record_merger: RecordMerger, forgets: Forgets, judge: Judge,
        synchroniser: Synchroniser,
    ) -> None:  # fmt: skip
        self._node = node
        self._record_merger = record_merger
        self._forgets = forgets
        self._judge = judge
        self._synchroniser = synchroniser
        self._contacts: list[Address] = []
        self._turn = 0
        self._pause_s = node.settings.join_retry_s
        self._round = 0
        self._is_welcome_due = False
        self.welcomed = False

    def join(self, contacts: Sequence[Address], now: float) -> None:
        """Ask these contacts; a later call replaces the list (a DNS name has another address)."""
        own = self._node.own.address
        self._contacts = [contact for contact in contacts if contact != own][:_CONTACTS_MAX]
        self._node.rng.shuffle(self._contacts)
        self._pause_s = self._node.settings.join_retry_s
        self._round += 1
        self._ask(self._round, now)

    def _ask(self, number: int, now: float) -> None:
        node = self._node
        if number != self._round or node.has_left or not self._contacts:
            return
        settings = node.settings
        settled = self.welcomed and node.roster.live > 1 and not node.isolated
        contacts = self._unmet() if settled else self._contacts
        if settled:
            self._pause_s = settings.join_retry_max_s
        if contacts:
            contact = contacts[self._turn % len(contacts)]
            self._turn += 1
            body = bytes((wire.JOIN, 0)) + node.own.item + node.own.proof
            if not settled:  # else the contact's own record is enough
                body += wire.padding(BODY_BYTES_MAX - len(body))
            node.send_to_address(contact, body, None)
            node.counts["joins_sent"] += 1
            self._is_welcome_due = True
        node.at(now + self._pause_s * (0.75 + 0.5 * node.rng.random()), lambda later: self._ask(number, later))
        self._pause_s = min(settings.join_retry_max_s, self._pause_s * 1.5)

    def _unmet(self) -> list[Address]:
        """Contacts at whose address no living member is known. They may lead to the rest of a cluster that started in
        two halves, of which neither would look for the other."""
        roster = self._node.roster
        met = {claim.address for handle, claim in roster.claims.items() if handle not in roster.gone}
        return [contact for contact in self._contacts if contact not in met]

    def on_join(self, body: bytes, source: NodeId, address: Address, now: float) -> None:
        """Another node asks to be admitted."""
        node, roster = self._node, self._node.roster
        _, flags = wire.BYTE_HEAD.unpack_from(body)
        items = wire.split_items(body, wire.BYTE_HEAD.size)
        if not items or items[0][0] != wire.RECORD:
            raise WireError("a JOIN without a record")
        claim = node.verified_cache.first_claim(items[0][wire.ITEM_HEAD_BYTES :])
        if flags & _FLAG_TOLD:
            if claim.record.name == node.own.record.name and claim.node != node.own.node:
                node.tell(NameConflict(claim.record.name, claim.node, claim.address))
            return
        if claim.node != source:
            raise WireError("a JOIN for somebody else")
        bearer = self._bearer_of(claim, now)
        if bearer is not None:
            self._refuse(bearer, claim, items[0], source, address)
            return
        held = self._record_merger.on_record(items[0][wire.ITEM_HEAD_BYTES :], now, asker=address)
        for data in items[1:]:
            if data[0] == wire.ALIVE:
                self._judge.on_alive(data, now)
        if held is None:
            return
        node.gossip_due = True
        head = wire.WELCOME_HEAD.pack(wire.WELCOME, roster.digest.total, wire.FLAG_AGAIN)
        sample = [node.own.proof, *(known.item + known.proof for known in roster.pick(_SAMPLE, avoid=(held.handle,)))]
        if held.handle in roster.gone:
            sample.insert(0, node.notice_for(held))
        if held.record_bytes != claim.record_bytes:
            sample.insert(0, held.item)
        welcome = head + node.own.item
        for notes in sample:
            if len(welcome) + len(notes) <= len(body):
                welcome += notes
        node.send_to_address(address, welcome, source)

    # ---- nodes that are no members (yet), and speak for themselves with their record first

    def hear_of_sender(self, items: list[bytes], opened: OpenedDatagram, address: Address, now: float) -> None:
        """Before the items are: it was forgotten while it was away, and is back."""
        is_buried = self._forgets.tombstones.blocks(opened.node[:HANDLE_BYTES], opened.boot, now)
        if is_buried and items and items[0][0] == wire.RECORD:
            record = items[0][wire.ITEM_HEAD_BYTES :]
            if self._is_own_word(record, opened, address):
                self._record_merger.on_record(record, now, asker=address)

    def hear_its_own_word(self, items: list[bytes], opened: OpenedDatagram, address: Address, now: float) -> None:
        """After the items were: it is not on the roster after all, perhaps because there is no room for hearsay."""
        is_unknown = opened.node[:HANDLE_BYTES] not in self._node.roster.claims
        if is_unknown and items and items[0][0] == wire.RECORD:
            record = items[0][wire.ITEM_HEAD_BYTES :]
            with suppress(WireError):  # counted already, as one of the items
                if self._is_own_word(record, opened, address):
                    self._record_merger.on_own_word(record, address, now)

    def _is_own_word(self, record: bytes, opened: OpenedDatagram, address: Address) -> bool:
        """Whether the sender's own record says that it is at that address, in that life. Raises WireError."""
        claim = self._node.verified_cache.first_claim(record)
        return claim.node == opened.node and claim.address == address and claim.record.boot == opened.boot

    def _bearer_of(self, claim: Claim, now: float) -> Claim | None:
        """A living member with the same name and another key; dead bearers of the name are forgotten. One that may be
        made up bears no name."""
        roster = self._node.roster
        name = claim.record.name
        for other in list(roster.claims.values()):
            if other.record.name == name and other.node != claim.node:
                if not roster.is_live(other.handle):
                    self._forgets.forget(other.handle, now)
                elif not roster.is_unheard(other.handle):
                    return other
        return None

    def _refuse(self, bearer: Claim, joiner: Claim, joiner_item: bytes, source: NodeId, address: Address) -> None:
        node = self._node
        node.counts["joins_refused"] += 1
        node.send_to_address(address, bytes((wire.REFUSAL, wire.REFUSED_NAME)) + bearer.item, source)
        node.tell(NameConflict(bearer.record.name, source, joiner.address))
        if bearer is not node.own:
            node.send_bare(bearer, bytes((wire.JOIN, _FLAG_TOLD)) + joiner_item)

    def on_welcome(self, peer: Claim, now: float) -> None:
        """A member admitted this node; its records are in force already."""
        if not self._is_welcome_due:
            self._node.counts["welcomes_refused"] += 1
            return
        self._is_welcome_due = False
        self.welcomed = True
        self._node.catching_up = True
        # Not with the contact if it named others, because a thousand joiners would all ask three contacts.
        for other in self._node.roster.pick(1) or [peer]:
            self._synchroniser.start(other, now)

    def on_refusal(self, body: bytes, now: float) -> None:
        """A member refused to admit this node."""
        node = self._node
        items = wire.split_items(body, wire.BYTE_HEAD.size)
        if not items or items[0][0] != wire.RECORD or self.welcomed:
            return
        bearer = node.verified_cache.first_claim(items[0][wire.ITEM_HEAD_BYTES :])
        if bearer.record.name != node.own.record.name or bearer.node == node.own.node:
            return
        self._pause_s = node.settings.join_retry_max_s
        node.tell(NameConflict(bearer.record.name, bearer.node, bearer.address))
        where = bearer.record.contact
        node.tell(JoinRefused(f"the name {bearer.record.name} belongs to a living member at {where}"))
