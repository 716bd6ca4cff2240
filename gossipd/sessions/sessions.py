"""The brain of the control connections: what this host and each of its peers have told each other about deployments.

What lives here: what each event means to the tables of this package. What does not: their rules (``subscription``,
``subscribers``, ``send_queue``, ``channel_table``), sockets and frames (``gossipd.control``), whom to listen to and
what to say (the planner).

How a caller drives it, in one task::

    sessions.handle(event, now)          # for each event, in the order they happened
    sessions.advance(now)                # when next_deadline has come
    for command in sessions.drain(): perform(command)
    sessions.take(peer)                  # after SendReady(peer): send each message until there is none

* ``now`` is a monotonic clock in seconds that never goes back.
* The planner's ``StartSubscription``, ``EndSubscription``, ``SendHoldings`` and ``SendDelta`` are handed over as they
  are; so are ``DeploymentOpened``, ``DeploymentClosed`` and ``PeerLost``, to the planner first.
* ``Dial`` ends in ``LinkUp`` or ``LinkDown``, or in a ``HangUp`` from here. A ``LinkDown`` is answered with ``HangUp``.
* Messages are taken, not pushed: what a peer that reads slowly has not been sent yet must stay here to be merged. A
  message that could not be sent now is put back, and the caller tries again by itself.
* ``ReportEvent`` carries the planner's events: ``HoldingsHeard``, ``DeltaHeard``, ``SubscribeHeard``,
  ``UnsubscribeHeard``, ``PeerReachable``. ``SubscribeHeard`` comes for deployments that are open here, and no others.

Everything that a host says of itself goes over the connection that it dials to a peer. So two talking peers hold two
connections, each with one direction of initiative, and a failure is evidence about exactly one peer.

Losses. After a lost connection both ends repair by themselves: a subscriber asks again when its own connection is up,
and a host whose connection to a subscriber broke reports that the subscriber asks again. So a subscriber may get
Holdings twice, never announcements with a hole in them. A question without an answer is repeated from here and from
nowhere else; whether a peer that has answered is silent for too long is the planner's to judge, which then asks again.
"""

from __future__ import annotations

from collections import Counter
from random import Random

from gossipd.core import events
from gossipd.core.chunkset import ChunkSet, ChunkSetError
from gossipd.core.ids import DeploymentId
from gossipd.sessions.channel_table import LET_GO, ChannelTable, EndpointDirectory
from gossipd.sessions.events import (
    EndpointChanged,
    KeepTokens,
    LinkDown,
    LinkUp,
    MessageHeard,
    ReportEvent,
    RequestClosed,
    RequestOpened,
    SendReady,
    SessionCommand,
    SessionEvent,
    StandingLinksChosen,
)
from gossipd.sessions.peer_channel import ChannelState, PeerChannel
from gossipd.sessions.send_queue import Outgoing, payloads_of
from gossipd.sessions.settings import SessionSettings
from gossipd.sessions.subscribers import STREAMS_MAX, SubscriberTable
from gossipd.sessions.subscription import SubscriptionTable
from gossipd.wire import control
from gossipd.wire.control_frame import FrameError, indexes
from membership.member import NodeId


