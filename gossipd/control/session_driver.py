"""Drives the sessions: events in, and each command to the part that performs it.

What lives here: which part performs which command. What does not: any decision (``gossipd.sessions``), and sockets:
commands about connections wait here until the dialer takes them, in its own turn.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator
from random import Random
from typing import TypeAlias

import msgspec
import trio

from gossipd.control.delegate import ControlPort
from gossipd.control.requests import RequestTable
from gossipd.control.settings import ControlSettings
from gossipd.runtime.turn_loop import TurnLoop
from gossipd.sessions.events import (
    AskPeer,
    Dial,
    HangUp,
    KeepTokens,
    RefuseSubscriber,
    ReportEvent,
    SendReady,
    SessionEvent,
)
from gossipd.sessions.send_queue import Outgoing
from gossipd.sessions.sessions import Sessions
from gossipd.wire import control
from membership.member import NodeId

TransportCommand: TypeAlias = Dial | HangUp | SendReady


class SessionDriver:
    """One per control plane; everything is called on the trio loop."""

    def __init__(
        self, *, host: ControlPort, requests: RequestTable, settings: ControlSettings, rng: Random, turn_loop: TurnLoop
    ) -> None:
        self.sessions = Sessions(host, greeting=host.greeting(), settings=settings, rng=rng)
        self._host = host
        self._requests = requests
        self._turn_loop = turn_loop
        self._transport: deque[TransportCommand] = deque()  # bounded: a few for each channel, taken in batches
        self._due_s = math.inf

    def feed(self, event: SessionEvent) -> None:
        """Give the sessions one event, and perform what comes of it."""
        self.sessions.handle(event, trio.current_time())
        self._perform()

    def put(self, peer: NodeId, message: control.Message, *, number: int = 0) -> bool:
        """Queue a message for ``peer``; False when it is unknown or its queue is full."""
        is_queued = self.sessions.put(peer, message, trio.current_time(), number=number)
        self._perform()
        return is_queued

    def advance(self, now: float) -> None:
        """Do what is due."""
        if now >= self.sessions.next_deadline():
            self.sessions.advance(now)
            self._perform()

    def due_s(self) -> float:
        """When ``advance`` should be called next."""
        self._due_s = self.sessions.next_deadline()
        return self._due_s

    def take_transport(self) -> Iterator[TransportCommand]:
        """The commands about connections, in order; those that come of performing one are among them."""
        while self._transport:
            yield self._transport.popleft()

    def take(self, peer: NodeId) -> Outgoing | None:
        """The next message for ``peer``; Holdings get their tokens here, when they leave."""
        outgoing = self.sessions.take(peer)
        if outgoing is None or not isinstance(outgoing.message, control.Holdings) or outgoing.message.tokens:
            return outgoing
        tokens, valid_s = self._host.tokens_for(peer)
        return Outgoing(msgspec.structs.replace(outgoing.message, tokens=tokens, valid_s=valid_s), outgoing.number)

    def _perform(self) -> None:
        for command in self.sessions.drain():
            match command:
                case ReportEvent():
                    self._host.on_event(command.event)
                case KeepTokens():
                    self._host.on_tokens(command.peer, command.tokens, command.valid_s)
                case AskPeer():
                    self._host.ask(command.peer)
                case RefuseSubscriber():
                    self._host.on_subscriber_refused(command.peer, command.deployment)
                case HangUp():
                    self._requests.fail(command.peer, command.reason)
                    self._transport.append(command)
                case _:
                    self._transport.append(command)
        if self._transport or self.sessions.next_deadline() < self._due_s:
            self._turn_loop.wake()
