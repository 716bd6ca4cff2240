"""Peers that listen to us, per deployment and with our stream numbers, those too that asked early or missed something.

Who listened to a deployment that was closed here, and is opened again, counts as one that asked early. A peer that
counts as lost may live, hear us and believe that it still listens: what it listened to is kept, and it is told
everything again when it is back. One that has restarted meanwhile declines that.

What lives here: tables. What does not: what subscribers are told (the planner), and sending.
"""

from __future__ import annotations

from gossipd.core.ids import DeploymentId
from membership.member import NodeId

STREAMS_MAX = 65_536  # a stream is 16 bits on the wire
LOST_MAX = 1_024  # peers; far more than listen to one host at a time


class SubscriberTable:
    """All subscribers of this host: at most one entry per peer and deployment that is open here."""

    def __init__(self, *, first_stream: int, early_per_peer_max: int) -> None:
        """``first_stream``: random, so that a restarted host's streams mean nothing to peers that knew it before."""
        self._by_peer: dict[NodeId, dict[DeploymentId, None]] = {}
        self._early: dict[NodeId, dict[DeploymentId, None]] = {}
        self._early_max = early_per_peer_max
        self._missed: set[NodeId] = set()
        self._lost: dict[NodeId, dict[DeploymentId, None]] = {}
        self._streams: dict[DeploymentId, int] = {}
        self._next_stream = first_stream % STREAMS_MAX

    def add(self, peer: NodeId, deployment: DeploymentId) -> None:
        """``peer`` listens to an open deployment."""
        self._by_peer.setdefault(peer, {})[deployment] = None

    def add_early(self, peer: NodeId, deployment: DeploymentId) -> None:
        """``peer`` asks for a deployment that is not open here yet; its oldest such question makes room."""
        early = self._early.setdefault(peer, {})
        early.pop(deployment, None)
        early[deployment] = None
        if len(early) > self._early_max:
            del early[next(iter(early))]

    def take_early(self, deployment: DeploymentId) -> list[NodeId]:
        """The deployment is open now: the peers that asked before."""
        found = [peer for peer, early in self._early.items() if deployment in early]
        for peer in found:
            self._drop_early(peer, deployment)
        return found

    def remove(self, peer: NodeId, deployment: DeploymentId) -> bool:
        """``peer`` listens to it no more; True when it did."""
        self._drop_early(peer, deployment)
        self._lost.get(peer, {}).pop(deployment, None)
        listened = self._by_peer.get(peer, {})
        if deployment not in listened:
            return False
        del listened[deployment]
        if not listened:
            del self._by_peer[peer]
            self._missed.discard(peer)
        return True

    def remove_peer(self, peer: NodeId) -> None:
        """The peer is gone, as it seems."""
        wished = self._early.pop(peer, {}) | self._by_peer.pop(peer, {})
        self._missed.discard(peer)
        if wished:
            self._lost[peer] = wished
            if len(self._lost) > LOST_MAX:
                del self._lost[next(iter(self._lost))]

    def take_lost(self, peer: NodeId) -> tuple[DeploymentId, ...]:
        """The peer is back: what it listened to, or asked for early, before."""
        return tuple(self._lost.pop(peer, ()))

    def close(self, deployment: DeploymentId) -> tuple[int | None, list[NodeId]]:
        """The deployment is closed: its stream, if it had one, and the peers that listened to it. They are told nothing
        of that, and asked early for the next time that it opens."""
        found = [peer for peer, listened in self._by_peer.items() if deployment in listened]
        for peer in found:
            self.remove(peer, deployment)
            self.add_early(peer, deployment)
        return self._streams.pop(deployment, None), found

    def of(self, peer: NodeId) -> tuple[DeploymentId, ...]:
        """What ``peer`` listens to."""
        return tuple(self._by_peer.get(peer, ()))

    def has_any(self, peer: NodeId) -> bool:
        """True when ``peer`` listens to any deployment."""
        return peer in self._by_peer

    def has(self, peer: NodeId, deployment: DeploymentId) -> bool:
        """True when ``peer`` listens to ``deployment``."""
        return deployment in self._by_peer.get(peer, ())

    def link_down(self, peer: NodeId) -> None:
        """What was queued for ``peer`` is lost."""
        if peer in self._by_peer:
            self._missed.add(peer)

    def link_up(self, peer: NodeId) -> tuple[DeploymentId, ...]:
        """What ``peer`` must be told again in full, since it may have missed some of it."""
        if peer not in self._missed:
            return ()
        self._missed.discard(peer)
        return self.of(peer)

    def stream(self, deployment: DeploymentId) -> int:
        """The number that stands for ``deployment`` in our deltas."""
        stream = self._streams.get(deployment)
        if stream is None:
            used = set(self._streams.values())
            while self._next_stream in used:
                self._next_stream = (self._next_stream + 1) % STREAMS_MAX
            stream = self._streams[deployment] = self._next_stream
            self._next_stream = (self._next_stream + 1) % STREAMS_MAX
        return stream

    def _drop_early(self, peer: NodeId, deployment: DeploymentId) -> None:
        early = self._early.get(peer)
        if early is not None:
            early.pop(deployment, None)
            if not early:
                del self._early[peer]
