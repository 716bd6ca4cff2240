"""The progress record by values, and the table of all hosts' records."""

from __future__ import annotations

import gc
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from gossipd.core.events import StallReason
from gossipd.core.ids import DeploymentId
from gossipd.core.reasons import HostReason, reason_of_word
from gossipd.deployment.progress_record import (
    KEY_BYTES,
    RECORD_BYTES,
    Budget,
    HostState,
    Progress,
    ProgressFormatError,
    next_record_version,
    progress_key,
    refresh_interval_s,
)
from gossipd.deployment.progress_table import (
    LOADS_MAX,
    RATES_MAX,
    ROWS_PER_HOST_MAX,
    ClusterProgress,
    ProgressTableError,
    deployment_state,
    verified_bytes,
)
from membership.member import NodeId

MIB = 1 << 20
ID = DeploymentId(bytes(range(32)))
KEY = progress_key(ID)
BYTES_MAX = 1 << 44
START_S = 1_800_000_000
START_MS = START_S * 1000


def node(number: int) -> NodeId:
    return NodeId(number.to_bytes(16, "big"))


def halfway(chunks: int = 512, **fields: Any) -> Progress:
    return Progress(
        state=HostState.DOWNLOADING, reason=HostReason.NONE, chunks_verified=chunks, started_s=START_S, **fields
    )


def complete(chunks: int = 1024, **fields: Any) -> Progress:
    return Progress(
        state=HostState.COMPLETE,
        reason=HostReason.NONE,
        chunks_verified=chunks,
        started_s=START_S,
        elapsed_s=60,
        **fields,
    )


def fill(table: ClusterProgress, *said: Progress, version: int = START_MS) -> list[NodeId]:
    nodes = [node(n) for n in range(len(said))]
    for each, progress in zip(nodes, said, strict=True):
        assert table.record(each, KEY, version, progress, now=10.0)
    return nodes


def test_key_and_record_are_at_most_40_bytes() -> None:
    largest = Progress(
        state=HostState.EXPIRED,
        reason=HostReason.MEMORY,
        chunks_verified=10**9,
        source_bytes=2**80,
        peer_bytes_same_rack=2**80,
        peer_bytes_cross_rack=2**80,
        duplicate_bytes=2**80,
        corrupt_chunks=2**80,
        rate_in_bytes_per_s=2**80,
        rate_out_bytes_per_s=2**80,
        started_s=2**80,
        elapsed_s=2**80,
    )
    assert len(largest.to_bytes()) == RECORD_BYTES
    assert len(progress_key(ID)) + RECORD_BYTES == KEY_BYTES + RECORD_BYTES <= 40
    assert Progress.from_bytes(largest.to_bytes()).chunks_verified == 2**24 - 1


def test_a_record_of_whole_chunks_survives_the_wire_exactly() -> None:
    said = Progress(
        state=HostState.DOWNLOADING,
        reason=HostReason.ALL_BUSY,
        chunks_verified=31_250,
        source_bytes=29_802 * 16 * MIB,
        peer_bytes_same_rack=1_448 * 16 * MIB,
        peer_bytes_cross_rack=256 * 1024,
        duplicate_bytes=3 * 16 * MIB,
        corrupt_chunks=70_001,
        rate_in_bytes_per_s=1 << 30,
        rate_out_bytes_per_s=3 << 29,
        started_s=START_S,
        elapsed_s=0,
    )
    assert Progress.from_bytes(said.to_bytes()) == said


HOST_STATES_OF_0_1_0 = ("init", "downloading", "verifying", "complete", "failed", "cancelled", "expired")
COUNTERS = ("source_bytes", "peer_bytes_same_rack", "peer_bytes_cross_rack", "duplicate_bytes")


