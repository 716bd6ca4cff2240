"""The items of a datagram: each is handed to the part that judges it, and bad ones are counted against their sender.

What lives here: the split by kind of item, and the budgets of senders whose words turn out badly signed. What does not:
the datagram around the items (``swim``), their bytes (``wire``), and what a part makes of one (``judge``,
``record_merger``, ``event_store``, ``forgets``).
"""

from __future__ import annotations

from collections.abc import Hashable

from membership import wire
from membership.errors import WireError
from membership.event_store import EventStore
from membership.forgeries import ForgeryBudgets
from membership.forgets import Forgets
from membership.judge import Judge
from membership.member import NodeId
from membership.node import MembershipNode
from membership.record_merger import RecordMerger

_FORGERIES = (32.0, 2.0)  # badly signed words of one sender that are checked: at once, and in a second
_REFUSED_EVENTS = (256.0, 50.0)  # likewise; hosts differ in whom they trust, so an honest relay may bring some


class ItemDispatcher:
    """One per brain. ``source`` is who pays for the datagram at hand, see ``forgeries``."""

    def __init__(
        self, node: MembershipNode, judge: Judge, record_merger: RecordMerger, event_store: EventStore, forgets: Forgets
    ) -> None:
        self._node = node
        self._judge = judge
        self._record_merger = record_merger
        self._event_store = event_store
        self._forgets = forgets
        self._forgeries = ForgeryBudgets(*_FORGERIES)
        self._refused_events = ForgeryBudgets(*_REFUSED_EVENTS)
        self.source: Hashable = None

    def is_source_spent(self, now: float) -> bool:
        """Whether no signature of this source is checked at the moment."""
        return self._forgeries.is_spent(self.source, now)

    def charge_source(self, now: float) -> None:
        """A datagram of this source was badly signed."""
        self._forgeries.charge(self.source, now)

    def take(self, items: list[bytes], now: float, forwarder: NodeId, *, relay: bool = True) -> None:
        """``relay``: what is new is passed on."""
        cache, counts = self._node.verified_cache, self._node.counts
        for data in items:
            budgets = self._refused_events if data[0] == wire.EVENT else self._forgeries
            if budgets.is_spent(self.source, now):
                counts["dropped_forgers"] += 1
                continue
            checked = cache.verifications
            try:
                if not self._take_item(data, now, forwarder, relay=relay):
                    budgets.charge(self.source, now)
            except WireError:
                counts["dropped_bad_items"] += 1
                if cache.verifications > checked:
                    budgets.charge(self.source, now)

    def _take_item(self, data: bytes, now: float, forwarder: NodeId, *, relay: bool) -> bool:
        """False when it is an event that the host's rules refuse."""
        kind = data[0]
        if kind == wire.ACCUSE:
            self._judge.on_accuse(data, now, relay=relay)
        elif kind == wire.EVENT:
            return self._event_store.on_event(data, now, forwarder, relay=relay)
        elif kind == wire.RECORD:
            self._record_merger.on_record(data[wire.ITEM_HEAD_BYTES :], now, relay=relay)
        elif kind == wire.ALIVE:
            self._judge.on_alive(data, now, relay=relay)
        elif kind == wire.NOTICE:
            self._judge.on_notice(data, now)
        elif kind == wire.LEAVE:
            self._record_merger.on_leave(data, now, relay=relay)
        elif kind == wire.ROSTER:
            self._record_merger.on_roster_item(data, now)
        elif kind == wire.FORGET:
            self._forgets.on_forget(data, now)
        else:
            self._node.counts["dropped_unknown_items"] += 1
        return True
