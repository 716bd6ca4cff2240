"""What this host tells its neighbours about one deployment, and when.

What lives here: the subscribers, what each has not been told yet, and the batching. What does not: the wire
form and numbering of messages (the control hand), which are per pair: it turns a gap into a new subscription.

A chunk is told when it is stored, or before that, when so much of it has come that others can be sent it while the rest
comes; if the rest does not come it is told as lost.

Every subscriber is told everything in the end, in batches. News are urgent for a rack mate that lacks the chunk
(``told_soon``), and for the importer of another rack when this host is a natural origin of the chunk: it read it from
storage, imported it, or is its own rack's first in line. The end of a read is urgent for the other readers too, who
begin the next ones by it: else storage's link is idle for 3 % of the time (1,000 hosts, chunks of 0.2 s, simulation).
Urgent news wait for one batch time, which takes all that is pending for that peer with it; the rest waits for
``news_lazy_s``, or once more where something was told lately, as it is likely to have company sooner (4 messages of 61
a second; 1,000 hosts, chunks of 0.2 s, simulation). What is being read from storage rides on every message and is
urgent for other readers. Subscribers with the same pending news share one command.

A mate need not hear of a chunk from all its holders at once, only from some (``early_announcers``): from the others it
hears with later news. When everybody told everybody two of three messages were of no use: 1,000 hosts in 25 racks are
27.4 chunk times behind with either, and a host sends 20.7 KB/s instead of 29.3 (200 chunks of 0.2 s, simulation).

What happened is one list for all subscribers, and each has its place in it: a chunk stored is one entry, and not one
for each of a hundred neighbours (a list for each took a tenth of the time of a simulation).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from random import Random

from gossipd.core.events import SendDelta
from gossipd.core.ids import DeploymentId
from gossipd.swarm.settings import PlannerSettings
from membership.member import NodeId

_ITEMS_MAX = 256  # of one list of a delta; longer news are split
_LATELY_SHARE = 0.5  # of ``news_lazy_s``: to whom something was told since, the rest is told when it has company


def told_soon(rack_peers: Collection[NodeId], holders: int, early_announcers: int, rng: Random) -> Collection[NodeId]:
    """Which mates that lack a chunk one of its holders tells soon, so that each hears from ``early_announcers`` on
    average.

    Args:
        holders: of the chunk in this rack, as far as is known, the one that tells included.
    """
    if holders <= early_announcers:
        return rack_peers
    share = early_announcers / holders
    # In an order of their own: that of a set follows a hash seed, and with it who would be drawn.
    return [rack_peer for rack_peer in sorted(rack_peers) if rng.random() < share]


class _Subscriber:
    __slots__ = ("told", "told_s", "urgent")

    def __init__(self, told: int) -> None:
        self.told = told  # how much of the log
        self.told_s = -math.inf
        self.urgent = False


class Announcements:
    """Pending news of one deployment."""

    def __init__(self, deployment: DeploymentId, settings: PlannerSettings) -> None:
        self._deployment = deployment
        self._settings = settings
        self._subscribers: dict[NodeId, _Subscriber] = {}
        self._log: list[int] = []  # since all were told last: a chunk for one stored, its complement for one lost
        self._flushed_s = 0.0
        self._lazy_s = 0.0
        self._urgent = False
        self._pending = False
        self.reading: tuple[int, ...] = ()

    @property
    def subscribers(self) -> tuple[NodeId, ...]:
        """Who hears our news."""
        return tuple(self._subscribers)

    def subscribe(self, peer: NodeId) -> bool:
        """False when there is no room. Whoever calls sends our holdings; pending news are part of them."""
        if peer not in self._subscribers and len(self._subscribers) >= self._settings.subscribers_max:
            return False
        self._subscribers[peer] = _Subscriber(len(self._log))
        return True

    def unsubscribe(self, peer: NodeId) -> None:
        """No more news for this peer."""
        self._subscribers.pop(peer, None)

    def stored(self, chunk: int, urgent: Iterable[NodeId]) -> None:
        """A chunk can be asked for here from now on.

        Args:
            urgent: who should hear of it soon; those of them who do not listen are passed over.
        """
        if not self._subscribers:
            return
        self._log.append(chunk)
        self._pending = True
        for peer in urgent:
            if (subscriber := self._subscribers.get(peer)) is not None:
                subscriber.urgent = self._urgent = True

    def hurry(self, urgent: Iterable[NodeId]) -> None:
        """These should hear soon what is being read now, though no chunk is new."""
        for peer in urgent:
            if (subscriber := self._subscribers.get(peer)) is not None:
                subscriber.urgent = self._urgent = self._pending = True

    def lost(self, chunk: int) -> None:
        """A chunk is not held any more, or did not come; urgent for all who were told of it, who may ask for it."""
        if not self._subscribers:
            return
        for subscriber in self._subscribers.values():
            if chunk not in self._log[subscriber.told :]:
                subscriber.urgent = self._urgent = True
        self._log.append(~chunk)
        self._pending = True

    def read(self, reading: tuple[int, ...], readers: tuple[NodeId, ...]) -> None:
        """What is being read from storage now."""
        if reading == self.reading:
            return
        begun = not set(reading) <= set(self.reading)
        self.reading = reading
        if begun:
            self.hurry(readers)

    def flush(self, now: float, batch_s: float, free_slots: int) -> list[SendDelta]:
        """The messages that are due."""
        urgent = self._urgent and now >= self._flushed_s + batch_s
        lazy = self._pending and now >= self._lazy_s + self._settings.news_lazy_s
        if not urgent and not lazy:
            return []
        groups: dict[int, list[NodeId]] = {}
        end, lately_s = len(self._log), now - _LATELY_SHARE * self._settings.news_lazy_s
        for peer, subscriber in self._subscribers.items():
            if subscriber.urgent or (lazy and subscriber.told < end and subscriber.told_s <= lately_s):
                groups.setdefault(subscriber.told, []).append(peer)
                subscriber.told, subscriber.told_s, subscriber.urgent = end, now, False
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
        """Drop from the log what all have been told."""
        told = min((subscriber.told for subscriber in self._subscribers.values()), default=len(self._log))
        del self._log[:told]
        for subscriber in self._subscribers.values():
            subscriber.told -= told
        self._pending = bool(self._log)

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
        return self._lazy_s + self._settings.news_lazy_s if self._pending else None


def _outcome(log: list[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """What to tell whoever was told all that was before: chunks held now, and chunks not held any more."""
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
