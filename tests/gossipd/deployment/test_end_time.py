"""When a host had completed, by values: one that tells the truth, one that lies, one that is complete again."""

from __future__ import annotations

import pytest

from gossipd.deployment.end_time import with_end
from gossipd.deployment.progress_record import HostState, Progress
from gossipd.deployment.progress_table import ClusterProgress
from membership.member import NodeId

KEY, ONE, TWO = b"k" * 8, NodeId(b"1" * 16), NodeId(b"2" * 16)
NOW_S = 1_800_000_000


def complete(started_s: int, elapsed_s: int) -> Progress:
    return Progress(state=HostState.COMPLETE, chunks_verified=4, started_s=started_s, elapsed_s=elapsed_s)


def times(told: Progress) -> tuple[int, int]:
    return told.started_s - NOW_S, told.elapsed_s


@pytest.mark.parametrize(
    ("told", "counts"),
    [
        ((NOW_S - 10, 10), (-10, 10)),
        ((NOW_S - 90, 10), (-90, 10)),
        ((NOW_S + 3_590, 10), (-10, 10)),
        ((NOW_S + 3_600, 0), (0, 0)),
        ((NOW_S, 1 << 31), (1 - NOW_S, NOW_S - 1)),
        ((0, 0), (-NOW_S, 0)),
    ],
)
def test_no_host_was_complete_after_it_was_heard(told: tuple[int, int], counts: tuple[int, int]) -> None:
    assert times(with_end(complete(*told), None, NOW_S + 0.5)) == counts


def test_a_host_that_stays_complete_keeps_its_first_end() -> None:
    first = complete(NOW_S - 10, 10)
    assert times(with_end(complete(NOW_S + 990, 10), first, NOW_S + 5_000)) == (-10, 10)
    assert times(with_end(complete(NOW_S - 10, 1_010), first, NOW_S + 5_000)) == (-1_010, 1_010)
    assert times(with_end(complete(NOW_S - 30, 10), first, NOW_S + 5_000)) == (-30, 10)
    assert times(with_end(complete(NOW_S - 10, 10), complete(0, 0), NOW_S + 5_000)) == (-10, 10), "it began later"


def test_a_host_that_is_complete_again_has_another_end() -> None:
    repaired = Progress(state=HostState.DOWNLOADING, started_s=NOW_S - 10)
    assert times(with_end(complete(NOW_S - 10, 1_010), repaired, NOW_S + 5_000)) == (-10, 1_010)
    assert with_end(repaired, complete(NOW_S - 10, 10), NOW_S) is repaired


def test_one_host_cannot_say_that_a_deployment_ended_in_the_future() -> None:
    table = ClusterProgress()
    table.record(ONE, KEY, 1, complete(NOW_S - 20, 10), now=0.0)
    for version in range(1, 4):
        lie = complete(NOW_S + 3_600 * version, 100 * version)
        table.record(TWO, KEY, version, lie, now=float(version), is_signed=True, heard_s=NOW_S + version)
    totals = table.totals(KEY, [ONE, TWO], chunk_count=4, bytes_total=4, now=5.0)
    assert totals.completed_s == NOW_S + 1
    kept = ClusterProgress.from_bytes(table.to_bytes(), now=0.0, wall_s=NOW_S + 9_000)
    kept.record(TWO, KEY, 5, complete(NOW_S + 8_000, 1), now=1.0, is_signed=True, heard_s=NOW_S + 9_001)
    assert kept.totals(KEY, [ONE, TWO], chunk_count=4, bytes_total=4, now=5.0).completed_s == NOW_S + 1
