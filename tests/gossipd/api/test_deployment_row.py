"""The reason that each host of a row has, and whom it is about."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from gossipd.api.deployment_row import DeploymentFacts, TargetFacts, deployment_row
from gossipd.api.schema import DeploymentRow
from gossipd.core.ids import DeploymentId
from gossipd.core.reasons import HostReason
from gossipd.deployment.progress_record import HostState, Progress, progress_key
from gossipd.deployment.progress_table import ClusterProgress
from gossipd.manifest.manifest import FileEntry
from membership.member import NodeId
from tests.gossipd.api.fake_daemon import TOY, node


def told_row(*said: tuple[HostReason, bytes], state: str = "alive", own: int = 3) -> DeploymentRow:
    """Hosts 1, 2 ... with a reason each; the last one is in ``state``; host ``own`` answers."""
    table = ClusterProgress()
    for number, (reason, subject) in enumerate(said, 1):
        progress = Progress(state=HostState.DOWNLOADING, reason=reason, subject=subject)
        table.record(node(number), progress_key(TOY), 1_800_000_000_000, progress, now=100.0)
    facts = DeploymentFacts(
        id=TOY, name="org/toy", version=3, bytes_total=1024, chunk_count=4, stall="storage", own=node(own)
    )
    targets = [
        TargetFacts(node(number), f"node-{number}", "r1", state if number == len(said) else "alive")
        for number in range(1, len(said) + 1)
    ]
    return deployment_row(facts, table, targets, now=101.0)


def test_the_readers_reason_is_the_reason_of_all_that_wait_for_it() -> None:
    waits = (HostReason.WAITS_FOR_READER, node(1)[:8])
    row = told_row((HostReason.SOURCE_AUTH, b""), (HostReason.ALL_BUSY, b""), waits)
    assert [(host.reason, host.subject) for host in row.hosts] == [
        ("source_auth", ""),
        ("all_busy", ""),
        ("source_auth", "node-1"),
    ]
    assert row.stall == "source_auth", "one host has one reason in every view"
    row = told_row((HostReason.NONE, b""), (HostReason.NONE, b""), waits)
    assert (row.hosts[2].reason, row.hosts[2].subject) == ("waits_for_reader", "node-1")
    unknown = told_row((HostReason.WAITS_FOR_READER, b"nobody.."), own=1)
    assert (unknown.hosts[0].reason, unknown.stall) == ("waits_for_reader", "waits_for_reader")


def test_a_silent_peer_is_named_and_its_reason_stays_the_hosts_own() -> None:
    silent = HostReason.HOLDER_SILENT
    row = told_row((HostReason.SOURCE_AUTH, b""), (silent, node(1)[:8]), (silent, b"nobody.."))
    told = [(host.reason, host.subject) for host in row.hosts[1:]]
    assert told == [("holder_silent", "node-1"), ("holder_silent", b"nobody..".hex())]


def test_of_two_hosts_with_one_name_the_one_that_answers_is_marked() -> None:
    facts = DeploymentFacts(id=TOY, name="org/toy", version=3, bytes_total=1024, chunk_count=4, own=node(2))
    targets = [TargetFacts(node(number), "node", "r1", "alive") for number in (1, 2, 3)]
    row = deployment_row(facts, ClusterProgress(), targets, now=101.0)
    assert [host.here for host in row.hosts] == [False, True, False]
    table = ClusterProgress()
    table.record(node(1), progress_key(TOY), 1, Progress(state=HostState.COMPLETE), now=100.0)
    assert [host.here for host in deployment_row(facts, table, targets[:1], now=101.0).hosts] == [False]


_LACKS, _FORBIDDEN = HostReason.ALL_BUSY, HostReason.SOURCE_FORBIDDEN


@pytest.mark.parametrize(
    ("states", "reasons", "known", "recoverable"),
    [
        ((HostState.DOWNLOADING, HostState.DOWNLOADING), (_LACKS, _LACKS), (False, False), False),
        ((HostState.DOWNLOADING, HostState.DOWNLOADING), (_LACKS, _LACKS), (True, False), True),
        ((HostState.DOWNLOADING, HostState.DOWNLOADING), (_LACKS, _FORBIDDEN), (False, True), True),
        ((HostState.DOWNLOADING, HostState.DOWNLOADING), (_FORBIDDEN, _FORBIDDEN), (False, True), False),
        ((HostState.COMPLETE, HostState.DOWNLOADING), (HostReason.NONE, _LACKS), (False, False), True),
        ((HostState.DOWNLOADING, HostState.COMPLETE), (_LACKS, HostReason.NONE), (False, False), False),  # it is dead
        ((HostState.REMOVED, HostState.REMOVED), (HostReason.NONE, HostReason.NONE), (True, True), False),
    ],
)
def test_a_version_is_recoverable_from_a_living_host_from_all_together_or_from_storage(
    states: tuple[HostState, HostState], reasons: tuple[HostReason, HostReason], known: tuple[bool, bool],
    recoverable: bool,
) -> None:  # fmt: skip
    table = ClusterProgress()
    for number, (state, reason) in enumerate(zip(states, reasons, strict=True), 1):
        table.record(
            node(number), progress_key(TOY), 1_800_000_000_000, Progress(state=state, reason=reason), now=100.0
        )
    one_copy, has_sources = known
    facts = DeploymentFacts(
        id=TOY, name="org/toy", version=3, bytes_total=1024, chunk_count=4, one_copy=one_copy, has_sources=has_sources
    )
    is_dead = states[1] is HostState.COMPLETE
    targets = [TargetFacts(node(1), "node-1", "r1", "alive"), TargetFacts(node(2), "node-2", "r1", "alive")]
    targets[1] = TargetFacts(node(2), "node-2", "r1", "dead") if is_dead else targets[1]
    assert deployment_row(facts, table, targets, now=101.0).recoverable is recoverable


def test_a_part_of_a_version_is_no_source_of_the_rest() -> None:
    table, facts = ClusterProgress(), DeploymentFacts(id=TOY, name="toy", version=3, bytes_total=1024, chunk_count=4)
    part = Progress(state=HostState.COMPLETE, want="ep:1/2", chunks_wanted=2, bytes_wanted=512, chunks_verified=2)
    for number, told in enumerate([part, Progress(state=HostState.DOWNLOADING, reason=_LACKS)], 1):
        table.record(node(number), progress_key(TOY), 1_800_000_000_000, told, now=100.0)
    targets = [TargetFacts(node(number), f"node-{number}", "r1", "alive") for number in (1, 2)]
    assert not deployment_row(facts, table, targets, now=101.0).recoverable
    assert deployment_row(facts, table, targets[:1], now=101.0).recoverable, "it has all that anybody wants"


@pytest.mark.parametrize(
    ("complete", "wanted", "served", "recoverable"),
    [
        ("ep:0/2", "ep:0/2", (), True),  # another has the same part
        ("ep:0/2", "ep:1/2", (), False),
        ("ep:0/2", "ep:1/2", (2,), True),  # its chunks are known to be held
        ("ep:0/2", "", (2,), False),
    ],
)
def test_a_part_can_be_had_where_somebody_holds_its_chunks(
    complete: str, wanted: str, served: tuple[int, ...], recoverable: bool
) -> None:
    table = ClusterProgress()
    part = Progress(state=HostState.COMPLETE, want=complete, chunks_wanted=2, bytes_wanted=512, chunks_verified=2)
    count = 2 if wanted else 0
    late = Progress(
        state=HostState.DOWNLOADING, reason=_LACKS, want=wanted, chunks_wanted=count, bytes_wanted=256 * count
    )
    for number, told in enumerate((part, late), 1):
        table.record(node(number), progress_key(TOY), 1_800_000_000_000, told, now=100.0)
    targets = [TargetFacts(node(number), f"node-{number}", "r1", "alive") for number in (1, 2)]
    facts = DeploymentFacts(
        id=TOY, name="toy", version=3, bytes_total=1024, chunk_count=4, served={node(number) for number in served}
    )
    assert deployment_row(facts, table, targets, now=101.0).recoverable is recoverable


def test_a_missing_key_is_named() -> None:
    [host] = told_row((HostReason.REFUSED_KEY, b"k" * 8), own=1).hosts
    assert (host.reason, host.subject) == ("refused_key", (b"k" * 8).hex())


@pytest.mark.parametrize(("state", "shown"), [("dead", "dead"), ("left", "left"), ("suspect", "no_space")])
def test_a_host_that_is_gone_has_that_reason_and_no_other(state: str, shown: str) -> None:
    assert told_row((HostReason.NO_SPACE, b""), state=state, own=1).hosts[0].reason == shown


def test_what_stands_still_has_no_rate_and_no_time_to_go() -> None:
    def row(*reasons: HostReason, state: HostState = HostState.DOWNLOADING, rate: int = 1_300_000) -> DeploymentRow:
        table = ClusterProgress()
        for number, reason in enumerate(reasons, 1):
            progress = Progress(state=state, reason=reason, chunks_verified=1, rate_in_bytes_per_s=rate)
            table.record(node(number), progress_key(TOY), 1_800_000_000_000, progress, now=100.0)
        facts = DeploymentFacts(id=TOY, name="org/toy", version=3, bytes_total=1 << 30, chunk_count=4)
        targets = [TargetFacts(node(n), f"node-{n}", "r1", "alive") for n in range(1, len(reasons) + 1)]
        return deployment_row(facts, table, targets, now=101.0)

    moving = row(HostReason.SOURCE_AUTH, HostReason.NONE)
    assert moving.rate_in_bytes_per_s > 0
    assert moving.eta_s is not None
    for still in (
        row(HostReason.SOURCE_AUTH, HostReason.NO_SPACE),
        row(HostReason.NONE, state=HostState.COMPLETE, rate=13),
        row(HostReason.NONE, rate=1000),
    ):
        assert (still.rate_in_bytes_per_s, still.eta_s) == (0, None)


MODEL = DeploymentId(b"m" * 32)
FACTS = DeploymentFacts(id=MODEL, name="some", version=1, bytes_total=1000, chunk_count=10)


def test_a_target_with_two_hosts_is_not_complete_whatever_they_say() -> None:
    table = ClusterProgress()
    nodes = [NodeId(bytes([number]) * 16) for number in (1, 2)]
    for each in nodes:
        complete = Progress(state=HostState.COMPLETE, chunks_verified=10, started_s=100, elapsed_s=5)
        table.record(each, progress_key(MODEL), 1, complete, now=0.0)
    targets = [TargetFacts(each, f"node-{each[0]}", "r", "alive", is_twice=each == nodes[1]) for each in nodes]
    row = deployment_row(FACTS, table, targets, now=1.0)
    assert (row.hosts_total, row.hosts_complete, row.completed_at) == (2, 1, None)
    assert row.state != "complete"
    assert (row.hosts[1].state, row.hosts[1].reason) == ("init", "identity_twice")
    assert row.cluster_bytes_verified == 1000
    one = deployment_row(FACTS, table, targets[:1], now=1.0)
    assert (one.state, one.hosts_complete) == ("complete", 1)


@pytest.mark.parametrize(
    ("reason", "has_eta"),
    [(HostReason.NONE, True), (HostReason.NO_SPACE, False), (HostReason.NO_INODES, False), (HostReason.PAUSED, False)],
)
def test_no_time_is_promised_while_a_host_waits_for_what_no_rate_brings(reason: HostReason, has_eta: bool) -> None:
    table = ClusterProgress()
    for number, why in ((1, HostReason.NONE), (2, reason)):
        progress = Progress(
            state=HostState.DOWNLOADING,
            reason=why,
            rate_in_bytes_per_s=1 << 20 if number == 1 else 0,
            chunks_verified=1,
        )
        table.record(node(number), progress_key(TOY), 1_800_000_000_000, progress, now=100.0)
    facts = DeploymentFacts(id=TOY, name="org/toy", version=3, bytes_total=1 << 24, chunk_count=4)
    targets = [TargetFacts(node(number), f"node-{number}", "r1", "alive") for number in (1, 2)]
    assert (deployment_row(facts, table, targets, now=101.0).eta_s is not None) is has_eta


def test_a_removed_host_is_not_waited_for() -> None:
    table, second = ClusterProgress(), 1_800_000_000_000
    moving = Progress(state=HostState.DOWNLOADING, rate_in_bytes_per_s=1 << 20)
    table.record(node(1), progress_key(TOY), second, moving, now=100.0)
    gone = Progress(state=HostState.REMOVED, reason=HostReason.REMOVED)
    table.record(node(2), progress_key(TOY), second, gone, now=100.0)
    facts = DeploymentFacts(id=TOY, name="org/toy", version=3, bytes_total=1 << 24, chunk_count=4)
    targets = [TargetFacts(node(number), f"node-{number}", "r1", "alive") for number in (1, 2)]
    assert deployment_row(facts, table, targets, now=101.0).eta_s == 16.0


def test_a_reader_s_trouble_names_its_file_on_its_row_and_on_those_that_wait_for_it() -> None:
    table = ClusterProgress()
    short = Progress(state=HostState.DOWNLOADING, reason=HostReason.OBJECT_SHORT, subject=(1).to_bytes(8, "big"))
    waits = Progress(state=HostState.DOWNLOADING, reason=HostReason.WAITS_FOR_READER, subject=node(1)[:8])
    table.record(node(1), progress_key(TOY), 1_789_000_001_000, short, now=100.0)
    table.record(node(2), progress_key(TOY), 1_789_000_001_000, waits, now=100.0)
    targets = [TargetFacts(node(number), f"node-{number}", "r1", "alive") for number in (1, 2)]
    files = (FileEntry("config.json", 10, 0o644), FileEntry("a.bin", 1 << 24, 0o644))
    for known, name in ((files, "a.bin"), (files[:1], "")):
        facts = DeploymentFacts(id=TOY, name="toy", version=3, bytes_total=1 << 24, chunk_count=4, files=known)
        told = [
            (host.reason, host.subject, host.file) for host in deployment_row(facts, table, targets, now=101.0).hosts
        ]
        assert told == [("object_short", "", name), ("object_short", "node-1", name)]


def parts_row(*told: Progress) -> DeploymentRow:
    table = ClusterProgress()
    for number, progress in enumerate(told, 1):
        table.record(node(number), progress_key(TOY), 1_800_000_000_000, progress, now=100.0)
    facts = DeploymentFacts(id=TOY, name="org/toy", version=3, bytes_total=1000, chunk_count=10)
    targets = [TargetFacts(node(number), f"node-{number}", "r1", "alive") for number in range(1, len(told) + 1)]
    return deployment_row(facts, table, targets, now=101.0)


def test_bytes_of_parts_are_what_hosts_want_and_have() -> None:
    part = Progress(state=HostState.COMPLETE, chunks_verified=2, chunks_wanted=2, bytes_wanted=150, want="ep:0/8")
    half = Progress(state=HostState.DOWNLOADING, chunks_verified=2, chunks_wanted=4, bytes_wanted=420, want="ep:1/8")
    whole = Progress(state=HostState.DOWNLOADING, chunks_verified=5)
    row = parts_row(part, half, whole)
    assert (row.cluster_bytes_total, row.cluster_bytes_verified) == (150 + 420 + 1000, 150 + 210 + 500)
    assert [(host.bytes_verified, host.bytes_wanted) for host in row.hosts] == [(150, 150), (210, 420), (None, None)]
    assert (row.chunks_verified, row.bytes_verified) == (6, 666), "the share of a part counts for the whole"
    done = parts_row(part, part)
    assert (done.bytes_verified, done.state) == (done.bytes_total, "complete")
    assert done.cluster_bytes_verified == done.cluster_bytes_total == 300


def test_the_time_to_go_is_for_what_is_wanted() -> None:
    part = Progress(
        state=HostState.DOWNLOADING, chunks_verified=1, chunks_wanted=2, bytes_wanted=500, want="ep:0/8",
        rate_in_bytes_per_s=2560,
    )  # fmt: skip
    row = parts_row(part)
    assert (row.rate_in_bytes_per_s, row.eta_s) == (2560, 0.1)


def test_a_host_that_wants_another_part_begins_again() -> None:
    table, key = ClusterProgress(), progress_key(TOY)
    first = Progress(state=HostState.COMPLETE, chunks_verified=2, chunks_wanted=2, bytes_wanted=150, want="ep:0/8")
    other = Progress(state=HostState.DOWNLOADING, chunks_wanted=2, bytes_wanted=150, want="ep:1/8")
    for version, progress in ((1, first), (2, other)):
        table.record(node(1), key, version, progress, now=100.0)
    assert table.totals(key, [node(1)], chunk_count=10, bytes_total=1000, now=101.0).bytes_verified == 0
    lost = Progress(state=HostState.DOWNLOADING, chunks_wanted=2, bytes_wanted=150, want="ep:1/8", chunks_verified=1)
    table.record(node(1), key, 3, lost, now=100.0)
    table.record(node(1), key, 4, other, now=100.0)
    assert table.totals(key, [node(1)], chunk_count=10, bytes_total=1000, now=101.0).bytes_verified == 75


@pytest.mark.parametrize(("is_step", "told"), [(True, {str((2 << 32) + 200): "200.2"}), (False, {})])
def test_other_versions_that_users_see_are_named_as_steps(is_step: bool, told: dict[str, str]) -> None:
    table = ClusterProgress()
    for number, current in ((1, 300), (2, (2 << 32) + 200), (3, 100), (4, None)):
        progress = Progress(state=HostState.COMPLETE, chunks_verified=10, current=current)
        table.record(node(number), progress_key(MODEL), 1_000, progress, now=1.0)
    targets = [TargetFacts(node(number), f"n{number}", "r", "alive") for number in range(1, 5)]
    row = deployment_row(replace(FACTS, version=300, is_step=is_step), table, targets, now=2.0)
    assert row.current_labels == told
    assert [host.current for host in row.hosts] == [300, (2 << 32) + 200, 100, None]


@pytest.mark.parametrize(
    ("verified", "half_s", "last_s"),
    [((0, 0, 0, 0), 4.0, 4.0), ((3, 3, 0, 0), 1.0, 2.5), ((4, 4, 0, 0), 0.0, 2.0), ((4, 3, 2, 1), 0.8, 1.5)],
)
def test_half_of_the_hosts_are_told_apart_from_the_last(
    verified: tuple[int, ...], half_s: float, last_s: float
) -> None:
    table = ClusterProgress()
    for number, chunks in enumerate(verified, 1):
        state = HostState.COMPLETE if chunks == 4 else HostState.DOWNLOADING
        progress = Progress(state=state, rate_in_bytes_per_s=1 << 20, chunks_verified=chunks)
        table.record(node(number), progress_key(TOY), 1_800_000_000_000, progress, now=100.0)
    facts = DeploymentFacts(id=TOY, name="org/toy", version=3, bytes_total=4 << 20, chunk_count=4)
    targets = [TargetFacts(node(number), f"node-{number}", "r1", "alive") for number in range(1, 5)]
    row = deployment_row(facts, table, targets, now=101.0)
    assert (row.eta_p50_s, row.eta_s) == (half_s, last_s)
