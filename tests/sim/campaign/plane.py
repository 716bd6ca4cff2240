"""The control plane of one simulated host: links that are dialed, fall silent, are reset; news in order over them.

What lives here: what ``gossipd.control`` does with sockets (``plane``, ``links``, ``link``, ``hearing``), with its own
tables ``SubscriptionTable`` and ``Subscribers`` and its own times, on the virtual clock. What does not: frames
(messages go as values), CURVE (everybody is who they say), requests and replies.

A message under way when its direction is cut waits as TCP would have it wait, and arrives when the cut is mended, or is
lost with the link when nothing has acknowledged it for ``silence_s``. A stopped process answers neither a dial nor a
heartbeat, while its kernel acknowledges what is said to it.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, TypeAlias

from gossipd.control.settings import ControlSettings
from gossipd.control.subscribers import STREAMS_MAX, Subscribers
from gossipd.control.subscription import SubscriptionTable
from gossipd.core.chunkset import ChunkSet
from gossipd.core.events import DeltaHeard, HoldingsHeard, PeerReachable, SubscribeHeard, UnsubscribeHeard
from gossipd.core.ids import DeploymentId
from membership.member import NodeId

if TYPE_CHECKING:
    from tests.sim.campaign.daemon import Daemon

_SETTINGS = ControlSettings()
_DIAL_S = 0.002  # TCP and CURVE on an idle network
_RESET_S = 0.001


class Asked:
    """Subscribe (or no more) to a deployment."""

    __slots__ = ("deployment", "wanted")

    def __init__(self, deployment: DeploymentId, *, wanted: bool) -> None:
        self.deployment = deployment
        self.wanted = wanted


class Held:
    """Holdings: the stream begins anew with number 0."""

    __slots__ = ("chunks", "deployment", "free_slots", "stream")

    def __init__(self, deployment: DeploymentId, stream: int, chunks: ChunkSet, free_slots: int) -> None:
        self.deployment = deployment
        self.stream = stream
        self.chunks = chunks
        self.free_slots = free_slots


class Told:
    """A delta, shared by its receivers; each link numbers it."""

    __slots__ = ("added", "dropped", "free_slots", "reading", "stream")

    def __init__(
        self, stream: int, added: tuple[int, ...], dropped: tuple[int, ...], reading: tuple[int, ...], free_slots: int
    ) -> None:
        self.stream = stream
        self.added = added
        self.dropped = dropped
        self.reading = reading
        self.free_slots = free_slots


Message: TypeAlias = Asked | Held | Told


class Link:
    """One dialed connection."""

    __slots__ = (
        "age", "arrives_s", "is_dialing", "is_unanswered", "is_up", "is_watched", "pause_s", "peer", "queue", "streams",
    )  # fmt: skip

    def __init__(self, peer: int) -> None:
        self.peer = peer
        self.is_up = False
        self.is_dialing = False
        self.is_watched = False
        self.is_unanswered = False
        self.age = 0  # which connection of this link: what was sent on an earlier one is lost
        self.pause_s = _SETTINGS.redial_min_s
        self.queue: deque[Message] = deque()
        self.streams: dict[int, int] = {}
        self.arrives_s = 0.0


class Plane:
    """See the module. One per life of a host."""

    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon
        self._world = daemon.world
        self._following = SubscriptionTable(resubscribe_s=_SETTINGS.resubscribe_s)
        self._followers = Subscribers(first_stream=daemon.random.randrange(STREAMS_MAX))
        self._links: dict[int, Link] = {}
        self._reachable: dict[int, bool] = {}
        self._broken: set[int] = set()
        daemon.after(_SETTINGS.resubscribe_s / 5, self._repeat)

    # ---- what the daemon says ------------------------------------------------------------------

    def subscribe(self, peer: NodeId, deployment: DeploymentId) -> None:
        """See ControlPlane."""
        self._following.begin(peer, deployment, self._world.now)
        link = self._link_to(peer)
        if link is not None and link.is_up:
            self._send(link, Asked(deployment, wanted=True))

    def unsubscribe(self, peer: NodeId, deployment: DeploymentId) -> None:
        """See ControlPlane."""
        if self._following.end(peer, deployment):
            link = self._links.get(self._world.index_of[peer])
            if link is not None and link.is_up:
                self._send(link, Asked(deployment, wanted=False))

    def send_holdings(self, peer: NodeId, deployment: DeploymentId, chunks: ChunkSet, free_slots: int) -> None:
        """See ControlPlane."""
        if not self._followers.follows(peer, deployment):
            return
        stream = self._followers.stream(deployment)
        link = self._link_to(peer)
        if link is None:
            return
        link.streams[stream] = 0
        link.queue = deque(m for m in link.queue if not (isinstance(m, Told) and m.stream == stream))
        self._put(link, Held(deployment, stream, chunks, free_slots))

    def send_delta(
        self, peers: tuple[NodeId, ...], deployment: DeploymentId, *, added: tuple[int, ...],
        dropped: tuple[int, ...], reading: tuple[int, ...], free_slots: int,
    ) -> None:  # fmt: skip
        """See ControlPlane."""
        stream = self._followers.stream(deployment)
        told = Told(stream, added, dropped, reading, free_slots)
        index_of = self._world.index_of
        for peer in peers:
            link = self._links.get(index_of[peer])
            if link is not None and stream in link.streams:
                self._put(link, told)

    def deployment_opened(self, deployment: DeploymentId) -> None:
        """See ControlPlane."""
        for peer in self._followers.take_early(deployment):
            self._follow(peer, deployment)

    def deployment_closed(self, deployment: DeploymentId) -> None:
        """See ControlPlane."""
        self._followers.close(deployment)

    def member_gone(self, node: NodeId) -> None:
        """See ControlPlane."""
        self._following.forget(node)
        self._followers.forget(node)
        peer = self._world.index_of[node]
        link = self._links.pop(peer, None)
        if link is not None:
            link.age += 1
            link.is_up = False
        self._broken.discard(peer)
        self._reachable.pop(peer, None)

    # ---- sending -------------------------------------------------------------------------------

    def _link_to(self, node: NodeId) -> Link | None:
        if self._daemon.members.record(node) is None:
            return None
        peer = self._world.index_of[node]
        link = self._links.get(peer)
        if link is None:
            link = self._links[peer] = Link(peer)
            self._dial(link)
        return link

    def _put(self, link: Link, message: Message) -> None:
        if link.is_up:
            self._send(link, message)
        elif len(link.queue) < _SETTINGS.link_queue_messages_max:
            link.queue.append(message)

    def _send(self, link: Link, message: Message) -> None:
        number = 0
        if type(message) is Told:
            if message.stream not in link.streams:
                return
            number = link.streams[message.stream] = link.streams[message.stream] + 1
        world = self._world
        link.arrives_s = max(link.arrives_s, world.now + world.delay())
        world.at(link.arrives_s, self._arrive, link, link.age, message, number)

    def _arrive(self, link: Link, age: int, message: Message, number: int) -> None:
        """The message is at the peer's door."""
        own, peer = self._daemon, self._world.daemons[link.peer]
        if link.age != age or not link.is_up:
            return
        if not peer.is_up:
            self.reset(link.peer)
        elif not self._world.wires.is_open(own.index, link.peer):
            self._world.wires.cut_struck(own.index, link.peer)
            self._unanswered(link)
            self._world.after(0.2, self._arrive_late, link, age, message, number)
        elif peer.is_stopped:
            peer.after(0.0, peer.plane.hear, own.node, message, number)
        else:
            peer.plane.hear(own.node, message, number)

    def _arrive_late(self, link: Link, age: int, message: Message, number: int) -> None:
        # Retransmitted in order: what was sent later comes no earlier than this.
        if link.age == age and link.is_up:
            link.arrives_s = max(link.arrives_s, self._world.now)
            self._arrive(link, age, message, number)

    # ---- links ---------------------------------------------------------------------------------

    def _dial(self, link: Link) -> None:
        if self._links.get(link.peer) is not link or link.is_up or link.is_dialing:
            return
        if not self._is_wanted(link.peer) and not link.queue:
            del self._links[link.peer]
            self._let_go(link.peer)
            return
        link.is_dialing = True
        peer = self._world.daemons[link.peer]
        if not self._world.wires.is_whole(self._daemon.index, link.peer) or peer.is_stopped or not peer.is_powered:
            self._daemon.after(_SETTINGS.handshake_s, self._dialed, link, False)
        else:
            self._daemon.after(_DIAL_S, self._dialed, link, peer.is_up)

    def _dialed(self, link: Link, answered: bool) -> None:
        if self._links.get(link.peer) is not link:
            return
        link.is_dialing = False
        peer = self._world.daemons[link.peer]
        if answered and peer.is_up and peer.members.record(self._daemon.node) is not None:
            link.is_up = True
            link.age += 1
            link.pause_s = _SETTINGS.redial_min_s
            self._up(link)
        else:
            self._failed(link)

    def _failed(self, link: Link) -> None:
        link.is_up = False
        link.age += 1
        link.queue.clear()
        link.streams.clear()
        self._daemon.after(link.pause_s * self._daemon.random.uniform(0.5, 1.0), self._dial, link)
        link.pause_s = min(2 * link.pause_s, _SETTINGS.redial_max_s)
        if self._followers.of(self._world.nodes[link.peer]):
            self._broken.add(link.peer)
        self._reach(link.peer, reachable=False)

    def _up(self, link: Link) -> None:
        node = self._world.nodes[link.peer]
        self._reach(link.peer, reachable=True)
        queued, link.queue = link.queue, deque()
        for deployment in self._following.link_up(node, self._world.now):
            self._send(link, Asked(deployment, wanted=True))
        for message in queued:
            self._send(link, message)
        if link.peer in self._broken:
            self._broken.discard(link.peer)
            for deployment in sorted(self._followers.of(node)):
                self._follow(node, deployment)

    def _reach(self, peer: int, *, reachable: bool) -> None:
        if self._reachable.get(peer) is not reachable:
            self._reachable[peer] = reachable
            self._daemon.post(PeerReachable(self._world.nodes[peer], reachable))

    def _let_go(self, peer: int) -> None:
        if self._reachable.pop(peer, True) is False:
            self._daemon.post(PeerReachable(self._world.nodes[peer], True))

    def _is_wanted(self, peer: int) -> bool:
        node = self._world.nodes[peer]
        return bool(self._following.of(node) or self._followers.of(node))

    def reset(self, peer: int) -> None:
        """The peer's process is gone, and its kernel says so."""
        link = self._links.get(peer)
        if link is not None and link.is_up:
            self._failed(link)

    def watch(self, peer: int) -> None:
        """Something may keep the peer from answering: the next heartbeat will tell."""
        link = self._links.get(peer)
        if link is not None and link.is_up and not link.is_watched:
            link.is_watched = True
            wait_s = _SETTINGS.heartbeat_s * self._daemon.random.random() + _SETTINGS.silence_s
            self._daemon.after(wait_s, self._heartbeat, link, link.age)

    def _heartbeat(self, link: Link, age: int) -> None:
        link.is_watched = False
        if link.age == age and link.is_up and (self._world.daemons[link.peer].is_stopped or self._is_cut(link)):
            self._failed(link)

    def _unanswered(self, link: Link) -> None:
        if not link.is_unanswered:
            link.is_unanswered = True
            self._daemon.after(_SETTINGS.silence_s, self._give_up, link, link.age)

    def _give_up(self, link: Link, age: int) -> None:
        link.is_unanswered = False
        if link.age == age and link.is_up and self._is_cut(link):
            self._failed(link)

    def _is_cut(self, link: Link) -> bool:
        is_there = self._world.daemons[link.peer].is_up
        return not is_there or not self._world.wires.is_whole(self._daemon.index, link.peer)

    def silent_with(self, peer: int) -> bool:
        """Whether there is a link up to that peer, for faults to look at."""
        link = self._links.get(peer)
        return link is not None and link.is_up

    def _repeat(self) -> None:
        for node, deployment in self._following.due(self._world.now):
            link = self._link_to(node)
            if link is not None and link.is_up:
                self._send(link, Asked(deployment, wanted=True))
        self._daemon.after(_SETTINGS.resubscribe_s / 5, self._repeat)

    # ---- hearing -------------------------------------------------------------------------------

    def hear(self, node: NodeId, message: Message, number: int) -> None:
        """What came in at the entrance; see ``FrameDispatcher``."""
        daemon = self._daemon
        if daemon.members.record(node) is None:
            return
        if type(message) is Told:
            deployment, ask = self._following.heard_delta(node, message.stream, number, self._world.now)
            if deployment is None:
                return
            if ask and (link := self._link_to(node)) is not None:
                self._put(link, Asked(deployment, wanted=True))
            if daemon.chunk_count_of(deployment) is not None:
                daemon.post(
                    DeltaHeard(node, deployment, message.added, message.dropped, message.reading, message.free_slots)
                )
        elif type(message) is Held:
            if message.chunks.size == daemon.chunk_count_of(message.deployment) and self._following.heard_holdings(
                node, message.deployment, message.stream, number
            ):
                daemon.post(HoldingsHeard(node, message.deployment, message.chunks, message.free_slots))
        elif type(message) is Asked:
            if message.wanted:
                self._follow(node, message.deployment)
            elif self._followers.remove(node, message.deployment):
                daemon.post(UnsubscribeHeard(node, message.deployment))

    def _follow(self, node: NodeId, deployment: DeploymentId) -> None:
        if self._daemon.chunk_count_of(deployment) is None:
            self._followers.add_early(node, deployment)
            return
        self._followers.add(node, deployment)
        self._daemon.post(SubscribeHeard(node, deployment))
