"""No chunk for three seconds has a reason, causes at home first and what hangs before what could not be begun."""

from __future__ import annotations

import pytest

from gossipd.core.chunkset import ChunkSet
from gossipd.core.events import FailReason, StallReason
from gossipd.core.ids import SOURCE
from gossipd.swarm.local_replica import LocalReplica
from gossipd.swarm.stall_detector import StallWatch
from tests.gossipd.swarm.planning import DEPLOYMENT, node, shape

RACK_PEER = node(1)


def replica() -> LocalReplica:
    """Nothing held, and no chunk since 0 s."""
    return LocalReplica(DEPLOYMENT, shape(8), ChunkSet.of(8, ()), now=0.0)


def judge(
    watch: StallWatch, now: float, of: LocalReplica | None = None, *, alone: bool = False, holders: bool = False,
    readers: bool = True, unreached: bool = False,
) -> StallReason | None:  # fmt: skip
    return watch.judge(of or replica(), now=now, alone=alone, holders=holders, readers=readers, unreached=unreached)


def test_nothing_is_said_before_three_seconds() -> None:
    assert judge(StallWatch(3.0), 2.9, holders=True) is None


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        ({"holders": True}, StallReason.ALL_BUSY),
        ({"readers": False}, StallReason.STORAGE),
        ({"alone": True}, StallReason.MEMBERSHIP),
        ({}, StallReason.NO_HOLDER),
        ({"unreached": True}, StallReason.HOLDER_SILENT),
        ({"unreached": True, "readers": False}, StallReason.HOLDER_SILENT),
        ({"unreached": True, "alone": True}, StallReason.HOLDER_SILENT),
        ({"unreached": True, "holders": True}, StallReason.HOLDER_SILENT),
    ],
)
def test_each_cause_has_its_word(facts: dict[str, bool], reason: StallReason) -> None:
    assert judge(StallWatch(3.0), 3.0, None, **facts) is reason


@pytest.mark.parametrize(
    ("failure", "reason"),
    [
        (FailReason.DISK, StallReason.DISK),
        (FailReason.CORRUPT, StallReason.VERIFICATION),
        (FailReason.SOURCE, StallReason.STORAGE),
        (FailReason.SLOW, StallReason.STORAGE),
        (FailReason.CANCELLED, StallReason.NO_HOLDER),
    ],
)
def test_a_read_that_failed_lately_explains_the_stall(failure: FailReason, reason: StallReason) -> None:
    watch = StallWatch(3.0)
    watch.read_failed(failure, 2.0)
    assert judge(watch, 4.0) is reason


@pytest.mark.parametrize(
    ("failure", "reason"),
    [
        (FailReason.DISK, StallReason.DISK),
        (FailReason.CORRUPT, StallReason.VERIFICATION),
        (FailReason.SLOW, StallReason.HOLDER_SILENT),
        (FailReason.BUSY, StallReason.ALL_BUSY),
    ],
)
def test_a_fetch_that_failed_lately_explains_the_stall(failure: FailReason, reason: StallReason) -> None:
    watch = StallWatch(3.0)
    watch.fetch_failed(RACK_PEER, failure, 2.0)
    assert judge(watch, 4.0, holders=True) is reason


def test_a_holder_that_was_cut_for_silence_explains_nothing_once_it_holds_nothing_or_four_stalls_have_passed() -> None:
    watch = StallWatch(3.0)
    watch.fetch_failed(RACK_PEER, FailReason.SLOW, 2.0)
    assert judge(watch, 4.0) is StallReason.NO_HOLDER
    assert judge(watch, 14.1, holders=True) is StallReason.ALL_BUSY


def test_a_read_that_hangs_is_storages_fault_as_soon_as_it_is_as_old_as_the_stall() -> None:
    hanging = replica()
    hanging.start(0, SOURCE, 1.0)
    assert judge(StallWatch(3.0), 3.9, hanging, holders=True) is StallReason.ALL_BUSY
    assert judge(StallWatch(3.0), 4.0, hanging, holders=True) is StallReason.STORAGE
    assert hanging.arrives(0, SOURCE)
    assert judge(StallWatch(3.0), 4.0, hanging, holders=True) is StallReason.STORAGE, "what drips holds us up as well"


def test_where_nobody_holds_anything_a_read_that_has_just_begun_is_what_is_waited_for() -> None:
    reading = replica()
    reading.start(0, SOURCE, 3.5)
    assert judge(StallWatch(3.0), 3.6, reading) is StallReason.STORAGE
    assert judge(StallWatch(3.0), 3.6, reading, alone=True) is StallReason.STORAGE


