"""What this host and its peers tell each other about deployments: questions, answers, deltas.

What lives here: what each message and each command of the planner means to the subscriptions of both sides. What does
not: when a peer is dialed, and which connections are kept (``sessions``).
"""

from __future__ import annotations

from random import Random
from typing import TypeAlias

from gossipd.core import events
from gossipd.core.chunkset import ChunkSet, ChunkSetError
from gossipd.core.ids import DeploymentId
from gossipd.core.targets import Targets
from gossipd.sessions.channel_table import ChannelTable
from gossipd.sessions.events import KeepTokens, RefuseSubscriber, ReportEvent
from gossipd.sessions.send_queue import payloads_of
from gossipd.sessions.settings import SessionSettings
from gossipd.sessions.subscribers import STREAMS_MAX, SubscriberTable
from gossipd.sessions.subscription import SubscriptionTable
from gossipd.wire import control
from gossipd.wire.control_frame import FrameError, indexes
from membership.member import NodeId

ASKS_BURST, ASKS_PER_S = 256.0, 16.0  # four times the deployments that a host has under way, and again in 16 s
# What a peer may tell of its chunks, in chunks, of which each costs half a microsecond here: all that there are for its
# holdings, a few for each index of a delta, and some for any message. That is a few percent of a core, and twice what a
# host can tell that stores chunks of 256 KiB at 25 Gbit/s. What is left out is a gap, and asked for again.
NEWS_BURST, NEWS_PER_S = 4_194_304.0, 131_072.0
_NEWS_OF_MESSAGE, _NEWS_OF_INDEX = 128, 3


_Left: TypeAlias = dict[NodeId, tuple[float, float]]
"""What each peer has left of a bound, and since when."""


