"""Our subscriptions at peers: which were asked for, which are current, and when to ask again.

What lives here: the table, its rules, and the only retry clock of a question. What does not: whom to listen to, and
whether the silence of a peer that has answered means anything (the planner); sending.

========  =======================================  ==============================================================
state     means                                    leaves it by
========  =======================================  ==============================================================
asked     the question is out, or will be when     Holdings: current. ``resubscribe_s`` without an answer: asked
          the connection is up                     again, and so for ever
current   each delta's number was one more than    another number (a gap), a connection that comes up, or a question
          the one before                           of the planner: asked
========  =======================================  ==============================================================

A gap is mended by a new answer with everything, there is no replay. Deltas that come while a subscription is asked are
still passed on, for each states a fact of its own. When a connection comes up everything at that peer is asked for
again: the peer may have restarted and know nothing of us.
"""

from __future__ import annotations

import math

from msgspec import Struct

from gossipd.core.ids import DeploymentId
from membership.member import NodeId


class Subscription(Struct):
    """One deployment at one peer."""

    asked_s: float
    stream: int | None = None
    number: int | None = None
    """Of the last Holdings or Delta heard; None while asked."""


class SubscriptionTable:
    """All subscriptions of this host. Bounded by what the planner wants."""

    def __init__(self, *, resubscribe_s: float) -> None:
        self._resubscribe_s = resubscribe_s
        self._by_peer: dict[NodeId, dict[DeploymentId, Subscription]] = {}
        self._streams: dict[tuple[NodeId, int], DeploymentId] = {}
        self._asked: dict[tuple[NodeId, DeploymentId], Subscription] = {}
        self._due_s = math.inf  # no question is due earlier
        self.counters = {"gaps": 0, "repeated": 0, "unasked": 0}

    def ask(self, peer: NodeId, deployment: DeploymentId, now: float) -> None:
        """A new subscription, or a new question about one; the caller sends Subscribe."""
        subscription = self._by_peer.setdefault(peer, {}).setdefault(deployment, Subscription(now))
        subscription.asked_s = now
        self._wait(peer, deployment, subscription)

    def end(self, peer: NodeId, deployment: DeploymentId) -> bool:
        """Listen no more; True when we did."""
        subscriptions = self._by_peer.get(peer, {})
        subscription = subscriptions.pop(deployment, None)
        if not subscriptions:
            self._by_peer.pop(peer, None)
        if subscription is None:
            return False
        self._asked.pop((peer, deployment), None)
        self._unmap(peer, deployment, subscription)
        return True

    def end_peer(self, peer: NodeId) -> None:
        """The peer is gone."""
        for deployment in self.of(peer):
            self.end(peer, deployment)

    def end_deployment(self, deployment: DeploymentId) -> list[NodeId]:
        """The deployment is closed here: returns where it was subscribed to."""
        peers = [peer for peer, subscriptions in self._by_peer.items() if deployment in subscriptions]
        for peer in peers:
            self.end(peer, deployment)
        return peers

    def of(self, peer: NodeId) -> tuple[DeploymentId, ...]:
        """The deployments that we listen to at ``peer``."""
        return tuple(self._by_peer.get(peer, ()))

    def has_any(self, peer: NodeId) -> bool:
        """True when we listen to any deployment at ``peer``."""
        return peer in self._by_peer

    def hear_holdings(self, peer: NodeId, deployment: DeploymentId, stream: int, number: int) -> bool:
        """Holdings came; False when they were not asked for."""
        subscription = self._by_peer.get(peer, {}).get(deployment)
        if subscription is None:
            self.counters["unasked"] += 1
            return False
        self._unmap(peer, deployment, subscription)
        self._asked.pop((peer, deployment), None)
        subscription.stream, subscription.number = stream, number
        self._streams[peer, stream] = deployment
        return True

    def hear_delta(self, peer: NodeId, stream: int, number: int, now: float) -> tuple[DeploymentId | None, bool]:
        """The deployment that a delta is about (None: we do not listen), and whether to ask for new Holdings now."""
        deployment = self._streams.get((peer, stream))
        subscription = None if deployment is None else self._by_peer.get(peer, {}).get(deployment)
        if deployment is None or subscription is None:
            self.counters["unasked"] += 1
            return None, False
        if subscription.number is None:
            return deployment, False
        if number == subscription.number + 1:
            subscription.number = number
            return deployment, False
        self.counters["gaps"] += 1
        # Asked a moment ago: the clock does it, and a peer that loses much costs no storm of questions.
        may_ask = now >= subscription.asked_s + self._resubscribe_s
        if may_ask:
            subscription.asked_s = now
        self._wait(peer, deployment, subscription)
        return deployment, may_ask

    def link_up(self, peer: NodeId, now: float) -> tuple[DeploymentId, ...]:
        """The connection to ``peer`` is up: what to ask for."""
        for deployment in self.of(peer):
            self.ask(peer, deployment, now)
        return self.of(peer)

    def due(self, now: float) -> list[tuple[NodeId, DeploymentId]]:
        """The questions that were asked too long ago without an answer; they count as asked now."""
        if now < self._due_s:
            return []
        found = [key for key, one in self._asked.items() if now >= one.asked_s + self._resubscribe_s]
        for key in found:
            self._asked[key].asked_s = now
        self.counters["repeated"] += len(found)
        oldest_s = min((one.asked_s for one in self._asked.values()), default=math.inf)
        self._due_s = oldest_s + self._resubscribe_s
        return found

    def next_deadline(self) -> float:
        """When ``due`` should be called; it may find nothing then."""
        return self._due_s if self._asked else math.inf

    def _wait(self, peer: NodeId, deployment: DeploymentId, subscription: Subscription) -> None:
        subscription.number = None
        self._asked[peer, deployment] = subscription
        self._due_s = min(self._due_s, subscription.asked_s + self._resubscribe_s)

    def _unmap(self, peer: NodeId, deployment: DeploymentId, subscription: Subscription) -> None:
        """Forget the stream's meaning, unless a peer that restarted has given it another one since."""
        if subscription.stream is not None and self._streams.get((peer, subscription.stream)) == deployment:
            del self._streams[peer, subscription.stream]