def test_a_holder_that_was_asked_and_neither_refuses_nor_sends_is_silent_and_not_busy() -> None:
    hanging = replica()
    hanging.start(0, RACK_PEER, 1.0)
    assert judge(StallWatch(3.0), 3.9, hanging, holders=True) is StallReason.ALL_BUSY
    assert judge(StallWatch(3.0), 4.0, hanging, holders=True) is StallReason.HOLDER_SILENT
    assert hanging.arrives(0, RACK_PEER)
    assert judge(StallWatch(3.0), 4.0, hanging, holders=True) is StallReason.ALL_BUSY, "it sends, but slowly"


def test_a_read_that_hangs_comes_before_holders_that_may_be_relaying_one() -> None:
    hanging = replica()
    hanging.start(0, RACK_PEER, 0.0)
    hanging.start(1, SOURCE, 0.0)
    assert judge(StallWatch(3.0), 3.0, hanging, holders=True) is StallReason.STORAGE


@pytest.mark.parametrize("supplier", [RACK_PEER, SOURCE])
def test_a_full_disk_comes_before_busy_peers_and_before_what_hangs(supplier: object) -> None:
    watch = StallWatch(3.0)
    watch.fetch_failed(RACK_PEER, FailReason.DISK, 2.0)
    assert judge(watch, 4.0, holders=True) is StallReason.DISK
    hanging = replica()
    hanging.start(0, supplier, 0.0)  # type: ignore[arg-type]
    assert judge(watch, 4.0, hanging, holders=True) is StallReason.DISK


def test_a_read_that_is_under_way_comes_before_holders_that_cannot_be_reached() -> None:
    reading = replica()
    reading.start(0, SOURCE, 3.5)
    assert judge(StallWatch(3.0), 3.6, reading, unreached=True) is StallReason.STORAGE


def test_a_peer_is_gone_until_a_chunk_comes_or_it_answers() -> None:
    watch = StallWatch(3.0)
    watch.fetch_failed(RACK_PEER, FailReason.GONE, 2.0)
    assert watch.gone(2.0) == [RACK_PEER]
    watch.fetch_failed(RACK_PEER, FailReason.BUSY, 3.0)
    assert watch.gone(2.0) == []
    watch.fetch_failed(RACK_PEER, FailReason.GONE, 4.0)
    assert watch.gone(4.1) == [], "a chunk has come since"
    assert watch.gone(0.0) == [], "it is forgotten"


def test_a_read_of_many_small_files_that_moves_is_not_told_as_failing() -> None:
    watch, of = StallWatch(3.0), replica()
    of.start(5, SOURCE, 0.0)
    of.moves(5, 8.0)
    assert judge(watch, 10.0, of) is None
    assert judge(watch, 11.5, of) is StallReason.STORAGE


def test_the_peer_that_is_silent_is_named_and_stays_named_while_it_is() -> None:
    watch, hanging = StallWatch(3.0), replica()
    hanging.start(0, RACK_PEER, 1.0)
    assert watch.silent_peer(hanging, [], 3.9) is None
    watch.named = watch.silent_peer(hanging, [node(3)], 4.0)
    assert watch.named == RACK_PEER, "what hangs comes before what cannot be connected to"
    hanging.land(0, RACK_PEER)
    watch.fetch_failed(RACK_PEER, FailReason.SLOW, 4.5)
    hanging.start(1, node(2), 0.0)
    assert watch.silent_peer(hanging, [], 5.0) == RACK_PEER, "one name while it explains the stall"
    watch.fetch_failed(RACK_PEER, FailReason.BUSY, 5.0)
    assert watch.silent_peer(hanging, [], 5.0) == node(2)
    assert watch.silent_peer(replica(), [node(3)], 5.0) == node(3)
    watch.fetch_failed(node(4), FailReason.SLOW, 5.0)
    assert watch.silent_peer(replica(), [], 17.1) is None, "four stalls have passed"


def test_peers_that_were_cut_are_forgotten_when_they_deliver_and_with_time() -> None:
    watch, other = StallWatch(3.0), node(2)
    for peer in (RACK_PEER, other):
        watch.fetch_failed(peer, FailReason.SLOW, 2.0)
    watch.delivered([RACK_PEER])
    assert (watch.cut(4.0), judge(watch, 4.0, holders=True)) == ([other], StallReason.HOLDER_SILENT)
    watch.delivered([other])
    assert (watch.cut(4.0), judge(watch, 4.0, holders=True)) == ([], StallReason.ALL_BUSY)
    for number in range(1000):
        watch.fetch_failed(node(number), FailReason.SLOW, 10.0 + number)
    assert len(watch._slow) <= 13, "also where nobody asks"