class DeploymentExchange:
    """The subscriptions of both sides, and which deployments are open here. For ``sessions`` only."""

    def __init__(self, channels: ChannelTable, *, settings: SessionSettings, rng: Random) -> None:
        self._channels, self._commands, self._counters = channels, channels.commands, channels.counters
        self._directory = channels.directory
        self.subscriptions = SubscriptionTable(resubscribe_s=settings.resubscribe_s)
        self.subscribers = SubscriberTable(
            first_stream=rng.randrange(STREAMS_MAX), early_per_peer_max=settings.early_per_peer_max
        )
        self._chunk_counts: dict[DeploymentId, int] = {}  # of the deployments that are open here
        self._targets: dict[DeploymentId, Targets] = {}  # of the same
        self._asks_left: _Left = {}
        self._news_left: _Left = {}

    # ---- what the planner says -----------------------------------------------------------------

    def wish_changed(self, command: events.StartSubscription | events.EndSubscription, now: float) -> None:
        """The planner wants to hear a peer, or no more."""
        peer, deployment = command.peer, command.deployment
        if isinstance(command, events.StartSubscription):
            self.subscriptions.ask(peer, deployment, now)
            channel = self._channels.open(peer, now)
            self._channels.put_if_up(channel, control.Subscribe(deployment))  # else when it is up
        elif self.subscriptions.end(peer, deployment):
            self._unsubscribe(peer, deployment, now)

    def _unsubscribe(self, peer: NodeId, deployment: DeploymentId, now: float) -> None:
        self._channels.put_if_up(self._channels.get(peer), control.Unsubscribe(deployment))
        self._channels.review(peer, now)

    def send_holdings(self, command: events.SendHoldings, now: float) -> None:
        """Answer a subscriber; one that has gone meanwhile is passed over."""
        peer, deployment = command.peer, command.deployment
        if not self.subscribers.has(peer, deployment):
            return
        channel, chunks = self._channels.open(peer, now), command.chunks
        message = control.Holdings(
            deployment, self.subscribers.stream(deployment), chunks.size, chunks.to_wire(), command.free_slots
        )
        if channel is None or not channel.queue.put_holdings(message):
            self._counters["dropped_Holdings"] += 1
            return
        self._channels.announce(channel)

    def send_delta(self, command: events.SendDelta, now: float) -> None:
        """Packed once for all peers. Those that have not had Holdings are passed over."""
        payloads = payloads_of(self.subscribers.stream(command.deployment), command)
        for peer in command.peers:
            channel = self._channels.get(peer)
            if channel is None or not all(channel.queue.put_delta(payload) for payload in payloads):
                self._counters["dropped_Delta"] += 1
                continue
            channel.used_s = now
            self._channels.announce(channel)

    # ---- what peers say ------------------------------------------------------------------------

    def message_heard(self, peer: NodeId, message: control.Message, number: int, now: float) -> None:
        """A peer has sent a message of its own initiative."""
        match message:
            case control.Delta():
                indexes_told = len(message.added) + len(message.dropped) + len(message.reading)
                if self._may_tell(peer, _NEWS_OF_INDEX * indexes_told, now):
                    self._delta_heard(peer, message, number, now)
            case control.Holdings():
                if self._may_tell(peer, self._chunk_counts.get(message.deployment, 0), now):
                    self._holdings_heard(peer, message, number, now)
            case control.Subscribe(deployment=deployment):
                if self._may_ask(peer, now):
                    self._subscribe_heard(peer, deployment)
            case control.Unsubscribe(deployment=deployment):
                self._unsubscribe_heard(peer, deployment, now)
            case control.Hello():
                self._counters["greetings"] += 1  # and asks for nothing
            case _:
                self._counters["misplaced"] += 1  # a reply to nothing

    def _may_ask(self, peer: NodeId, now: float) -> bool:
        """An answer costs a set of chunks; a peer with very many deployments asks again by itself."""
        may = _take(self._asks_left, peer, 1.0, now, burst=ASKS_BURST, per_s=ASKS_PER_S)
        self._counters["refused_too_many_questions"] += not may
        return may

    def _may_tell(self, peer: NodeId, chunks: int, now: float) -> bool:
        """To take in what a peer has costs a pass over its chunks, on the loop that all else waits for."""
        may = _take(self._news_left, peer, _NEWS_OF_MESSAGE + chunks, now, burst=NEWS_BURST, per_s=NEWS_PER_S)
        self._counters["refused_too_much_news"] += not may
        return may

    def _subscribe_heard(self, peer: NodeId, deployment: DeploymentId) -> None:
        """``peer`` asks, or asks again: the planner answers with Holdings when the deployment is open here."""
        if deployment not in self._chunk_counts:
            self.subscribers.add_early(peer, deployment)
            return
        if not self._directory.is_target(peer, self._targets[deployment]):
            self._counters["refused_not_a_target"] += 1
            self._commands.append(RefuseSubscriber(peer, deployment))
            return
        self.subscribers.add(peer, deployment)
        self._report(events.SubscribeHeard(peer, deployment))

    def _unsubscribe_heard(self, peer: NodeId, deployment: DeploymentId, now: float) -> None:
        if self.subscribers.remove(peer, deployment):
            self._report(events.UnsubscribeHeard(peer, deployment))
            self._channels.review(peer, now)

    def _holdings_heard(self, peer: NodeId, message: control.Holdings, number: int, now: float) -> None:
        chunk_count = self._chunk_counts.get(message.deployment)
        try:
            if chunk_count is None or message.chunk_count != chunk_count:
                raise ChunkSetError("not the deployment's number of chunks")
            chunks = ChunkSet.from_wire(message.chunks, size=chunk_count)
        except ChunkSetError:
            self._counters["bad_holdings"] += 1
            if chunk_count is None:
                self._decline(peer, message.deployment, now)
            return
        if not self.subscriptions.hear_holdings(peer, message.deployment, message.stream, number):
            self._decline(peer, message.deployment, now)
            return
        if message.tokens:
            self._commands.append(KeepTokens(peer, message.tokens, message.valid_s))
        self._report(events.HoldingsHeard(peer, message.deployment, chunks, message.free_slots))

    def _decline(self, peer: NodeId, deployment: DeploymentId, now: float) -> None:
        """``peer`` counts this host as a subscriber: a former life was one, or no connection took the Unsubscribe."""
        if self._may_ask(peer, now):
            self._channels.put(peer, control.Unsubscribe(deployment), now)

    def _delta_heard(self, peer: NodeId, message: control.Delta, number: int, now: float) -> None:
        deployment, may_ask = self.subscriptions.hear_delta(peer, message.stream, number, now)
        if deployment is None:
            return
        if may_ask:
            self._channels.put(peer, control.Subscribe(deployment), now)
        chunk_count = self._chunk_counts.get(deployment)
        if chunk_count is None:
            return
        try:
            added, dropped, reading = (
                indexes(gaps, chunk_count=chunk_count) for gaps in (message.added, message.dropped, message.reading)
            )
        except FrameError:
            self._counters["bad_delta"] += 1
            return
        self._report(events.DeltaHeard(peer, deployment, added, dropped, reading, message.free_slots))

    def deployment_changed(self, event: events.DeploymentOpened | events.DeploymentClosed, now: float) -> None:
        """A deployment is open here from now on, or no more."""
        deployment = event.deployment
        if isinstance(event, events.DeploymentOpened):
            self._chunk_counts[deployment] = event.shape.chunk_count
            self._targets[deployment] = event.targets
            for peer in self.subscribers.take_early(deployment):
                self._subscribe_heard(peer, deployment)
            return
        self._chunk_counts.pop(deployment, None)
        self._targets.pop(deployment, None)
        for peer in self.subscriptions.end_deployment(deployment):
            self._unsubscribe(peer, deployment, now)
        stream, peers = self.subscribers.close(deployment)
        for peer in peers:
            channel = self._channels.get(peer)
            if channel is not None and stream is not None:
                channel.queue.drop_stream(stream)
            self._channels.review(peer, now)

    # ---- peers -----------------------------------------------------------------------------------

    def is_between(self, peer: NodeId) -> bool:
        """Whether there is a subscription in either direction."""
        return self.subscriptions.has_any(peer) or self.subscribers.has_any(peer)

    def link_up(self, peer: NodeId, now: float) -> None:
        """Ask for everything, and tell everything again to a subscriber that may have missed some of it."""
        for deployment in self.subscriptions.link_up(peer, now):
            self._channels.put(peer, control.Subscribe(deployment), now)
        for deployment in self.subscribers.link_up(peer):
            self._subscribe_heard(peer, deployment)

    def peer_changed(self, peer: NodeId, now: float) -> None:
        """A peer's record has changed, or it is back: it is told again what it listened to when it was lost.

        Where it is no target any more it is told nothing from now on."""
        for deployment in self.subscribers.take_lost(peer):
            self._subscribe_heard(peer, deployment)
        for deployment in self.subscribers.of(peer):
            if not self._directory.is_target(peer, self._targets[deployment]):
                self._unsubscribe_heard(peer, deployment, now)

    def drop_peer(self, peer: NodeId) -> None:
        """The peer is gone, or seems to be."""
        self._asks_left.pop(peer, None)
        self._news_left.pop(peer, None)
        self.subscriptions.end_peer(peer)
        self.subscribers.remove_peer(peer)

    def ask_again(self, now: float) -> None:
        """Repeat the questions that have had no answer for too long."""
        for peer, deployment in self.subscriptions.due(now):
            self._channels.put_if_up(self._channels.open(peer, now), control.Subscribe(deployment))

    def _report(self, event: events.Event) -> None:
        self._commands.append(ReportEvent(event))


def _take(left_of: _Left, peer: NodeId, amount: float, now: float, *, burst: float, per_s: float) -> bool:
    """Whether a peer may have so much now; then it is taken."""
    left, at = left_of.get(peer, (burst, now))
    left = min(burst, left + (now - at) * per_s)
    may = left >= amount
    left_of[peer] = (left - amount * may, now)
    return may
