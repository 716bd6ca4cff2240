"""Three observers hear all that one member ever signed, each in its own order and as often as it likes.

A machine of hypothesis lets the subject sign (a newer record, a new life, a contradiction, a goodbye) and hands any of
it to any observer at any time. What must hold: belief only moves up, nobody is brought back from a goodbye by words of
that life, sums match what they sum up, and all that have heard all believe the same.
"""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from msgspec.structs import replace

from membership import wire
from membership.member import Member, MemberState
from membership.node import ALIVE_LABEL, LEAVE_LABEL
from membership.record import sign_record
from tests.membership.checkers import marks
from tests.membership.simulated_cluster import FORWARDER, RING, SimulatedCluster

SUBJECT, OBSERVERS = 1, (0, 2, 3)


class MergingMachine(RuleBasedStateMachine):
    """See the module."""

    def __init__(self) -> None:
        super().__init__()
        self.cluster = SimulatedCluster(4, racks=4, seed=5)
        self.cluster.start_all_known()
        host = self.cluster.hosts[SUBJECT]
        self.handle, self.node = host.node[:8], host.node
        self.sign = self.cluster.keys.signer(host.public)
        self.record = self.cluster.swim(SUBJECT).self_record()
        self.incarnation = 0
        self.has_left = False
        self.said: list[bytes] = []
        self.heard: dict[int, set[int]] = {observer: set() for observer in OBSERVERS}
        self.best: dict[int, tuple[int, int]] = dict.fromkeys(OBSERVERS, (0, 0))

    # ---- the subject ---------------------------------------------------------------------------------

    @rule(payload=st.binary(max_size=8))
    def say_a_newer_record(self, payload: bytes) -> None:
        self.record = replace(self.record, version=self.record.version + 1, payload=payload)
        self._say_record()

    @rule(ahead=st.integers(1, 3))
    def begin_a_new_life(self, ahead: int) -> None:
        self.record = replace(self.record, boot=self.record.boot + ahead, version=1)
        self.incarnation, self.has_left = 0, False
        self._say_record()

    @precondition(lambda self: not self.has_left)
    @rule(ahead=st.integers(1, 3))
    def contradict(self, ahead: int) -> None:
        self.incarnation += ahead
        part = wire.claim_part(self.handle, self.record.boot, self.incarnation)
        self.said.append(wire.item(wire.ALIVE, part + self.sign(ALIVE_LABEL + RING.cluster_id + part)))

    @precondition(lambda self: not self.has_left)
    @rule()
    def leave(self) -> None:
        self.has_left = True
        part = wire.claim_part(self.handle, self.record.boot, self.incarnation)
        self.said.append(wire.item(wire.LEAVE, part + self.sign(LEAVE_LABEL + RING.cluster_id + part)))

    def _say_record(self) -> None:
        self.said.append(wire.item(wire.RECORD, sign_record(self.record, RING.cluster_id, self.sign)[1]))

    # ---- the observers -------------------------------------------------------------------------------

    @precondition(lambda self: self.said)
    @rule(observer=st.sampled_from(OBSERVERS), picks=st.lists(st.integers(0, 10_000), min_size=1, max_size=8))
    def hear(self, observer: int, picks: list[int]) -> None:
        places = [pick % len(self.said) for pick in picks]
        left_before = self._belief(observer).state is MemberState.LEFT
        boot_before = self._belief(observer).record.boot
        self.cluster.swim(observer)._items.take([self.said[place] for place in places], 1.0, FORWARDER)
        self.heard[observer].update(places)
        belief = self._belief(observer)
        if left_before and belief.record.boot == boot_before:
            assert belief.state is MemberState.LEFT, "brought back from a goodbye by words of that life"

    def _belief(self, observer: int) -> Member:
        row = self.cluster.swim(observer).member(self.node)
        assert row is not None
        return row

    @invariant()
    def belief_only_moves_up(self) -> None:
        for observer in OBSERVERS:
            row = self._belief(observer)
            now = (row.record.boot, row.record.version)
            assert now >= self.best[observer]
            self.best[observer] = now

    @invariant()
    def nobody_believes_more_than_was_said(self) -> None:
        for observer in OBSERVERS:
            row = self._belief(observer)
            assert (row.record.boot, row.record.version) <= (self.record.boot, self.record.version)
            if row.record.boot == self.record.boot:
                assert row.incarnation <= self.incarnation

    @invariant()
    def sums_match_what_they_sum_up(self) -> None:
        for observer in OBSERVERS:
            swim = self.cluster.swim(observer)
            assert swim.view_digest == sum(mark for _, mark in marks(swim)) % 2**64

    def teardown(self) -> None:
        """Everybody hears all of it, each in another order: all believe the last word."""
        for number, observer in enumerate(OBSERVERS):
            rest = self.said if number == 0 else self.said[::-1] if number == 1 else self.said[1::2] + self.said[::2]
            # Words of a life are understood only after its record: what came too early is said again, as gossip does.
            for _ in range(3):
                self.cluster.swim(observer)._items.take(rest, 2.0, FORWARDER)
        beliefs = set()
        for row in map(self._belief, OBSERVERS):
            # Who has left is in no sum, and what it contradicted before it left is of no interest any more.
            incarnation = None if row.state is MemberState.LEFT else row.incarnation
            beliefs.add((row.record.boot, row.record.version, row.record.payload, incarnation, row.state))
        assert len(beliefs) == 1
        assert len({self.cluster.swim(observer).view_digest for observer in OBSERVERS}) == 1


TestMergingMachine = MergingMachine.TestCase
TestMergingMachine.settings = settings(max_examples=25, stateful_step_count=30, deadline=None)