@given(st.integers(0, BYTES_MAX), st.integers(0, BYTES_MAX), st.sampled_from(COUNTERS))
def test_counters_keep_their_order_on_the_wire_and_are_never_overstated(one: int, other: int, field: str) -> None:
    def carried(value: int) -> int:
        said = Progress.from_bytes(halfway(**{field: value}).to_bytes())
        return int(getattr(said, field))

    low, high = sorted((one, other))
    assert carried(low) <= carried(high) <= high
    assert carried(high) >= high * (1 - (2**-26 if field != "duplicate_bytes" else 2**-18))


@given(st.binary(max_size=64))
def test_any_bytes_are_a_record_or_one_typed_error(record: bytes) -> None:
    try:
        said = Progress.from_bytes(record)
    except ProgressFormatError as error:
        assert error.code == "E_PROGRESS_FORMAT"
    else:
        assert len(said.to_bytes()) == RECORD_BYTES


def test_a_record_of_another_version_is_left_unread() -> None:
    with pytest.raises(ProgressFormatError, match="version 2, supported 1"):
        Progress.from_bytes(b"\x02" + halfway().to_bytes()[1:])


def test_a_reason_from_a_newer_version_is_still_a_reason() -> None:
    record = bytearray(halfway().to_bytes())
    record[1] |= 31
    assert Progress.from_bytes(bytes(record)).reason is HostReason.OTHER


def test_every_reason_of_a_stall_can_be_told_to_others() -> None:
    for stall in StallReason:
        record = replace(halfway(), reason=reason_of_word(stall.value)).to_bytes()
        assert Progress.from_bytes(record).reason.value == stall.value


@given(st.integers(1, 1_000_000), st.integers(0, BYTES_MAX), st.data())
def test_verified_bytes_are_exact_at_nothing_and_at_everything(chunks: int, size: int, data: st.DataObject) -> None:
    some = data.draw(st.integers(0, chunks))
    assert verified_bytes(0, chunks, size) == 0
    assert verified_bytes(chunks, chunks, size) == size
    assert verified_bytes(some, chunks, size) <= verified_bytes(min(some + 1, chunks), chunks, size) <= size


def test_a_record_that_was_judged_is_not_read_again() -> None:
    body = Progress(state=HostState.DOWNLOADING, chunks_verified=9).to_body()
    assert Progress.from_body(body) is Progress.from_body(bytes(bytearray(body)))


def test_a_version_is_the_time_but_never_goes_back() -> None:
    assert next_record_version(0, START_S) == START_MS
    assert next_record_version(START_MS + 5, START_S - 3600.0) == START_MS + 6


def test_records_are_renewed_each_second_in_small_clusters_and_less_often_in_large_ones() -> None:
    assert refresh_interval_s(1) == refresh_interval_s(50) == 1.0
    assert refresh_interval_s(1000) == 20.0


def test_totals_are_sums_over_the_hosts_and_reach_exactly_everything() -> None:
    table = ClusterProgress()
    size = 1024 * 256 * 1024 - 77
    nodes = fill(table, complete(source_bytes=size), halfway(peer_bytes_same_rack=100), halfway(0))
    totals = table.totals(KEY, nodes, chunk_count=1024, bytes_total=size, now=10.0)
    assert (totals.hosts_total, totals.hosts_complete, totals.chunks_verified) == (3, 1, 1024 + 512)
    assert totals.bytes_verified == size + size // 2
    assert totals.completed_s == 0
    nodes = fill(table, complete(), complete(), complete(), version=START_MS + 1)
    totals = table.totals(KEY, nodes, chunk_count=1024, bytes_total=size, now=10.0)
    assert totals.bytes_verified == 3 * size
    assert totals.completed_s == START_S + 60


def test_what_one_host_says_of_itself_moves_a_sum_by_a_few_sizes_of_the_model() -> None:
    table, size = ClusterProgress(), 1 << 20
    liar = halfway(source_bytes=1 << 60, peer_bytes_same_rack=1 << 60, corrupt_chunks=1 << 20)
    nodes = fill(table, complete(source_bytes=size), liar)
    totals = table.totals(KEY, nodes, chunk_count=1024, bytes_total=size, now=10.0)
    assert totals.source_bytes == size + LOADS_MAX * size
    assert (totals.peer_bytes_same_rack, totals.corrupt_chunks) == (LOADS_MAX * size, LOADS_MAX * 1024)


