"""The entry of the sessions brain: which part an event concerns, which connections are wanted, who can be reached.

What lives here: which part an event concerns, which connections are wanted, and evidence of who can be reached. What
does not: what is said of deployments (``exchange``), dialing (``channel_table``), sockets and frames
(``gossipd.control``), whom to listen to and what to say (the planner).

How a caller drives it, in one task::

    sessions.handle(event, now)          # for each event, in the order they happened
    sessions.advance(now)                # when next_deadline has come
    for command in sessions.drain(): perform(command)
    sessions.take(peer)                  # after SendReady(peer): send each message until there is none

* ``now`` is a monotonic clock in seconds that never goes back.
* The planner's ``StartSubscription``, ``EndSubscription``, ``SendHoldings`` and ``SendDelta`` come as they are; so do
  ``DeploymentOpened``, ``DeploymentClosed`` and ``PeerLost``, to the planner first.
* ``Dial`` ends in ``LinkUp`` or ``LinkDown``, or in a ``HangUp`` from here. A ``LinkDown`` is answered with ``HangUp``.
* Messages are taken, not pushed: what a peer that reads slowly has not been sent yet must stay here to be merged. A
  message that could not be sent now is put back, and the caller tries again by itself.
* ``ReportEvent`` carries the planner's events: ``HoldingsHeard``, ``DeltaHeard``, ``SubscribeHeard``,
  ``UnsubscribeHeard``, ``PeerReachable``. ``SubscribeHeard`` comes for deployments that are open here, and no others.

Everything that a host says of itself goes over the connection that it dials to a peer. So two talking peers hold two
connections, each with one direction of initiative, and a failure is evidence about exactly one peer.

Losses. After a lost connection both ends repair by themselves: a subscriber asks again when its own connection is up,
and a host whose connection to a subscriber broke reports that the subscriber asks again. So a subscriber may get
Holdings twice, never announcements with a hole in them. A host that is sent Holdings and listens to nobody there, as it
has restarted or its Unsubscribe was lost, declines them. A question without an answer is repeated from here and from
nowhere else; whether a peer that has answered is silent for too long is the planner's to judge, which then asks again.
"""

from __future__ import annotations

from collections import Counter
from random import Random

from gossipd.core import events
from gossipd.sessions import events as session_events
from gossipd.sessions.channel_table import LET_GO, ChannelTable, EndpointDirectory, LinkCounts
from gossipd.sessions.exchange import DeploymentExchange
from gossipd.sessions.send_queue import Outgoing
from gossipd.sessions.settings import SessionSettings
from gossipd.wire import control
from membership.member import NodeId


