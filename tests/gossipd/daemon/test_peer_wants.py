"""Wants that other hosts have told reach the planner as chunks, once, and again when a deployment is opened again."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from gossipd.core.chunkset import ChunkSet
from gossipd.core.events import PeerWantHeard
from gossipd.daemon.peer_wants import WANTS_PER_S, PeerWants
from gossipd.deployment.progress_record import HostState, Progress, progress_key
from gossipd.deployment.progress_table import ClusterProgress, HostProgress
from gossipd.parts.part import choose_part
from gossipd.parts.want import parse_want
from membership.member import NodeId
from tests.gossipd.parts.models_of_tensors import expert_model, manifest_of

MANIFEST = manifest_of(expert_model())
WANTED = choose_part(MANIFEST, parse_want(["ep:1/4"])).wanted
OWN, PEER = NodeId(bytes(16)), NodeId(bytes(15) + b"\1")


class _Told:
    """The planner's driver, and the directory that knows this host."""

    own = OWN

    def __init__(self) -> None:
        self.events: list[PeerWantHeard] = []

    def post(self, event: PeerWantHeard) -> None:
        self.events.append(event)


def tell(table: ClusterProgress, node: NodeId, version: int, want: str, count: int) -> None:
    progress = Progress(state=HostState.DOWNLOADING, want=want, chunks_wanted=count)
    assert table.record(node, progress_key(MANIFEST.id), version, progress, now=0.0)


@pytest.fixture
def parts() -> tuple[PeerWants, _Told, ClusterProgress]:
    told, table = _Told(), ClusterProgress()
    driver: Any = told
    return PeerWants(driver=driver, directory=driver, progress=table), told, table


async def until(condition: Callable[[], object]) -> None:
    with trio.fail_after(120):
        while not condition():
            await trio.sleep(0.05)


def heard(chunks: ChunkSet) -> PeerWantHeard:
    return PeerWantHeard(PEER, MANIFEST.id, chunks)


def test_a_want_is_told_once_as_chunks_and_again_after_a_reopening(
    parts: tuple[PeerWants, _Told, ClusterProgress],
) -> None:
    wants, told, table = parts

    async def live() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(wants.run)
            tell(table, OWN, 1, "ep:0/4", 3)
            tell(table, PEER, 1, "ep:1/4", len(WANTED))
            wants.begin(MANIFEST)
            await until(lambda: told.events)
            wants.begin(MANIFEST)
            await until(lambda: len(told.events) == 2)
            tell(table, PEER, 2, "", 0)
            await until(lambda: len(told.events) == 3)
            tell(table, PEER, 3, "", 7)
            await until(lambda: len(told.events) == 4)
            wants.end(MANIFEST.id)
            tell(table, PEER, 4, "ep:9/99", 7)
            await trio.sleep(0.6)
            nursery.cancel_scope.cancel()

    trio.run(live)
    size = MANIFEST.chunk_count
    assert told.events == [heard(WANTED), heard(WANTED), heard(ChunkSet.full(size)), heard(ChunkSet(size))]


class _Counted(ClusterProgress):
    """Notes when its rows are gone through, and when its owner looks whether there is something to do."""

    def __init__(self) -> None:
        super().__init__()
        self.read_s: list[float] = []
        self.read: list[int] = []
        self.looks = 0

    def wants(self, key: bytes, nodes: Iterable[NodeId] | None = None) -> dict[NodeId, tuple[str, int]]:
        found = super().wants(key, nodes)
        self.read_s.append(trio.current_time())
        self.read.append(len(found))
        return found

    def host(self, node: NodeId, key: bytes) -> HostProgress | None:
        self.looks += 1
        return super().host(node, key)