def test_what_one_host_says_of_its_rate_moves_the_sum_by_a_few_middle_rates() -> None:
    table = ClusterProgress()
    rates = (100, 110, RATES_MAX * 110, 0, 120, 1 << 60)
    nodes = fill(table, *(halfway(rate_in_bytes_per_s=rate) for rate in rates))
    totals = table.totals(KEY, nodes, chunk_count=1024, bytes_total=1 << 20, now=10.0)
    assert totals.rate_in_bytes_per_s == 100 + 110 + 120 + RATES_MAX * 110 + RATES_MAX * 120
    alone = table.totals(KEY, [], chunk_count=1024, bytes_total=1 << 20, now=1e9)
    assert alone.rate_in_bytes_per_s == 0


def test_an_older_record_is_not_news() -> None:
    table = ClusterProgress()
    fill(table, halfway(512), version=START_MS + 10)
    assert not table.record(node(0), KEY, START_MS + 10, halfway(1000), now=11.0)
    assert table.host(node(0), KEY).progress.chunks_verified == 512  # type: ignore[union-attr]


def test_a_record_that_only_repeats_leaves_the_table_s_revision() -> None:
    table = ClusterProgress()
    [one] = fill(table, complete())
    revisions = [table.revision]
    table.record(one, KEY, START_MS + 10, complete(), now=11.0)
    assert table.revision == revisions[0]
    table.record(one, KEY, START_MS + 20, complete(source_bytes=5 * MIB), now=12.0)
    revisions.append(table.revision)
    table.forget(one)
    revisions.append(table.revision)
    table.drop(KEY)
    revisions.append(table.revision)
    assert revisions == sorted(set(revisions))


def test_each_deployment_has_a_revision_of_its_own() -> None:
    table, other = ClusterProgress(rows_max=2), bytes(8)
    for key in (KEY, other):
        table.record(node(1), key, START_MS, complete(), now=10.0)
    before = table.revision_of(KEY)
    table.record(node(1), other, START_MS + 1, complete(source_bytes=5 * MIB), now=11.0)
    assert table.revision_of(KEY) == before < table.revision_of(other)
    table.record(node(2), other, START_MS, complete(), now=12.0)
    assert table.host(node(1), KEY) is None, "its oldest has given way"
    assert table.revision_of(KEY) != before


@pytest.mark.parametrize("seed", range(20))
def test_no_total_ever_falls_whatever_the_hosts_say(seed: int) -> None:
    rng = Random(seed)
    table = ClusterProgress()
    nodes = [node(n) for n in range(5)]
    last: tuple[int, ...] = (0,) * 7
    for step in range(200):
        table.record(
            rng.choice(nodes),
            KEY,
            START_MS + step,
            # A host that was installed again, lost its counters, or dropped rotten chunks says less than before.
            halfway(
                rng.randrange(1024),
                source_bytes=rng.randrange(BYTES_MAX),
                peer_bytes_same_rack=rng.randrange(BYTES_MAX),
                peer_bytes_cross_rack=rng.randrange(BYTES_MAX),
                duplicate_bytes=rng.randrange(BYTES_MAX),
                corrupt_chunks=rng.randrange(100),
            ),
            now=float(step),
        )
        if step == 100:
            saved = table.to_bytes()
            table = ClusterProgress.from_bytes(saved, now=0.0, wall_s=START_S)
        if step == 150:
            table.forget(nodes[0])
            nodes = nodes[1:]
        got = table.totals(KEY, nodes, chunk_count=1024, bytes_total=BYTES_MAX, now=float(step))
        traffic = (
            got.source_bytes, got.peer_bytes_same_rack, got.peer_bytes_cross_rack,
            got.duplicate_bytes, got.corrupt_chunks,
        )  # fmt: skip
        now = (*traffic, got.bytes_verified, got.chunks_verified)
        falls_with_its_host = 2 if step == 150 else 0
        kept = len(now) - falls_with_its_host
        assert all(new >= old for new, old in zip(now[:kept], last[:kept], strict=True)), step
        last = now


