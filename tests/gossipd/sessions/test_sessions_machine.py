"""Announcements from one host to another over connections that break and lose: a subscription that is current is right.

A machine of hypothesis drives the sessions of both ends of one subscription, and what a planner would make of their
reports. Messages are lost, connections fail, either end restarts. What must hold: a subscription that is current and
has nothing under way shows exactly what the other end holds; and it gets there by itself.
"""

from __future__ import annotations

from collections import deque
from random import Random

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from gossipd.core.chunkset import ChunkSet
from gossipd.core.events import DeltaHeard, HoldingsHeard, SendDelta, SendHoldings, StartSubscription, SubscribeHeard
from gossipd.core.targets import Targets
from gossipd.sessions.events import Dial, LinkDown, LinkUp, MessageHeard, ReportEvent
from gossipd.sessions.peer_channel import Endpoint
from gossipd.sessions.send_queue import DeltaPayload, Outgoing
from gossipd.sessions.sessions import Sessions
from gossipd.sessions.settings import SessionSettings
from gossipd.wire import control
from gossipd.wire.control import Hello, Message
from membership.member import NodeId
from tests.gossipd.sessions.driving import MODEL, opened

SPEAKER, LISTENER = NodeId(b"t" * 16), NodeId(b"h" * 16)
CHUNKS = 12
SETTINGS = SessionSettings(redial_min_s=0.0, redial_max_s=0.0)
CHUNK = st.integers(0, CHUNKS - 1)


class _Everywhere:
    def endpoint_of(self, node: NodeId) -> Endpoint | None:
        return Endpoint(node.hex(), 1, b"k" * 32)

    def has_answered(self, node: NodeId) -> bool:
        return bool(node)

    def is_target(self, node: NodeId, targets: Targets) -> bool:
        return True


