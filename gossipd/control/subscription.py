"""Which peers' news we follow, and whether any of it went missing.

What lives here: a table and its rules, without sockets and clock. What does not: whose news is worth following
(the planner), and sending.

A follow is *asked* until Holdings answer it, then *current* while each delta's number is one more than the last.
A gap makes it asked again: one new Holdings, no replay. Deltas heard meanwhile are still passed on, for each states
a fact of its own. An asked follow is asked again after ``resubscribe_s``, and at once when the link to the peer comes
up: the peer may have restarted and know nothing of us.
"""

from __future__ import annotations

from dataclasses import dataclass

from gossipd.core.ids import DeploymentId
from membership.member import NodeId


@dataclass(slots=True)
class _Follow:
    asked_s: float
    stream: int | None = None
    number: int | None = None
    """Of the last news heard; None while asked."""


class SubscriptionTable:
    """All follows of this node."""

    def __init__(self, *, resubscribe_s: float) -> None:
        self._resubscribe_s = resubscribe_s
        self._follows: dict[NodeId, dict[DeploymentId, _Follow]] = {}
        self._streams: dict[tuple[NodeId, int], DeploymentId] = {}
        self.counters = {"gaps": 0, "repeated": 0, "unasked": 0}

    def begin(self, peer: NodeId, deployment: DeploymentId, now: float) -> None:
        """Follow; the caller sends Subscribe."""
        self._follows.setdefault(peer, {})[deployment] = _Follow(asked_s=now)

    def end(self, peer: NodeId, deployment: DeploymentId) -> bool:
        """Follow no more; True when we did."""
        follows = self._follows.get(peer, {})
        follow = follows.pop(deployment, None)
        if not follows:
            self._follows.pop(peer, None)
        if follow is not None:
            self._unmap(peer, deployment, follow)
        return follow is not None

    def forget(self, peer: NodeId) -> None:
        """The peer is gone."""
        for deployment in self.of(peer):
            self.end(peer, deployment)

    def of(self, peer: NodeId) -> tuple[DeploymentId, ...]:
        """The deployments followed at ``peer``."""
        return tuple(self._follows.get(peer, ()))

    def heard_holdings(self, peer: NodeId, deployment: DeploymentId, stream: int, number: int) -> bool:
        """Holdings came; False when nobody asked for them."""
        follow = self._follows.get(peer, {}).get(deployment)
        if follow is None:
            self.counters["unasked"] += 1
            return False
        self._unmap(peer, deployment, follow)
        follow.stream, follow.number = stream, number
        self._streams[peer, stream] = deployment
        return True

    def heard_delta(self, peer: NodeId, stream: int, number: int, now: float) -> tuple[DeploymentId | None, bool]:
        """The deployment a delta is about (None: not followed), and whether to ask for new Holdings now."""
        deployment = self._streams.get((peer, stream))
        follow = None if deployment is None else self._follows.get(peer, {}).get(deployment)
        if follow is None:
            self.counters["unasked"] += 1
            return None, False
        if follow.number is None:
            return deployment, False
        if number == follow.number + 1:
            follow.number = number
            return deployment, False
        self.counters["gaps"] += 1
        follow.number = None
        if now - follow.asked_s < self._resubscribe_s:
            return deployment, False  # asked a moment ago: the next repeat does it, and a lossy peer costs no storm
        follow.asked_s = now
        return deployment, True

    def link_up(self, peer: NodeId, now: float) -> tuple[DeploymentId, ...]:
        """The link to ``peer`` is up: what to ask for."""
        follows = self._follows.get(peer, {})
        for follow in follows.values():
            follow.number, follow.asked_s = None, now
        return tuple(follows)

    def due(self, now: float) -> list[tuple[NodeId, DeploymentId]]:
        """What was asked for too long ago without an answer: ask again."""
        found = []
        for peer, follows in self._follows.items():
            for deployment, follow in follows.items():
                if follow.number is None and now - follow.asked_s >= self._resubscribe_s:
                    follow.asked_s = now
                    self.counters["repeated"] += 1
                    found.append((peer, deployment))
        return found

    def _unmap(self, peer: NodeId, deployment: DeploymentId, follow: _Follow) -> None:
        """Forget the stream's meaning, unless a peer that restarted has given it another one since."""
        if follow.stream is not None and self._streams.get((peer, follow.stream)) == deployment:
            del self._streams[peer, follow.stream]