class Sessions:
    """See the module's docstring. One task owns it."""

    def __init__(
        self, directory: EndpointDirectory, *, greeting: control.Hello, settings: SessionSettings, rng: Random
    ) -> None:
        """
        Args:
            greeting: the first message on each connection.
        """
        self._greeting = greeting
        self._commands: list[SessionCommand] = []
        self._subscriptions = SubscriptionTable(resubscribe_s=settings.resubscribe_s)
        self._subscribers = SubscriberTable(
            first_stream=rng.randrange(STREAMS_MAX), early_per_peer_max=settings.early_per_peer_max
        )
        self._channels = ChannelTable(directory, settings=settings, rng=rng, commands=self._commands)
        self._chunk_counts: dict[DeploymentId, int] = {}  # of the deployments that are open here
        self._standing: frozenset[NodeId] = frozenset()
        self._requests: Counter[NodeId] = Counter()
        self._reachable: dict[NodeId, bool] = {}
        self.counters: Counter[str] = Counter()

    # ---- the caller's side ---------------------------------------------------------------------

    def handle(self, event: SessionEvent, now: float) -> None:
        """Take one event in."""
        match event:
            case MessageHeard():
                self._message_heard(event.peer, event.message, event.number, now)
            case events.SendDelta():
                self._send_delta(event, now)
            case events.SendHoldings():
                self._send_holdings(event, now)
            case events.StartSubscription() | events.EndSubscription():
                self._wish_changed(event, now)
            case events.DeploymentOpened() | events.DeploymentClosed():
                self._deployment_changed(event, now)
            case RequestOpened() | RequestClosed():
                self._request_changed(event, now)
            case StandingLinksChosen():
                self._choose_standing(event, now)
            case LinkUp():
                self._link_up(event.peer, now)
            case LinkDown():
                self._channels.down(event.peer, event.reason, now)
            case EndpointChanged():
                self._channels.move(event.peer, now)
            case events.PeerLost():
                self._peer_lost(event.node)
        self._settle()

    def advance(self, now: float) -> None:
        """Do what is due: dial, give up, let go, ask again."""
        self._channels.sweep(self._is_wanted, now)
        for peer, deployment in self._subscriptions.due(now):
            self._say_if_up(self._channels.open(peer, now), control.Subscribe(deployment))
        self._settle()

    def drain(self) -> list[SessionCommand]:
        """The commands since the last call, in order."""
        commands = self._commands[:]
        self._commands.clear()
        return commands

    def next_deadline(self, _now: float) -> float:
        """When ``advance`` should be called though no event has come; infinity while nothing is due."""
        return min(self._channels.next_deadline(), self._subscriptions.next_deadline())

    def put(self, peer: NodeId, message: control.Message, now: float, *, number: int = 0) -> bool:
        """Queue a message of the caller, a request for one; False when the peer is unknown or its queue is full."""
        channel = self._channels.open(peer, now)
        if channel is None or not channel.queue.put(message, number=number):
            self.counters[f"dropped_{type(message).__name__}"] += 1
            return False
        self._announce(channel)
        return True

    def take(self, peer: NodeId) -> Outgoing | None:
        """The next message to send to ``peer``; None when there is none, or its connection is not up."""
        channel = self._channels.get(peer)
        if channel is None or channel.state is not ChannelState.UP:
            return None
        outgoing = channel.queue.take()
        if outgoing is None:
            channel.is_ready = False
        return outgoing

    def put_back(self, peer: NodeId, outgoing: Outgoing) -> None:
        """It could not be sent now: it is the next one again."""
        channel = self._channels.get(peer)
        if channel is not None:
            channel.queue.put_back(outgoing)

    def channel(self, peer: NodeId) -> PeerChannel | None:
        """The channel to ``peer`` if there is one, to look at."""
        return self._channels.get(peer)

    def statistics(self) -> dict[str, int]:
        """Counters since the start, by name."""
        parts = {
            "link": self._channels.counters,
            "follow": self._subscriptions.counters,
            "control": self.counters,
        }
        return {f"{part}_{name}": value for part, counters in parts.items() for name, value in counters.items()}

    # ---- what the planner says -----------------------------------------------------------------

    def _wish_changed(self, command: events.StartSubscription | events.EndSubscription, now: float) -> None:
        peer, deployment = command.peer, command.deployment
        if isinstance(command, events.StartSubscription):
            self._subscriptions.ask(peer, deployment, now)
            self._say_if_up(self._channels.open(peer, now), control.Subscribe(deployment))  # else when it is up
        elif self._subscriptions.end(peer, deployment):
            self._unsubscribe(peer, deployment, now)

    def _unsubscribe(self, peer: NodeId, deployment: DeploymentId, now: float) -> None:
        self._say_if_up(self._channels.get(peer), control.Unsubscribe(deployment))
        self._channels.review(peer, now)

    def _send_holdings(self, command: events.SendHoldings, now: float) -> None:
        peer, deployment = command.peer, command.deployment
        if not self._subscribers.has(peer, deployment):
            return
        channel, chunks = self._channels.open(peer, now), command.chunks
        message = control.Holdings(
            deployment, self._subscribers.stream(deployment), chunks.size, chunks.to_wire(), command.free_slots
        )
        if channel is None or not channel.queue.put_holdings(message):
            self.counters["dropped_Holdings"] += 1
            return
        self._announce(channel)

    def _send_delta(self, command: events.SendDelta, now: float) -> None:
        """Packed once for all peers. Those that have not had Holdings are passed over."""
        payloads = payloads_of(self._subscribers.stream(command.deployment), command)
        for peer in command.peers:
            channel = self._channels.get(peer)
            if channel is None or not all(channel.queue.put_delta(payload) for payload in payloads):
                self.counters["dropped_Delta"] += 1
                continue
            channel.used_s = now
            self._announce(channel)

    # ---- what peers say ------------------------------------------------------------------------

    def _message_heard(self, peer: NodeId, message: control.Message, number: int, now: float) -> None:
        match message:
            case control.Delta():
                self._delta_heard(peer, message, number, now)
            case control.Holdings():
                self._holdings_heard(peer, message, number)
            case control.Subscribe(deployment=deployment):
                self._subscribe_heard(peer, deployment)
            case control.Unsubscribe(deployment=deployment):
                if self._subscribers.remove(peer, deployment):
                    self._report(events.UnsubscribeHeard(peer, deployment))
                    self._channels.review(peer, now)
            case control.Hello():
                self.counters["greetings"] += 1  # and asks for nothing
            case _:
                self.counters["misplaced"] += 1  # a reply to nothing

    def _subscribe_heard(self, peer: NodeId, deployment: DeploymentId) -> None:
        """``peer`` asks, or asks again: the planner answers with Holdings when the deployment is open here."""
        if deployment not in self._chunk_counts:
            self._subscribers.add_early(peer, deployment)
            return
        self._subscribers.add(peer, deployment)
        self._report(events.SubscribeHeard(peer, deployment))

    def _holdings_heard(self, peer: NodeId, message: control.Holdings, number: int) -> None:
        chunk_count = self._chunk_counts.get(message.deployment)
        try:
            if chunk_count is None or message.chunk_count != chunk_count:
                raise ChunkSetError("not the deployment's number of chunks")
            chunks = ChunkSet.from_wire(message.chunks, size=chunk_count)
        except ChunkSetError:
            self.counters["bad_holdings"] += 1
            return
        if self._subscriptions.hear_holdings(peer, message.deployment, message.stream, number):
            if message.tokens:
                self._commands.append(KeepTokens(peer, message.tokens, message.valid_s))
            self._report(events.HoldingsHeard(peer, message.deployment, chunks, message.free_slots))

    def _delta_heard(self, peer: NodeId, message: control.Delta, number: int, now: float) -> None:
        deployment, may_ask = self._subscriptions.hear_delta(peer, message.stream, number, now)
        if deployment is None:
            return
        if may_ask:
            self.put(peer, control.Subscribe(deployment), now)
        chunk_count = self._chunk_counts.get(deployment)
        if chunk_count is None:
            return
        try:
            heard = events.DeltaHeard(
                peer,
                deployment,
                indexes(message.added, chunk_count=chunk_count),
                indexes(message.dropped, chunk_count=chunk_count),
                indexes(message.reading, chunk_count=chunk_count),
                message.free_slots,
            )
        except FrameError:
            self.counters["bad_delta"] += 1
            return
        self._report(heard)

    # ---- deployments and members ---------------------------------------------------------------

    def _deployment_changed(self, event: events.DeploymentOpened | events.DeploymentClosed, now: float) -> None:
        deployment = event.deployment
        if isinstance(event, events.DeploymentOpened):
            self._chunk_counts[deployment] = event.shape.chunk_count
            for peer in self._standing:
                self._channels.hurry(peer)
            for peer in self._subscribers.take_early(deployment):
                self._subscribe_heard(peer, deployment)
            return
        self._chunk_counts.pop(deployment, None)
        for peer in self._subscriptions.end_deployment(deployment):
            self._unsubscribe(peer, deployment, now)
        stream, peers = self._subscribers.close(deployment)
        for peer in peers:
            channel = self._channels.get(peer)
            if channel is not None and stream is not None:
                channel.queue.drop_stream(stream)
            self._channels.review(peer, now)

    def _peer_lost(self, peer: NodeId) -> None:
        self._subscriptions.end_peer(peer)
        self._subscribers.remove_peer(peer)
        self._channels.drop(peer)
        self._reachable.pop(peer, None)

    def _choose_standing(self, event: StandingLinksChosen, now: float) -> None:
        for peer in self._standing - event.peers:
            channel = self._channels.get(peer)
            if channel is not None:
                channel.used_s = now  # it may be wanted again in a moment: it is idle from now on
                self._channels.review(peer, now)
        self._standing = event.peers
        missing = sorted(peer for peer in event.peers if self._channels.get(peer) is None)
        for peer in missing[: event.dials_max]:
            self._channels.open(peer, now)

    # ---- connections ---------------------------------------------------------------------------

    def _request_changed(self, event: RequestOpened | RequestClosed, now: float) -> None:
        if isinstance(event, RequestOpened):
            self._requests[event.peer] += 1
            self._channels.hurry(event.peer)
            return
        self._requests[event.peer] -= 1
        if not self._requests[event.peer]:
            del self._requests[event.peer]
        self._channels.review(event.peer, now)

    def _is_wanted(self, peer: NodeId) -> bool:
        if peer in self._standing:
            return True
        return bool(self._subscriptions.of(peer) or self._subscribers.of(peer) or self._requests.get(peer))

    def _link_up(self, peer: NodeId, now: float) -> None:
        channel = self._channels.up(peer, now)
        if channel is None:
            return
        self._reach(peer, reachable=True)
        self.put(peer, self._greeting, now)
        for deployment in self._subscriptions.link_up(peer, now):
            self.put(peer, control.Subscribe(deployment), now)
        for deployment in self._subscribers.link_up(peer):
            self._subscribe_heard(peer, deployment)
        self._announce(channel)

    def _settle(self) -> None:
        """Draw the conclusions from connections that are over."""
        for peer, reason in self._channels.take_ended():
            if reason == LET_GO:
                # Evidence that nothing will renew must not stand: the next deployment would never ask that peer.
                if self._reachable.pop(peer, True) is False:
                    self._report(events.PeerReachable(peer, True))
                continue
            self.counters[f"down_{reason}"] += 1
            self._subscribers.link_down(peer)
            if reason not in ("moved", "forgotten"):
                self._reach(peer, reachable=False)

    def _reach(self, peer: NodeId, *, reachable: bool) -> None:
        if self._reachable.get(peer) is not reachable:
            self._reachable[peer] = reachable
            self._report(events.PeerReachable(peer, reachable))

    # ---- small things --------------------------------------------------------------------------

    def _say_if_up(self, channel: PeerChannel | None, message: control.Message) -> None:
        if channel is None or channel.state is not ChannelState.UP:
            return
        if not channel.queue.put(message):
            self.counters[f"dropped_{type(message).__name__}"] += 1
            return
        self._announce(channel)

    def _announce(self, channel: PeerChannel) -> None:
        if channel.state is ChannelState.UP and channel.queue and not channel.is_ready:
            channel.is_ready = True
            self._commands.append(SendReady(channel.peer))

    def _report(self, event: events.Event) -> None:
        self._commands.append(ReportEvent(event))