def test_a_saved_table_says_the_same_after_a_restart() -> None:
    table = ClusterProgress()
    nodes = fill(table, complete(source_bytes=5 * MIB), halfway(), halfway(3))
    table.forget(nodes[2])
    loaded = ClusterProgress.from_bytes(table.to_bytes(), now=0.0, wall_s=START_S + 30.0)
    for now, each in ((10.0, table), (0.0, loaded)):
        totals = each.totals(KEY, nodes[:2], chunk_count=1024, bytes_total=4 * MIB, now=now)
        assert (totals.hosts_complete, totals.source_bytes, totals.chunks_verified) == (1, 5 * MIB, 1536)
        assert each.host(nodes[2], KEY) is None
    assert loaded.host(nodes[0], KEY).age_s(0.0) == pytest.approx(30.0)  # type: ignore[union-attr]
    assert loaded.version(nodes[0], KEY) == START_MS


@given(st.binary(max_size=300))
def test_a_damaged_table_is_one_typed_error(saved: bytes) -> None:
    try:
        ClusterProgress.from_bytes(saved, now=0.0, wall_s=0.0)
    except ProgressTableError as error:
        assert error.code == "E_PROGRESS_TABLE"


def test_the_table_is_bounded() -> None:
    table = ClusterProgress(rows_max=2)
    fill(table, halfway(), halfway())
    assert not table.record(node(9), KEY, START_MS, halfway(), now=0.0)
    for number in range(100):
        assert not table.record(node(9), number.to_bytes(8, "big"), START_MS, halfway(), now=0.0)
    assert len(table._rows) == 1


def test_the_rates_of_a_host_that_fell_silent_are_not_believed_for_long() -> None:
    table = ClusterProgress()
    nodes = fill(table, halfway(rate_in_bytes_per_s=1024))
    assert table.totals(KEY, nodes, chunk_count=1024, bytes_total=1024, now=14.0).rate_in_bytes_per_s == 1024
    assert table.totals(KEY, nodes, chunk_count=1024, bytes_total=1024, now=16.0).rate_in_bytes_per_s == 0


def test_a_record_of_a_clock_that_ran_ahead_does_not_silence_its_host() -> None:
    table = ClusterProgress()
    [own] = fill(table, halfway(chunks=8), version=START_MS + 7_200_000)
    table.take_back(own, KEY, START_MS + 7_200_000)
    assert not table.record(own, KEY, START_MS, halfway(), now=10.0)
    table.take_back(own, KEY, START_MS + 3_600_000)
    assert table.record(own, KEY, START_MS, halfway(), now=10.0)
    assert table.version(own, KEY) == START_MS


@pytest.mark.parametrize("ahead_ms", [-7_200_000, 0, 7_200_000])
def test_age_counts_from_hearing_whatever_the_other_hosts_clock_says(ahead_ms: int) -> None:
    table = ClusterProgress()
    table.record(node(0), KEY, START_MS + ahead_ms, halfway(), now=100.0)
    assert table.host(node(0), KEY).age_s(103.0) == 3.0  # type: ignore[union-attr]


def test_a_host_forgotten_and_heard_again_is_a_host() -> None:
    table = ClusterProgress()
    nodes = fill(table, halfway(source_bytes=MIB))
    table.forget(nodes[0])
    assert table.host(nodes[0], KEY) is None
    fill(table, halfway(source_bytes=MIB), version=START_MS + 1)
    assert table.host(nodes[0], KEY) is not None