class AnnouncementMachine(RuleBasedStateMachine):
    """See the module."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.lives = 0
        self.held: set[int] = set()
        self.seen: set[int] | None = None
        self.questions_arrive = True
        self.wire: deque[Outgoing] = deque()  # from the speaker to the listener
        self.speaker = self._started()
        self.listener = self._started()
        self._listen()
        self.send()
        self.arrive(count=1)

    def _started(self) -> Sessions:
        self.lives += 1
        sessions = Sessions(_Everywhere(), greeting=Hello("test"), settings=SETTINGS, rng=Random(self.lives))
        sessions.handle(opened(chunks=CHUNKS), self.now)
        return sessions

    def _listen(self) -> None:
        self.listener.handle(StartSubscription(SPEAKER, MODEL), self.now)
        self._settle()

    # ---- the planner and the transport -------------------------------------------------------------

    def _settle(self) -> None:
        """Dials succeed and reports are acted on; questions arrive at once, or never."""
        busy = True
        while busy:
            busy = False
            for sessions, peer in ((self.speaker, LISTENER), (self.listener, SPEAKER)):
                sessions.advance(self.now)
                for command in sessions.drain():
                    busy = True
                    if isinstance(command, Dial):
                        sessions.handle(LinkUp(peer), self.now)
                    elif isinstance(command, ReportEvent):
                        self._reported(command)
            while (outgoing := self.listener.take(SPEAKER)) is not None:
                busy = True
                if self.questions_arrive and isinstance(outgoing.message, control.Subscribe):
                    self.speaker.handle(MessageHeard(LISTENER, outgoing.message, outgoing.number), self.now)

    def _reported(self, command: ReportEvent) -> None:
        event = command.event
        if isinstance(event, SubscribeHeard):
            self.speaker.handle(SendHoldings(LISTENER, MODEL, ChunkSet.of(CHUNKS, self.held), 4), self.now)
        elif isinstance(event, HoldingsHeard):
            self.seen = set(event.chunks)
        elif isinstance(event, DeltaHeard) and self.seen is not None:
            self.seen = (self.seen | set(event.added)) - set(event.dropped)

    @rule(changed=st.sets(CHUNK, min_size=1, max_size=4), is_sent=st.booleans())
    def announce(self, changed: set[int], is_sent: bool) -> None:
        self._announce(changed)
        if is_sent:
            self.send()

    def _announce(self, changed: set[int]) -> None:
        """What is held is dropped, what is not is added."""
        added, dropped = tuple(changed - self.held), tuple(changed & self.held)
        self.held ^= changed
        self.speaker.handle(SendDelta((LISTENER,), MODEL, added, dropped, (), 4), self.now)
        self._settle()

    @rule()
    def send(self) -> None:
        while (outgoing := self.speaker.take(LISTENER)) is not None:
            if not isinstance(outgoing.message, Hello):
                self.wire.append(outgoing)

    @rule(data=st.data())
    def lose(self, data: st.DataObject) -> None:
        if self.wire:
            del self.wire[data.draw(st.integers(0, len(self.wire) - 1))]

    @rule(count=st.integers(1, 9), questions_arrive=st.sampled_from([True, True, False]))
    def arrive(self, count: int, questions_arrive: bool = True) -> None:
        self.questions_arrive = questions_arrive
        for _ in range(min(count, len(self.wire))):
            outgoing = self.wire.popleft()
            said: Message | DeltaPayload = outgoing.message
            message = said.message if isinstance(said, DeltaPayload) else said
            self.listener.handle(MessageHeard(SPEAKER, message, outgoing.number), self.now)
            self._settle()

    @rule(seconds=st.sampled_from([0.1, 3.0, 6.0]), questions_arrive=st.booleans())
    def wait(self, seconds: float, questions_arrive: bool = True) -> None:
        self.questions_arrive = questions_arrive
        self.now += seconds
        self._settle()

    # ---- what goes wrong -----------------------------------------------------------------------------

    @rule(what=st.sampled_from(["speaker restarts", "listener restarts", "speaker's link", "listener's link"]))
    def fail(self, what: str) -> None:
        if what == "listener's link":
            self.listener.handle(LinkDown(SPEAKER, "lost"), self.now)
            return self._settle()
        self.wire.clear()
        if what == "speaker restarts":
            self.speaker = self._started()
            self.listener.handle(LinkDown(SPEAKER, "lost"), self.now)
        else:
            self.speaker.handle(LinkDown(LISTENER, "lost"), self.now)
        if what == "listener restarts":
            self.seen, self.listener = None, self._started()
            self._listen()
        self._settle()

    # ---- what always holds ---------------------------------------------------------------------------

    def _is_current(self) -> bool:
        """The listener has had Holdings of this life of the speaker, and all that was sent since."""
        subscription = self.listener._exchange.subscriptions._by_peer[SPEAKER][MODEL]
        channel = self.speaker._channels.get(LISTENER)
        stream = self.speaker._exchange.subscribers._streams.get(MODEL)
        if channel is None or stream is None or subscription.stream != stream or subscription.number is None:
            return False
        return channel.queue._numbers.get(stream) == subscription.number

    @invariant()
    def a_current_subscription_is_right(self) -> None:
        channel = self.speaker._channels.get(LISTENER)
        if self._is_current() and not self.wire and (channel is None or not channel.queue):
            assert self.seen == self.held

    @invariant()
    def queues_are_bounded_by_the_model(self) -> None:
        channel = self.speaker._channels.get(LISTENER)
        assert channel is None or len(channel.queue._deltas) <= 1

    def teardown(self) -> None:
        """With nothing lost any more, the next delta and two waits are enough: a lost last delta shows by the next."""
        self._announce(set())
        for _ in range(3):
            self.send()
            self.arrive(count=len(self.wire))
            self.wait(2 * SETTINGS.resubscribe_s)
        assert self.seen == self.held


TestAnnouncementMachine = AnnouncementMachine.TestCase
TestAnnouncementMachine.settings = settings(max_examples=200, stateful_step_count=40, deadline=None)
