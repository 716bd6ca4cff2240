"""All connections that this host dials: which there are, when each is dialed, which have failed, and their queues.

What lives here: dialing, redialing, giving up and letting go; queueing and taking. What does not: what is said over
them, and which are wanted (``sessions``).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Protocol

from msgspec import Struct

from gossipd.core.targets import Targets
from gossipd.sessions.events import AskPeer, Dial, HangUp, SendReady, SessionCommand
from gossipd.sessions.failed_peers import FailedPeers
from gossipd.sessions.peer_channel import ChannelState, Endpoint, PeerChannel
from gossipd.sessions.send_queue import Outgoing
from gossipd.sessions.settings import SessionSettings
from gossipd.wire.control import Message
from membership.member import NodeId

LET_GO = "let go"  # the reason when a channel that nothing wants had failed, and that is over


class EndpointDirectory(Protocol):
    """Where members are. A lookup only: it changes nothing."""

    def endpoint_of(self, node: NodeId) -> Endpoint | None:
        """Where a member's record says its control port is; None for hosts that are no members or have left."""

    def has_answered(self, node: NodeId) -> bool:
        """Whether a member has ever spoken from there. A lookup, too."""

    def is_target(self, node: NodeId, targets: Targets) -> bool:
        """Whether a member is one of the targets, by its own record."""


class LinkCounts(Struct, frozen=True):
    """Of the links that this host dials: those that something wants, those that are up, those that are kept always."""

    wanted: int
    up: int
    standing: int


