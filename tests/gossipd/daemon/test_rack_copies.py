"""Which hosts keep a version for their rack: those that live, are in it, and have shown all that they tell count."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import trio
import trio.testing

from gossipd.core.ids import DeploymentId
from gossipd.core.reasons import HostReason
from gossipd.daemon.rack_copies import RackCopies
from gossipd.deployment.copy_proofs import FAILED_S, PROMISED_S
from gossipd.deployment.eviction_plan import keepers
from gossipd.deployment.lost_copies import RackView
from gossipd.deployment.progress_record import HostState, Progress, progress_key
from gossipd.deployment.progress_table import ClusterProgress
from membership.member import NodeId

ONE = DeploymentId(b"m" * 32)
NODES = [NodeId(bytes([number]) * 16) for number in range(4)]
FIRST, SECOND, THIRD, FOURTH = keepers(ONE, NODES, 4)


class Rack:
    """Four hosts of one rack that live and have it, as one of them sees it."""

    def __init__(self, own: NodeId, *, replicas: int = 2) -> None:
        self.table = ClusterProgress()
        self.living = set(NODES) - {own}
        self.racks = dict.fromkeys(NODES, "r1")
        for node in NODES:
            self.tell(node, Progress(state=HostState.COMPLETE))
        config = SimpleNamespace(node=SimpleNamespace(rack="r1"), store=SimpleNamespace(replicas=replicas))
        directory = SimpleNamespace(
            own=own, live=lambda: self.living, record=lambda node: SimpleNamespace(rack=self.racks[node])
        )
        self.liars: set[NodeId] = set()
        self.asked: list[NodeId] = []
        self.answer: bool | None = True
        self.copies = RackCopies(
            cast(Any, SimpleNamespace(config=config)), self.table, cast(Any, directory), cast(Any, self)
        )

    async def has(self, deployment: DeploymentId, node: NodeId) -> bool | None:
        self.asked.append(node)
        return self.answer and node not in self.liars

    def tell(self, node: NodeId, progress: Progress) -> None:
        key = progress_key(ONE)
        self.table.record(node, key, self.table.version(node, key) + 1, progress, now=0.0)

    def keeps(self) -> bool:
        return self.copies.keeps(ONE)

    def view(self) -> RackView:
        return self.copies.view(ONE)


async def test_so_many_hosts_of_a_rack_keep_it_and_agree_on_which() -> None:
    assert [node for node in NODES if Rack(node).keeps()] == sorted((FIRST, SECOND))
    assert [node for node in NODES if Rack(node, replicas=0).keeps()] == []
    assert [node for node in NODES if Rack(node, replicas=9).keeps()] == NODES


async def test_a_host_that_is_dead_has_evicted_it_or_is_elsewhere_does_not_count() -> None:
    rack = Rack(THIRD)
    assert not rack.keeps()
    rack.living.discard(FIRST)
    assert rack.keeps()
    rack = Rack(THIRD)
    rack.tell(SECOND, Progress(state=HostState.EVICTED))
    assert rack.keeps()
    rack = Rack(THIRD)
    rack.racks[FIRST] = "r2"
    assert rack.keeps()


async def test_a_host_with_a_part_or_a_rest_does_not_count() -> None:
    for told in (
        Progress(state=HostState.COMPLETE, want="ep:0/2", chunks_wanted=3, bytes_wanted=9),
        Progress(state=HostState.DOWNLOADING, chunks_verified=3),
    ):
        rack = Rack(THIRD)
        rack.tell(FIRST, told)
        assert rack.keeps()


async def test_a_copy_that_is_on_its_way_counts_and_one_that_cannot_come_does_not() -> None:
    rack = Rack(FIRST)
    assert rack.view() == RackView(3, frozenset({FIRST}))
    rack.tell(SECOND, Progress(state=HostState.EVICTED, reason=HostReason.EVICTED))
    assert rack.view() == RackView(2, frozenset({FIRST, SECOND}))
    rack.tell(SECOND, Progress(state=HostState.DOWNLOADING))
    assert rack.view() == RackView(3, frozenset({FIRST}))
    rack.tell(SECOND, Progress(state=HostState.INIT, reason=HostReason.NO_SPACE))
    rack.tell(THIRD, Progress(state=HostState.DOWNLOADING, want="ep:0/2", chunks_wanted=3, bytes_wanted=9))
    assert rack.view() == RackView(1, frozenset({FIRST}))
    rack.living.discard(FOURTH)
    rack.tell(THIRD, Progress(state=HostState.REMOVED))
    assert rack.view() == RackView(0, frozenset({FIRST}))


async def test_a_host_that_lies_of_its_copy_makes_no_other_give_up_one() -> None:
    for liars in ({FIRST}, {SECOND}):
        rack = Rack(THIRD)
        rack.liars = liars
        assert not rack.keeps(), "as all have told"
        assert not await rack.copies.is_spare(ONE)
        assert rack.keeps(), "so that another version is evicted"
    rack = Rack(FOURTH)
    rack.liars = {FIRST}
    assert await rack.copies.is_spare(ONE), "two others have it"
    assert (set(rack.asked[:2]), rack.asked[2:]) == ({FIRST, SECOND}, [THIRD])


async def test_a_host_whose_copy_is_one_too_many_gives_it_up_at_once() -> None:
    rack = Rack(FOURTH)
    assert await rack.copies.is_spare(ONE)
    assert sorted(rack.asked) == sorted((FIRST, SECOND))
    assert await rack.copies.is_spare(ONE)
    assert len(rack.asked) == 2, "what was shown lately counts"
    assert not await Rack(SECOND).copies.is_spare(ONE)
    assert await Rack(FIRST, replicas=0).copies.is_spare(ONE), "the operator wants none"


async def test_a_busy_host_is_asked_again_and_its_copy_counts_then(autojump_clock: trio.testing.MockClock) -> None:
    rack = Rack(THIRD)
    rack.liars = {FIRST}
    assert not await rack.copies.is_spare(ONE)
    rack.liars = set()
    await trio.sleep(FAILED_S)
    assert await rack.copies.is_spare(ONE)


async def test_who_reads_no_manifest_gives_up_no_copy_and_misses_none() -> None:
    rack = Rack(THIRD)
    rack.answer = None
    assert not await rack.copies.is_spare(ONE)
    assert rack.keeps()
    rack = Rack(THIRD)
    rack.answer = None
    assert await rack.copies.look_again(ONE)
    assert rack.view().copies == 3


async def test_a_lie_hides_no_lost_copy(autojump_clock: trio.testing.MockClock) -> None:
    rack = Rack(FIRST)
    rack.tell(SECOND, Progress(state=HostState.EVICTED, reason=HostReason.EVICTED))
    rack.liars = {THIRD}
    assert rack.view().copies == 2
    assert await rack.copies.look_again(ONE)
    assert rack.view().copies == 1
    assert not await rack.copies.look_again(ONE), "none is asked all the time"
    await trio.sleep(2 * FAILED_S)
    assert rack.view().copies == 1
    assert await rack.copies.look_again(ONE)
    assert (set(rack.asked[:2]), rack.asked[2:]) == ({THIRD, FOURTH}, [THIRD])
    rack.liars = set()
    await trio.sleep(FAILED_S)
    await rack.copies.look_again(ONE)
    assert rack.view().copies == 2


async def test_a_copy_that_is_on_its_way_for_ever_hides_no_lost_one(autojump_clock: trio.testing.MockClock) -> None:
    rack = Rack(FIRST)
    rack.tell(SECOND, Progress(state=HostState.DOWNLOADING, chunks_verified=1))
    assert rack.view().copies == 3
    await trio.sleep(PROMISED_S)
    rack.tell(SECOND, Progress(state=HostState.EVICTED, reason=HostReason.EVICTED))
    rack.view()
    rack.tell(SECOND, Progress(state=HostState.DOWNLOADING, chunks_verified=2))
    assert rack.view().copies == 2