class Sessions:
    """See the module's docstring. One task owns it. ``greeting`` is the first message on each connection."""

    def __init__(
        self, directory: EndpointDirectory, *, greeting: control.Hello, settings: SessionSettings, rng: Random
    ) -> None:
        self._greeting = greeting
        self._channels = ChannelTable(directory, settings=settings, rng=rng)
        self._exchange = DeploymentExchange(self._channels, settings=settings, rng=rng)
        self._commands, self.counters = self._channels.commands, self._channels.counters
        self._standing: frozenset[NodeId] = frozenset()
        self._requests: Counter[NodeId] = Counter()
        self._reachable: dict[NodeId, bool] = {}

    # ---- the caller's side ---------------------------------------------------------------------

    def handle(self, event: session_events.SessionEvent, now: float) -> None:
        """Take one event in."""
        match event:
            case session_events.MessageHeard():
                self._exchange.message_heard(event.peer, event.message, event.number, now)
            case events.SendDelta():
                self._exchange.send_delta(event, now)
            case events.SendHoldings():
                self._exchange.send_holdings(event, now)
            case events.StartSubscription() | events.EndSubscription():
                self._exchange.wish_changed(event, now)
            case events.DeploymentOpened() | events.DeploymentClosed():
                self._exchange.deployment_changed(event, now)
                if isinstance(event, events.DeploymentOpened):
                    self._channels.hurry(*self._standing)
                    self._channels.try_failed(now)
            case session_events.RequestChanged():
                self._request_changed(event, now)
            case session_events.StandingLinksChosen():
                self._choose_standing(event, now)
            case session_events.LinkUp():
                self._link_up(event.peer, now)
            case session_events.LinkDown():
                self._channels.down(event.peer, event.reason, now)
            case session_events.EndpointChanged():
                self._endpoint_changed(event.peer, now)
            case events.PeerLost():
                self._peer_lost(event.node)
        self._settle()

    def advance(self, now: float) -> None:
        """Do what is due: dial, give up, let go, ask again."""
        self._channels.sweep(self._is_wanted, now)
        self._exchange.ask_again(now)
        self._settle()

    def drain(self) -> list[session_events.SessionCommand]:
        """The commands since the last call, in order."""
        commands = self._commands[:]
        self._commands.clear()
        return commands

    def next_deadline(self) -> float:
        """When ``advance`` should be called though no event has come; infinity while nothing is due."""
        return min(self._channels.next_deadline(), self._exchange.subscriptions.next_deadline())

    def put(self, peer: NodeId, message: control.Message, now: float, *, number: int = 0) -> bool:
        """Queue a message of the caller, a request for one; False when the peer is unknown or its queue is full."""
        is_queued = self._channels.put(peer, message, now, number=number)
        if peer in self._requests:
            self._channels.hurry(peer)  # the channel may be new, of a peer that has failed
        return is_queued

    def take(self, peer: NodeId) -> Outgoing | None:
        """The next message to send to ``peer``; None when there is none, or its connection is not up."""
        return self._channels.take(peer)

    def put_back(self, peer: NodeId, outgoing: Outgoing) -> None:
        """The message could not be sent now: it is the next one again."""
        self._channels.put_back(peer, outgoing)

    def statistics(self) -> dict[str, int]:
        """Counters since the start, by name."""
        parts = {
            "link": self._channels.link_counters,
            "follow": self._exchange.subscriptions.counters,
            "control": self.counters,
        }
        return {f"{part}_{name}": value for part, counters in parts.items() for name, value in counters.items()}

    def links(self) -> LinkCounts:
        """How many links there are now."""
        return self._channels.counts(standing=len(self._standing))

    # ---- which connections there are -----------------------------------------------------------

    def _peer_lost(self, peer: NodeId) -> None:
        self._exchange.drop_peer(peer)
        self._channels.drop(peer)
        self._reachable.pop(peer, None)

    def _choose_standing(self, event: session_events.StandingLinksChosen, now: float) -> None:
        for peer in self._standing - event.peers:
            channel = self._channels.get(peer)
            if channel is not None:
                channel.used_s = now  # it may be wanted again in a moment: it is idle from now on
                self._channels.review(peer, now)
        self._standing = event.peers
        missing = sorted(peer for peer in event.peers if self._channels.get(peer) is None)
        for peer in missing[: event.dials_max]:
            self._channels.open(peer, now)

    def _request_changed(self, event: session_events.RequestChanged, now: float) -> None:
        if event.is_open:
            self._requests[event.peer] += 1
            self._channels.hurry(event.peer)
            return
        self._requests[event.peer] -= 1
        if not self._requests[event.peer]:
            del self._requests[event.peer]
        self._channels.review(event.peer, now)

    def _is_wanted(self, peer: NodeId) -> bool:
        return peer in self._standing or peer in self._requests or self._exchange.is_between(peer)

    def _link_up(self, peer: NodeId, now: float) -> None:
        channel = self._channels.up(peer, now)
        if channel is None:
            return
        self._reach(peer, reachable=True)
        self.put(peer, self._greeting, now)
        self._exchange.link_up(peer, now)
        self._channels.announce(channel)

    def _settle(self) -> None:
        """Draw the conclusions from connections that are over."""
        for peer, reason in self._channels.take_ended():
            if reason == LET_GO:
                # Evidence that nothing will renew must not stand: the next deployment would never ask that peer.
                if self._channels.directory.has_answered(peer):
                    self._forget_evidence(peer)
                continue
            self.counters[f"down_{reason}"] += 1
            self._exchange.subscribers.link_down(peer)
            if reason not in ("moved", "forgotten"):
                self._reach(peer, reachable=False)

    def _forget_evidence(self, peer: NodeId) -> None:
        if self._reachable.pop(peer, True) is False:
            self._report(events.PeerReachable(peer, True))

    def _endpoint_changed(self, peer: NodeId, now: float) -> None:
        """The peer is elsewhere, or has answered. One that had never answered stays unreachable until it does, though
        nothing wants it: members that are made up would else have roles again and again."""
        if self._channels.get(peer) is None and self._channels.directory.has_answered(peer):
            self._forget_evidence(peer)
        self._channels.move(peer, now)
        self._exchange.peer_changed(peer, now)

    def _reach(self, peer: NodeId, *, reachable: bool) -> None:
        if self._reachable.get(peer) is not reachable:
            self._reachable[peer] = reachable
            self._report(events.PeerReachable(peer, reachable))

    def _report(self, event: events.Event) -> None:
        self._commands.append(session_events.ReportEvent(event))
