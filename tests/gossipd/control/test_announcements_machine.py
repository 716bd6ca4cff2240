"""News from one node to another over links that break and lose: a follower that believes it is current is right.

A machine of hypothesis drives both ends of one subscription: the teller's followers and link queue, the hearer's table
of follows and the planner's picture of holdings. Frames are lost, links fail, either end restarts. What must hold: a
follow that is current and has nothing under way shows exactly what the teller holds; and it gets there by itself.
"""

from __future__ import annotations

from collections import deque

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from gossipd.control.peer_channel import DeltaPayload, PeerChannel
from gossipd.control.settings import ControlSettings
from gossipd.control.subscribers import Subscribers
from gossipd.control.subscription import SubscriptionTable
from gossipd.core.chunkset import ChunkSet
from gossipd.core.ids import DeploymentId
from gossipd.wire import control
from gossipd.wire.control_frame import decode, indexes
from membership.member import NodeId

MODEL = DeploymentId(b"m" * 32)
ANNOUNCER, HEARER = NodeId(b"t" * 16), NodeId(b"h" * 16)
CHUNKS = 12
RESUBSCRIBE_S = 5.0
CHUNK = st.integers(0, CHUNKS - 1)


class NewsMachine(RuleBasedStateMachine):
    """See the module."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.lives = 0
        self.held: set[int] = set()
        self.wire: deque[bytes] = deque()
        self._start_announcer()
        self._start_hearer()
        self.send()
        self.arrive(count=1, subscribe_arrives=True)

    def _start_announcer(self) -> None:
        self.lives += 1
        self.followers = Subscribers(first_stream=1000 * self.lives)
        self.channel = PeerChannel(HEARER, ControlSettings())
        self.wire.clear()

    def _start_hearer(self) -> None:
        self.following = SubscriptionTable(resubscribe_s=RESUBSCRIBE_S)
        self.seen: set[int] | None = None
        self.following.begin(ANNOUNCER, MODEL, self.now)
        self._ask()

    def _ask(self) -> None:
        """A Subscribe that arrives; it goes the other way, on another link."""
        self.followers.add(HEARER, MODEL)
        stream = self.followers.stream(MODEL)
        held = ChunkSet.of(CHUNKS, self.held)
        self.channel.put_holdings(stream, control.Holdings(MODEL, stream, CHUNKS, held.to_wire(), 4))

    # ---- the teller --------------------------------------------------------------------------------

    @rule(changed=st.sets(CHUNK, min_size=1, max_size=4), is_sent=st.booleans())
    def tell(self, changed: set[int], is_sent: bool) -> None:
        self._tell(changed)
        if is_sent:
            self.send()

    def _tell(self, changed: set[int]) -> None:
        """What is held is dropped, what is not is added."""
        added, dropped = changed - self.held, changed & self.held
        self.held ^= changed
        stream = self.followers.stream(MODEL)
        self.channel.put_news(stream, DeltaPayload.of(stream, tuple(sorted(added)), tuple(sorted(dropped)), (), 4))

    @rule()
    def teller_restarts(self) -> None:
        self._start_announcer()
        for deployment in self.following.link_up(ANNOUNCER, self.now):
            assert deployment == MODEL
            self._ask()

    @rule()
    def hearer_restarts(self) -> None:
        self.wire.clear()
        self.channel.failed(self.now, jitter=1.0)
        self._start_hearer()

    @rule()
    def link_fails_and_comes_back(self) -> None:
        self.wire.clear()
        self.channel.failed(self.now, jitter=1.0)
        self.channel.up(0.0)
        if self.followers.of(HEARER):  # what the plane does for followers whose link was broken
            self._ask()

    # ---- in between --------------------------------------------------------------------------------

    @rule()
    def send(self) -> None:
        while (frame := self.channel.next_frame()) is not None:
            self.wire.append(frame)

    @rule(data=st.data())
    def lose(self, data: st.DataObject) -> None:
        if self.wire:
            del self.wire[data.draw(st.integers(0, len(self.wire) - 1))]

    @rule(count=st.integers(1, 9), subscribe_arrives=st.booleans())
    def arrive(self, count: int, subscribe_arrives: bool) -> None:
        for _ in range(min(count, len(self.wire))):
            self._hear(self.wire.popleft(), subscribe_arrives=subscribe_arrives)

    @rule(seconds=st.sampled_from([0.1, 3.0, 6.0]), subscribe_arrives=st.booleans())
    def wait(self, seconds: float, subscribe_arrives: bool) -> None:
        self.now += seconds
        for peer, deployment in self.following.due(self.now):
            assert (peer, deployment) == (ANNOUNCER, MODEL)
            if subscribe_arrives:
                self._ask()

    def _hear(self, frame: bytes, *, subscribe_arrives: bool) -> None:
        decoded = decode(frame)
        assert decoded is not None
        message, number = decoded
        if isinstance(message, control.Holdings):
            if self.following.heard_holdings(ANNOUNCER, message.deployment, message.stream, number):
                self.seen = set(ChunkSet.from_wire(message.chunks, size=CHUNKS))
            return
        assert isinstance(message, control.Delta)
        deployment, ask = self.following.heard_delta(ANNOUNCER, message.stream, number, self.now)
        if deployment is not None and self.seen is not None:
            self.seen |= set(indexes(message.added, chunk_count=CHUNKS))
            self.seen -= set(indexes(message.dropped, chunk_count=CHUNKS))
        if ask and subscribe_arrives:
            self._ask()

    # ---- what always holds -------------------------------------------------------------------------

    def _is_current(self) -> bool:
        """The hearer has had Holdings of this life and no gap since."""
        follow = self.following._follows[ANNOUNCER][MODEL]
        stream = self.followers._streams.get(MODEL)
        if stream is None or follow.number is None or follow.stream != stream:
            return False
        return self.channel.streams.get(stream) == follow.number

    @invariant()
    def who_is_current_is_right(self) -> None:
        if self._is_current() and not self.wire and not self.channel.has_queued:
            assert self.seen == self.held

    @invariant()
    def queues_are_bounded_by_the_model(self) -> None:
        assert len(self.channel._news) <= 1

    def teardown(self) -> None:
        """With nothing lost any more, the next news and two waits are enough: a lost last word shows by the next."""
        self._tell(set())
        for _ in range(3):
            self.send()
            while self.wire:
                self._hear(self.wire.popleft(), subscribe_arrives=True)
            self.now += 2 * RESUBSCRIBE_S
            for _ in self.following.due(self.now):
                self._ask()
        assert self.seen == self.held


TestNewsMachine = NewsMachine.TestCase
TestNewsMachine.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