async def test_a_resting_daemon_reads_wants_only_when_one_is_new(autojump_clock: MockClock) -> None:
    told, table = _Told(), _Counted()
    driver: Any = told
    wants = PeerWants(driver=driver, directory=driver, progress=table)
    table.record(OWN, progress_key(MANIFEST.id), 1, Progress(state=HostState.COMPLETE), now=0.0)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(wants.run)
        began_s = trio.current_time()
        wants.begin(MANIFEST)
        await trio.sleep(9.9)
        assert table.read_s == [began_s], "at once when the model is opened, and then no more"
        assert table.looks <= 12, "once a second"
        tell(table, PEER, 1, "", 7)
        await trio.sleep(1.1)
        nursery.cancel_scope.cancel()
    assert told.events == [heard(ChunkSet(MANIFEST.chunk_count))]
    assert len(table.read_s) == 2


async def test_while_a_model_is_under_way_a_want_is_heard_within_a_quarter_second(autojump_clock: MockClock) -> None:
    told, table = _Told(), ClusterProgress()
    driver: Any = told
    wants = PeerWants(driver=driver, directory=driver, progress=table)
    tell(table, OWN, 1, "ep:0/4", 3)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(wants.run)
        wants.begin(MANIFEST)
        await trio.sleep(5)
        tell(table, PEER, 1, "", 7)
        await trio.sleep(0.26)
        nursery.cancel_scope.cancel()
    assert told.events == [heard(ChunkSet(MANIFEST.chunk_count))]


def test_a_forgotten_host_that_returns_with_its_old_want_is_news() -> None:
    table, key = ClusterProgress(), progress_key(MANIFEST.id)
    tell(table, PEER, 1, "ep:1/4", 3)
    table.forget(PEER)
    assert table.take_wants_news() == {key: {PEER}}
    tell(table, PEER, 2, "ep:1/4", 3)
    assert table.take_wants_news() == {key: {PEER}}
    assert table.wants(key) == {PEER: ("ep:1/4", 3)}
    tell(table, PEER, 3, "ep:1/4", 3)
    assert table.take_wants_news() == {}


async def test_a_want_that_is_new_is_all_that_is_read(autojump_clock: MockClock) -> None:
    told, table = _Told(), _Counted()
    driver: Any = told
    wants = PeerWants(driver=driver, directory=driver, progress=table)
    for number in range(2, 102):
        tell(table, NodeId(number.to_bytes(16, "big")), 1, "", 0)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(wants.run)
        wants.begin(MANIFEST)
        await trio.sleep(1.1)
        tell(table, PEER, 1, "ep:1/4", len(WANTED))
        table.record(PEER, b"another.", 1, Progress(state=HostState.COMPLETE), now=0.0)
        await trio.sleep(1.1)
        nursery.cancel_scope.cancel()
    assert heard(WANTED) in told.events
    assert table.read == [100, 1]


async def test_a_host_that_always_wants_something_else_leaves_room_for_others(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[object] = []

    async def here(work: Any, *what: object) -> object:
        """In place of a thread, for which a clock that jumps does not wait."""
        looked.append(what[1])
        return work(*what)

    monkeypatch.setattr("gossipd.daemon.peer_wants.run_blocking", here)
    monkeypatch.setattr("gossipd.daemon.peer_wants.WANTS_MAX", 8)
    monkeypatch.setattr("gossipd.daemon.peer_wants.WANTS_BURST", 16)
    told, table = _Told(), ClusterProgress()
    driver: Any = told
    wants, liar = PeerWants(driver=driver, directory=driver, progress=table), NodeId(b"l" * 16)
    tell(table, OWN, 1, "ep:0/4", 3)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(wants.run)
        wants.begin(MANIFEST)
        for number in range(100):
            tell(table, liar, 1 + number, f"files:{number}*", 3)
            await trio.sleep(0.3)
        assert len(looked) == pytest.approx(16 + 30 * WANTS_PER_S, abs=2), "a bound for each host"
        tell(table, PEER, 1, "ep:1/4", len(WANTED))
        await trio.sleep(0.6)
        assert heard(WANTED) in told.events, "others' wants are worked out all the same"
        await trio.sleep(30)
        nursery.cancel_scope.cancel()
    assert wants._told[MANIFEST.id][liar] == "files:99*", "its last word counts in the end"