class ChannelTable:
    """At most ``links_max`` channels, one per peer. The commands and counters are those of the whole brain."""

    def __init__(self, directory: EndpointDirectory, *, settings: SessionSettings, rng: Random) -> None:
        self.commands: list[SessionCommand] = []
        self.counters: Counter[str] = Counter()
        self.directory = directory
        self._session_settings = settings
        self._rng = rng
        self._channels: dict[NodeId, PeerChannel] = {}
        self._failed_peers = FailedPeers()
        self._by_address: dict[tuple[str, int], PeerChannel] = {}
        self._ended: list[tuple[NodeId, str]] = []
        self._due_s, self._tried_s = math.inf, -math.inf
        self.link_counters = {"asked": 0, "dialed": 0, "failed": 0, "dropped": 0, "unknown_peer": 0}

    def get(self, peer: NodeId) -> PeerChannel | None:
        """The channel to ``peer`` if there is one; does not keep it from falling idle."""
        return self._channels.get(peer)

    def counts(self, *, standing: int) -> LinkCounts:
        """How many there are now."""
        up = sum(channel.state is ChannelState.UP for channel in self._channels.values())
        return LinkCounts(len(self._channels), up, standing)

    def open(self, peer: NodeId, now: float) -> PeerChannel | None:
        """The channel to ``peer``, dialed soon if it is not up; None when its address is unknown."""
        channel = self._channels.get(peer)
        if channel is None:
            if self.directory.endpoint_of(peer) is None or len(self._channels) >= self._session_settings.links_max:
                self.link_counters["unknown_peer"] += 1
                return None
            channel = self._channels[peer] = PeerChannel(peer, self._session_settings, now)
            if (failure := self._failed_peers.take(peer)) is not None:
                channel.resume(failure)
            self.look_at(channel.due_s)
        channel.used_s = now
        return channel

    def put(self, peer: NodeId, message: Message, now: float, *, number: int = 0) -> bool:
        """Queue a message, and have the peer dialed if need be; False when that cannot be or there is no room."""
        return self._put(self.open(peer, now), message, number)

    def put_if_up(self, channel: PeerChannel | None, message: Message) -> None:
        """Queue a message that is of no use later."""
        if channel is not None and channel.state is ChannelState.UP:
            self._put(channel, message, 0)

    def announce(self, channel: PeerChannel) -> None:
        """Something may have been queued: let the caller send it."""
        if channel.state is ChannelState.UP and channel.queue and not channel.is_ready:
            channel.is_ready = True
            self.commands.append(SendReady(channel.peer))

    def take(self, peer: NodeId) -> Outgoing | None:
        """The next message to send to ``peer``."""
        channel = self._channels.get(peer)
        if channel is None or channel.state is not ChannelState.UP:
            return None
        outgoing = channel.queue.take()
        if outgoing is None:
            channel.is_ready = False
        return outgoing

    def put_back(self, peer: NodeId, outgoing: Outgoing) -> None:
        """The message could not be sent now: it is the next one again."""
        channel = self._channels.get(peer)
        if channel is not None:
            channel.queue.put_back(outgoing)

    def hurry(self, *peers: NodeId) -> None:
        """Something waits for these: do not sit out their pauses."""
        for peer in peers:
            channel = self._channels.get(peer)
            if channel is not None and channel.state is ChannelState.WAITING:
                channel.hurry()
                self.look_at(channel.dial_at_s)

    def try_failed(self, now: float) -> None:
        """Something new is wanted: those that have failed may be tried again, every ``redial_max_s`` at most."""
        if now >= self._tried_s + self._session_settings.redial_max_s:
            self._tried_s = now
            self._ended += [(peer, LET_GO) for peer in self._failed_peers.end_all(now)]

    def move(self, peer: NodeId, now: float) -> None:
        """The peer's record has changed: dial it where it is now, or in the life that it is in."""
        channel = self._channels.get(peer)
        if channel is None:
            self._failed_peers.take(peer)
            return
        endpoint = self.directory.endpoint_of(peer)
        if endpoint is None:
            self.drop(peer)
        elif channel.state is ChannelState.WAITING:
            channel.dial_at_s = now
            self.look_at(now)
        elif channel.endpoint != endpoint:
            self._fail(channel, "moved", now)
        elif channel.is_asking and self.directory.has_answered(peer):
            channel.dial(endpoint, now)
            self.look_at(channel.dial_until_s)
            self._begin(channel, endpoint, now)

    def drop(self, peer: NodeId) -> None:
        """The peer is gone."""
        self._failed_peers.take(peer)
        channel = self._channels.pop(peer, None)
        if channel is not None:
            self._end(channel, "forgotten")

    def up(self, peer: NodeId, now: float) -> PeerChannel | None:
        """The handshake has succeeded; None when the peer is not being dialed."""
        channel = self._channels.get(peer)
        if channel is None or channel.state is not ChannelState.DIALING or channel.is_asking:
            return None
        channel.up(now)
        self.look_at(now + self._session_settings.link_idle_s)
        return channel

    def down(self, peer: NodeId, reason: str, now: float) -> None:
        """The transport says that the connection is over."""
        channel = self._channels.get(peer)
        if channel is not None and channel.state is not ChannelState.WAITING:
            self._fail(channel, reason, now)

    def review(self, peer: NodeId, now: float) -> None:
        """One reason to keep the channel is gone: let it go in time if that was the last one."""
        channel = self._channels.get(peer)
        if channel is not None:
            idle_s = self._session_settings.link_idle_s
            self.look_at(channel.used_s + idle_s if channel.state is ChannelState.UP else now)

    def look_at(self, when_s: float) -> None:
        """Something is due then."""
        self._due_s = min(self._due_s, when_s)

    def next_deadline(self) -> float:
        """When ``sweep`` should be called."""
        return self._due_s

    def sweep(self, is_wanted: Callable[[NodeId], bool], now: float) -> None:
        """Dial what is due, give up what takes too long, let go what nothing wants."""
        if now < self._due_s:
            return
        self._due_s = math.inf  # what fails during the sweep is due again
        self._ended += [(peer, LET_GO) for peer in self._failed_peers.reachable_again(now)]
        self.look_at(self._failed_peers.next_s)
        for channel in list(self._channels.values()):
            if channel.state is ChannelState.WAITING:
                if not (channel.queue or is_wanted(channel.peer)):
                    self._let_go(channel)
                elif channel.due_s <= now:
                    self._dial(channel, now)
                else:
                    self.look_at(channel.due_s)
            elif channel.state is ChannelState.DIALING:
                if channel.dial_until_s <= now:
                    self._fail(channel, "unreachable", now)
                else:
                    self.look_at(channel.dial_until_s)
            elif not is_wanted(channel.peer):
                if channel.used_s + self._session_settings.link_idle_s <= now:
                    del self._channels[channel.peer]
                    self._hang_up(channel, "idle")
                else:
                    self.look_at(channel.used_s + self._session_settings.link_idle_s)

    def _let_go(self, channel: PeerChannel) -> None:
        del self._channels[channel.peer]
        failure = channel.failure
        over = channel.peer if failure is None else self._failed_peers.note(channel.peer, failure)
        if over is not None:
            self._ended.append((over, LET_GO))
        self.look_at(self._failed_peers.next_s)

    def take_ended(self) -> list[tuple[NodeId, str]]:
        """The peers whose channels have ended since the last call, with the reasons."""
        ended, self._ended = self._ended, []
        return ended

    def _put(self, channel: PeerChannel | None, message: Message, number: int) -> bool:
        if channel is None or not channel.queue.put(message, number=number):
            self.counters[f"dropped_{type(message).__name__}"] += 1
            return False
        self.announce(channel)
        return True

    def _dial(self, channel: PeerChannel, now: float) -> None:
        endpoint = self.directory.endpoint_of(channel.peer)
        if endpoint is None:
            self.drop(channel.peer)
            return
        is_asking = not self.directory.has_answered(channel.peer)
        channel.dial(endpoint, now, is_asking=is_asking)
        self.look_at(channel.dial_until_s)
        if is_asking:
            self.link_counters["asked"] += 1
            self.commands.append(AskPeer(channel.peer))
        else:
            self._begin(channel, endpoint, now)

    def _begin(self, channel: PeerChannel, endpoint: Endpoint, now: float) -> None:
        address = (endpoint.host, endpoint.port)
        if (other := self._by_address.get(address)) is not None:
            self._fail(other, "moved", now)  # another key answers there now, or answered there before
        self._by_address[address] = channel
        self.link_counters["dialed"] += 1
        self.commands.append(Dial(channel.peer, endpoint))

    def _fail(self, channel: PeerChannel, reason: str, now: float) -> None:
        self.link_counters["failed"] += 1
        self._end(channel, reason)
        self.link_counters["dropped"] += channel.fail(now, jitter=0.5 + self._rng.random() / 2)
        self.look_at(channel.due_s)

    def _end(self, channel: PeerChannel, reason: str) -> None:
        self._hang_up(channel, reason)
        self._ended.append((channel.peer, reason))

    def _hang_up(self, channel: PeerChannel, reason: str) -> None:
        endpoint = channel.endpoint
        if endpoint is not None and self._by_address.get((endpoint.host, endpoint.port)) is channel:
            del self._by_address[endpoint.host, endpoint.port]
        self.commands.append(HangUp(channel.peer, reason))
