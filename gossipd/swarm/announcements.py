"""What this host tells its neighbours about one deployment, and when: it makes the messages to each subscriber.

What lives here: the subscribers, what each has not been told yet, and the batching. What does not: the form and the
numbers of messages (``control``); the receiver subscribes again when it sees a gap in the numbers.

A chunk is announced when it is stored, or earlier, when enough of it has come for this host to relay the rest; if the
rest does not come, the chunk is announced as lost. Every subscriber hears of every chunk in the end. Urgent is

* for a rack peer: a chunk that it lacks (``told_soon``);
* for the importer of another rack: a chunk that this host read, imported, or is to import for its rack;
* for the other source readers: the start and the end of a read, because they choose their next reads by it; not in the
  midst of a model, where each has further reads under way, unless the read is in another reader's share. Those that
  have subscribed a second time hear of all reads soon: they are to take over reads of this host (``inherited_share``).

Urgent announcements wait for one batch time and then take along all that is pending for the same peer. The others wait
for ``news_lazy_s``, and once more for a peer that was told something lately: an urgent one may take them along. They
wait longer while they are few: where chunks come slowly, each of them would cost a message to every neighbour. The
chunks being read from storage ride on every message. Who may believe that some are hears it when a host that lacks
nothing reads none any more, or others would wait for what it never reads. Of the holders of a chunk only
``early_announcers`` tell a rack peer soon, because further messages bring it nothing new.

One log serves all subscribers, and each subscriber has a position in it. Rejected: a list for each subscriber, because
every stored chunk would cost an entry for every neighbour.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from random import Random

from msgspec import Struct

from gossipd.core.events import SendDelta
from gossipd.core.ids import DeploymentId
from gossipd.swarm.settings import PlannerSettings
from membership.member import NodeId

_ITEMS_MAX = 256  # of one list of a delta; more are split
# Fewer chunks wait for so many times ``news_lazy_s``. Fewer than ``behind_chunks``, or a host would look slow.
FEW_CHUNKS, FEW_WAITS = 6, 3
_LATELY_SHARE = 0.5  # of ``news_lazy_s``: a subscriber that was told something since then waits for the next round


def told_soon(rack_peers: Collection[NodeId], holders: int, early_announcers: int, rng: Random) -> Collection[NodeId]:
    """The rack peers to be told soon, so that each hears from ``early_announcers`` holders of a chunk on average.
    ``rack_peers``: those that lack the chunk. ``holders``: known ones in this rack, this host included."""
    if holders <= early_announcers:
        return rack_peers
    share = early_announcers / holders
    # Sorted, because the order of a set follows a hash seed, and the draws would follow it too.
    return [rack_peer for rack_peer in sorted(rack_peers) if rng.random() < share]


class _Subscriber(Struct):
    told: int  # position in the log up to which this peer has been told
    hears_reads: bool = False  # it may believe that this host reads
    told_s: float = -math.inf
    urgent: bool = False
    asks_again: bool = False  # it was a subscriber, and has subscribed again


class Announcements:
    """Pending announcements of one deployment."""

    def __init__(self, deployment: DeploymentId, settings: PlannerSettings) -> None:
        self._deployment = deployment
        self._planner_settings = settings
        self._subscribers: dict[NodeId, _Subscriber] = {}
        self._log: list[int] = []  # chunks stored, complements of chunks lost
        self._flushed_s = 0.0
        self._lazy_s = 0.0
        self._urgent = False
        self._pending = False
        self._is_end = False
        self.reading: tuple[int, ...] = ()

    @property
    def subscribers(self) -> tuple[NodeId, ...]:
        """The peers that hear our announcements."""
        return tuple(self._subscribers)

    @property
    def are_told(self) -> bool:
        """Whether nobody listens and nothing is read, so that nothing is left to tell."""
        return not self._subscribers and not self.reading and not self._pending

    def subscribe(self, peer: NodeId) -> bool:
        """False when there is no room. The caller sends our holdings, which contain all that is pending; what is being
        read follows soon, because a reader that has lost us would read it, too."""
        is_known = peer in self._subscribers
        if not is_known and len(self._subscribers) >= self._planner_settings.subscribers_max:
            return False
        self._subscribers[peer] = _Subscriber(len(self._log), hears_reads=is_known, asks_again=is_known)
        if self.reading:
            self.hurry([peer])
        self._pending |= self._has_ended()
        return True

    def unsubscribe(self, peer: NodeId) -> None:
        """Announce nothing more to this peer."""
        self._subscribers.pop(peer, None)

    def stored(self, chunk: int, urgent: Iterable[NodeId]) -> None:
        """This chunk can be asked for here from now on. ``urgent``: peers that should hear of it soon; a peer that is
        no subscriber is skipped."""
        if not self._subscribers:
            return
        self._log.append(chunk)
        self._pending = True
        for peer in urgent:
            if (subscriber := self._subscribers.get(peer)) is not None:
                subscriber.urgent = self._urgent = True

    def hurry(self, urgent: Iterable[NodeId], *, is_midst: bool = False) -> None:
        """Tell these peers soon what is being read now, though no chunk is new; in the midst of a model only those that
        have asked again."""
        for peer in urgent:
            subscriber = self._subscribers.get(peer)
            if subscriber is not None and (subscriber.asks_again or not is_midst):
                subscriber.urgent = self._urgent = self._pending = True

    def lost(self, chunk: int) -> None:
        """This host does not hold the chunk (any more). Urgent for subscribers that were told of it: they may ask."""
        if not self._subscribers:
            return
        for subscriber in self._subscribers.values():
            if chunk not in self._log[subscriber.told :]:
                subscriber.urgent = self._urgent = True
        self._log.append(~chunk)
        self._pending = True

    def read(
        self, reading: tuple[int, ...], readers: tuple[NodeId, ...], *, is_midst: bool = False, is_end: bool = False
    ) -> None:
        """Note the chunks that are being read from storage now. ``readers``: the source readers; see ``hurry``.
        ``is_end``: this host lacks nothing, so that no message of a later chunk says that none is read any more."""
        self._is_end = is_end
        if reading == self.reading:
            return
        begun = not set(reading) <= set(self.reading)
        self.reading = reading
        self._pending |= self._has_ended()
        if begun:
            self.hurry(readers, is_midst=is_midst)

    def _has_ended(self) -> bool:
        """Whether nothing is read any more, somebody may believe otherwise, and no chunk is to come."""
        return self._is_end and not self.reading and any(one.hears_reads for one in self._subscribers.values())

    def flush(self, now: float, batch_s: float, free_slots: int) -> list[SendDelta]:
        """The messages that are due."""
        urgent = self._urgent and now >= self._flushed_s + batch_s
        lazy = self._pending and now >= self._lazy_due_s()
        if not urgent and not lazy:
            return []
        groups: dict[int, list[NodeId]] = {}
        has_ended = self._has_ended()
        end, lately_s = len(self._log), now - _LATELY_SHARE * self._planner_settings.news_lazy_s
        # Subscribers at one position of the log get the same message, which is encoded once.
        for peer, subscriber in self._subscribers.items():
            has_news = subscriber.told < end or (has_ended and subscriber.hears_reads)
            if subscriber.urgent or (lazy and has_news and subscriber.told_s <= lately_s):
                groups.setdefault(subscriber.told, []).append(peer)
                subscriber.told, subscriber.told_s, subscriber.urgent = end, now, False
                subscriber.hears_reads = bool(self.reading)
        messages: list[SendDelta] = []
        for told, peers in groups.items():
            added, dropped = _outcome(self._log[told:])
            messages += self._messages(tuple(peers), added, dropped, free_slots)
        self._flushed_s, self._urgent = now, False
        if lazy:
            self._lazy_s = now
            self._forget_told()
        return messages

    def _forget_told(self) -> None:
        """Drop from the log what every subscriber has been told."""
        told = min((subscriber.told for subscriber in self._subscribers.values()), default=len(self._log))
        del self._log[:told]
        for subscriber in self._subscribers.values():
            subscriber.told -= told
        self._pending = bool(self._log) or self._has_ended()

    def _messages(
        self, peers: tuple[NodeId, ...], added: tuple[int, ...], dropped: tuple[int, ...], free_slots: int
    ) -> list[SendDelta]:
        pages = max(1, -(-max(len(added), len(dropped)) // _ITEMS_MAX))
        return [
            SendDelta(
                peers,
                self._deployment,
                added[page * _ITEMS_MAX : (page + 1) * _ITEMS_MAX],
                dropped[page * _ITEMS_MAX : (page + 1) * _ITEMS_MAX],
                self.reading[:_ITEMS_MAX],
                max(0, free_slots),
            )
            for page in range(pages)
        ]

    def next_deadline(self, batch_s: float) -> float | None:
        """When ``flush`` has something to send."""
        if self._urgent:
            return self._flushed_s + batch_s
        return self._lazy_due_s() if self._pending else None

    def _lazy_due_s(self) -> float:
        """When the chunks that are not urgent are told."""
        return self._lazy_s + self._planner_settings.news_lazy_s * (FEW_WAITS if len(self._log) < FEW_CHUNKS else 1)


def _outcome(log: list[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Chunks held now, and chunks held no longer, for a peer that was told everything before this part of the log."""
    if min(log, default=0) >= 0:
        return tuple(log), ()
    was_held: dict[int, bool] = {}
    is_held: dict[int, bool] = {}
    for entry in log:
        chunk = entry if entry >= 0 else ~entry
        was_held.setdefault(chunk, entry < 0)
        is_held[chunk] = entry >= 0
    added = tuple(chunk for chunk, held in is_held.items() if held)
    return added, tuple(chunk for chunk, held in is_held.items() if was_held[chunk] and not held)