I, D, V, C, F, X, E, R, P, G = HostState  # noqa: E741


@pytest.mark.parametrize(
    ("states", "one_copy", "expected"),
    [
        ([], False, "init"),
        ([I, I], False, "init"),
        ([I, D], False, "downloading"),
        ([D, D], False, "downloading"),
        ([D, D], True, "distributing"),
        ([V, D], False, "distributing"),
        ([C, I], False, "distributing"),
        ([C, D, F], False, "distributing"),
        ([C, C], False, "complete"),
        ([C, F], False, "failed"),
        ([F, F], False, "failed"),
        ([C, E], False, "expired"),
        ([E, E], False, "expired"),
        ([X, X], False, "cancelled"),
        ([F, E, X], False, "failed"),
        ([F, I], False, "downloading"),
        ([C, R], False, "complete"),
        ([R, R], False, "removed"),
        ([G, G], False, "evicted"),
        ([R, G], False, "removed"),
        ([C, G], False, "complete"),
        ([D, G], False, "downloading"),
        ([D, R], False, "downloading"),
        ([F, R], False, "failed"),
        ([I, R], False, "init"),
        ([C, P], True, "paused"),
    ],
)
def test_a_deployment_is_in_the_end_what_its_hosts_are(states: list[HostState], one_copy: bool, expected: str) -> None:
    assert deployment_state(states, one_copy=one_copy) == expected
    is_over = expected in ("complete", "removed", "evicted")
    assert deployment_state(states, one_copy=one_copy, cancelled=True) == expected if is_over else "cancelled"


def test_a_removed_host_holds_nothing_and_hosts_of_0_1_0_read_it_as_cancelled() -> None:
    table = ClusterProgress()
    complete = replace(halfway(chunks=8), state=HostState.COMPLETE)
    gone = replace(halfway(chunks=8), state=HostState.REMOVED, reason=HostReason.REMOVED)
    assert gone.to_bytes()[1] == HOST_STATES_OF_0_1_0.index("cancelled") << 5 | HostReason.REMOVED.number
    assert Progress.from_bytes(gone.to_bytes()) == Progress.from_body(gone.to_body()) == gone
    nodes = fill(table, complete, complete)
    assert table.record(nodes[1], KEY, START_MS + 1, gone, now=10.0)
    for one in (table, ClusterProgress.from_bytes(table.to_bytes(), now=0.0, wall_s=START_S + 1)):
        totals = one.totals(KEY, nodes, chunk_count=8, bytes_total=8 * MIB, now=11.0)
        assert (totals.chunks_verified, totals.bytes_verified, totals.hosts_complete) == (8, 8 * MIB, 1)


@pytest.mark.parametrize(
    "reason", [HostReason.PAUSED, HostReason.REMOVED, HostReason.SUPERSEDED, HostReason.REFUSED_KEY]
)
def test_a_state_that_its_reason_tells_survives_a_restart(reason: HostReason) -> None:
    removed = dict.fromkeys((HostReason.REMOVED, HostReason.SUPERSEDED), HostState.REMOVED)
    state = {HostReason.PAUSED: HostState.PAUSED, **removed}.get(reason, HostState.FAILED)
    table = ClusterProgress()
    [host] = fill(table, replace(halfway(), state=state, reason=reason))
    loaded = ClusterProgress.from_bytes(table.to_bytes(), now=0.0, wall_s=START_S)
    row = loaded.host(host, KEY)
    assert row is not None
    assert (row.progress.state, row.progress.reason) == (state, reason)


def test_a_reason_and_a_mark_survive_a_restart_without_room_for_them_in_form_1() -> None:
    table = ClusterProgress()
    [host] = fill(table, replace(halfway(), reason=HostReason.REFUSED_KEY))
    table.forget(host)
    fill(table, replace(halfway(), reason=HostReason.REFUSED_KEY), version=START_MS + 1)
    loaded = ClusterProgress.from_bytes(table.to_bytes(), now=10.0, wall_s=START_S)
    row = loaded.host(host, KEY)
    assert row is not None
    assert row.progress.reason is HostReason.REFUSED_KEY
    assert loaded.to_bytes() == table.to_bytes()


