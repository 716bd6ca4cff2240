"""Who follows our news: peers per deployment, the stream numbers, and those who asked too early.

What lives here: tables. What does not: what they are told (the planner), and sending.
"""

from __future__ import annotations

from collections import OrderedDict

from gossipd.core.ids import DeploymentId
from membership.member import NodeId

STREAMS_MAX = 65_536  # a stream is 16 bits on the wire
EARLY_MAX = 4096  # the oldest are forgotten, and ask again by themselves


class Subscribers:
    """All followers of this node."""

    def __init__(self, *, first_stream: int) -> None:
        """``first_stream`` is random, so that the streams of a restarted node mean nothing to old ears."""
        self._followed: dict[NodeId, set[DeploymentId]] = {}
        self._early: OrderedDict[tuple[NodeId, DeploymentId], None] = OrderedDict()
        self._streams: dict[DeploymentId, int] = {}
        self._next_stream = first_stream % STREAMS_MAX

    def add(self, peer: NodeId, deployment: DeploymentId) -> None:
        """``peer`` follows an open deployment."""
        self._followed.setdefault(peer, set()).add(deployment)

    def add_early(self, peer: NodeId, deployment: DeploymentId) -> None:
        """``peer`` follows a deployment that is not open here yet."""
        self._early[peer, deployment] = None
        while len(self._early) > EARLY_MAX:
            self._early.popitem(last=False)

    def take_early(self, deployment: DeploymentId) -> list[NodeId]:
        """The deployment is open now: who asked for it before?"""
        found = [peer for peer, wanted in self._early if wanted == deployment]
        for peer in found:
            del self._early[peer, deployment]
        return found

    def remove(self, peer: NodeId, deployment: DeploymentId) -> bool:
        """``peer`` follows it no more; True when it did."""
        self._early.pop((peer, deployment), None)
        followed = self._followed.get(peer, set())
        if deployment not in followed:
            return False
        followed.discard(deployment)
        if not followed:
            del self._followed[peer]
        return True

    def forget(self, peer: NodeId) -> None:
        """The peer is gone."""
        self._followed.pop(peer, None)
        for key in [key for key in self._early if key[0] == peer]:
            del self._early[key]

    def close(self, deployment: DeploymentId) -> list[NodeId]:
        """The deployment is closed: who followed it?"""
        found = [peer for peer, followed in self._followed.items() if deployment in followed]
        for peer in found:
            self.remove(peer, deployment)
        self._streams.pop(deployment, None)
        return found

    def of(self, peer: NodeId) -> frozenset[DeploymentId]:
        """What ``peer`` follows."""
        return frozenset(self._followed.get(peer, ()))

    def follows(self, peer: NodeId, deployment: DeploymentId) -> bool:
        """True when ``peer`` follows ``deployment``."""
        return deployment in self._followed.get(peer, ())

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