def test_a_saved_record_from_the_future_is_dropped() -> None:
    table = ClusterProgress()
    [host] = fill(table, complete(), version=2**62)
    assert ClusterProgress.from_bytes(table.to_bytes(), now=10.0, wall_s=START_S).host(host, KEY) is None


def test_a_host_that_tells_of_very_much_pushes_out_only_its_own_rows() -> None:
    table = ClusterProgress(rows_max=4 * ROWS_PER_HOST_MAX)
    [honest, liar] = fill(table, halfway(), halfway())
    for number in range(3 * ROWS_PER_HOST_MAX):
        key = number.to_bytes(8, "big")
        table.record(liar, key, START_MS, halfway(), now=20.0 + number)
    assert table.host(honest, KEY) is not None
    assert table.host(liar, KEY) is None
    assert table.host(liar, key) is not None
    assert len(table.to_bytes()) < 80 * ROWS_PER_HOST_MAX
    assert len(table._rows) == ROWS_PER_HOST_MAX + 1, "of the others nothing is left"


def test_hosts_that_fill_the_table_together_silence_nobody_who_comes_later() -> None:
    table = ClusterProgress(rows_max=40)
    liars = [node(100 + number) for number in range(4)]
    for at, liar in enumerate(liars * 20):
        table.record(liar, at.to_bytes(8, "big"), START_MS, halfway(), now=float(at))
    loaded = ClusterProgress.from_bytes(table.to_bytes(), now=100.0, wall_s=START_S, rows_max=40)
    [honest] = fill(loaded, halfway())
    assert loaded.host(honest, KEY) is not None, "they were there first"
    for at, liar in enumerate(liars * 20, start=1000):
        loaded.record(liar, at.to_bytes(8, "big"), START_MS, halfway(), now=float(at))
    assert loaded.host(honest, KEY) is not None
    assert len(loaded.to_bytes()) == len(table.to_bytes()), "it does not grow"


def test_of_hosts_that_come_and_go_nothing_is_left_but_rows() -> None:
    table, random = ClusterProgress(rows_max=12), Random(5)
    keys = [number.to_bytes(8, "big") for number in range(4)]
    for number in range(400):
        told = halfway(budget=Budget(START_MS, number)) if random.random() < 0.5 else halfway()
        host = node(random.randrange(3) if random.random() < 0.7 else 100 + number)
        table.record(host, random.choice(keys), START_MS + number, told, now=float(number))
        if random.random() < 0.05:
            table.drop(random.choice(keys))
        rows = {(host, key) for key in table._rows for host in table._rows[key]}
        assert {(host, key) for host in table._keys for key in table._keys[host]} == rows
        assert all(table._keys.values()), "a host without rows is not kept"
        assert table._latest.keys() == {host for host, _ in rows}
        assert {(host, key) for key in table._budgets for host in table._budgets[key]} <= rows
    for key in keys:
        table.drop(key)
    assert not (table._rows or table._keys or table._latest or table._budgets or table._count or len(table._revisions))


def test_of_a_host_that_tells_of_very_much_what_it_tells_again_stays() -> None:
    table = ClusterProgress()
    [host] = fill(table, halfway())
    for number in range(2 * ROWS_PER_HOST_MAX):
        table.record(host, number.to_bytes(8, "big"), START_MS, halfway(), now=20.0 + number)
        table.record(host, KEY, START_MS + number, halfway(), now=20.0 + number)
    assert table.host(host, KEY) is not None


def test_only_readers_that_spoke_lately_are_blamed() -> None:
    table = ClusterProgress()
    auth = replace(halfway(), reason=HostReason.SOURCE_AUTH)
    [reader, _] = fill(table, auth, replace(halfway(), reason=HostReason.NO_SPACE))
    assert table.readers_in_trouble(KEY, 2, 12.0, but=HostReason.NONE) == [reader]
    assert table.readers_in_trouble(KEY, 2, 12.0, but=HostReason.SOURCE_AUTH) == []
    assert table.readers_in_trouble(KEY, 2, 60.0, but=HostReason.NONE) == []


@pytest.mark.parametrize("current", [None, 0, 7, 2**53])
def test_where_current_leads_travels_in_form_2_and_not_in_form_1(current: int | None) -> None:
    told = Progress(state=HostState.COMPLETE, subject=b"s" * 8, current=current)
    assert Progress.from_body(told.to_body()).current == current
    assert Progress.from_bytes(told.to_bytes()).current is None


def test_a_version_of_another_length_is_refused() -> None:
    body = Progress(state=HostState.COMPLETE, current=7).to_body()
    with pytest.raises(ProgressFormatError):
        Progress.from_body(body[:-9] + bytes([7]) + body[-7:])


def test_who_deployed_it_travels_in_form_2_and_older_hosts_skip_it() -> None:
    told = halfway(deployer=b"deployer")
    assert Progress.from_body(told.to_body()) == told
    assert told.to_body()[:-10] == halfway().to_body(), "the last field, of a kind that they do not know"
    with pytest.raises(ProgressFormatError, match="7 bytes"):
        Progress.from_body(halfway().to_body() + bytes([9, 7]) + bytes(7))


@pytest.mark.parametrize("want", ["ep:3/16", "pp:0-15&ep:3/16", "files:ä*"])
def test_a_want_travels_with_its_chunks_and_bytes(want: str) -> None:
    said = Progress(state=HostState.DOWNLOADING, want=want, chunks_wanted=70_000, bytes_wanted=(1 << 44) - 1)
    assert Progress.from_body(said.to_body()) == said


def test_a_want_that_moves_the_cursor_counts_by_its_count_alone() -> None:
    for want, shown in (("a\x1b[2J", ""), ("a\u202e", ""), ("ep:3/16\npp:0-15", "ep:3/16\npp:0-15")):
        told = Progress.from_body(Progress(state=HostState.DOWNLOADING, want=want, chunks_wanted=9).to_body())
        assert (told.want, told.chunks_wanted) == (shown, 9)


def test_a_want_that_is_too_long_is_told_by_its_count_alone() -> None:
    told = Progress.from_body(
        Progress(state=HostState.DOWNLOADING, want="files:" + "x" * 40, chunks_wanted=9).to_body()
    )
    assert (told.want, told.chunks_wanted) == ("", 9)


@pytest.mark.parametrize("field", [b"", bytes(8), bytes(9) + b"\xff", bytes(9) + b"x" * 41])
def test_a_want_of_a_wrong_form_is_refused(field: bytes) -> None:
    body = Progress(state=HostState.DOWNLOADING).to_body() + bytes([5, len(field)]) + field
    with pytest.raises(ProgressFormatError):
        Progress.from_body(body)


def test_no_collection_of_garbage_goes_through_the_rows_of_the_table() -> None:
    table = ClusterProgress()
    [node] = fill(table, halfway())
    assert not gc.is_tracked(table.host(node, KEY))


def test_bytes_that_came_for_nothing_travel_only_where_there_are_some() -> None:
    said = halfway(corrupt_bytes=3 * MIB, cancelled_bytes=(1 << 40) + 1)
    plain = halfway()
    assert len(said.to_body()) == len(plain.to_body()) + 10
    told = Progress.from_body(said.to_body())
    assert (told.corrupt_bytes, told.cancelled_bytes) == (3 * MIB, 1 << 40)
    assert Progress.from_body(plain.to_body()) == plain
    with pytest.raises(ProgressFormatError, match="came for nothing"):
        Progress.from_body(plain.to_body() + b"\x08\x07" + bytes(7))
