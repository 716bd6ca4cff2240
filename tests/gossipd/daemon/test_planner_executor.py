"""How each end of a fetch is told to the planner: who is blamed, who is complained to, and who is not."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from queue import Queue
from types import SimpleNamespace
from typing import Any, cast

import pytest
from msgspec.structs import replace

from gossipd.core.events import (
    ChunkStored,
    Event,
    FailReason,
    FetchFailed,
    ProbeSource,
    ReportStall,
    SourceProbed,
    SourceReadFailed,
    StallReason,
    StartFetch,
    StartSourceRead,
)
from gossipd.core.ids import LOCAL, SOURCE, DeploymentId
from gossipd.daemon.budget_check import ReadVerdict
from gossipd.daemon.planner_executor import CommandExecutor
from gossipd.deployment.events import DeploymentEvent, SourceTroubled
from gossipd.manifest.manifest import Manifest
from gossipd.runtime.buffer_pool import BufferPool
from gossipd.runtime.incoming_chunks import IncomingChunk, IncomingChunks
from gossipd.runtime.ports import DigestMismatchError, NotHeldError, StoreWriteError
from gossipd.sources.errors import SourceAuthError, SourceBudgetError, SourceWholeOnlyError
from gossipd.sources.reader import ReadOutcome
from gossipd.transfer.errors import PeerBusyError, PeerGoneError, PeerProtocolError, PeerSlowError
from membership.member import NodeId
from tests.gossipd.manifest.making import manifest

LIAR, HONEST = NodeId(b"l" * 16), NodeId(b"h" * 16)
TIMEOUT_S = 120.0  # of a machine that does other things; nothing here takes a millisecond


class Bench:
    """An executor whose adapters do what a test says."""

    def __init__(self) -> None:
        self.manifest: Manifest = manifest()
        self.events: Queue[Event] = Queue()
        self.bugs: Queue[BaseException] = Queue()
        self.complaints: Queue[tuple[NodeId, DeploymentId, int]] = Queue()
        self.audited: list[tuple[str, dict[str, Any]]] = []
        self.troubles: list[tuple[DeploymentId, str]] = []
        self.unreached: list[tuple[NodeId, DeploymentId, Exception, str]] = []
        self.posted: list[DeploymentEvent] = []
        self.put: Any = True
        self.fetched: Exception | None = None
        self.refusal: SourceBudgetError | None = None
        self.outcome: ReadOutcome | None = None
        self.under_way: set[int] = set()
        self.must_wait = False
        self.waits_of: DeploymentId | None = None  # the only one that has to wait, if any does
        self.pool = BufferPool(1 << 20)
        ends = {LIAR: ("10.0.0.1", 1), HONEST: ("10.0.0.2", 2)}
        names = {LIAR: "liar", HONEST: "honest"}
        data_plane = SimpleNamespace(
            client=SimpleNamespace(fetch_chunk=self._fetch_chunk, complain=self._complain),
            reader=SimpleNamespace(read_chunks=lambda manifest, chunks, **how: self.outcome),
            store=SimpleNamespace(put=self._put), read_threads=1,
            server=SimpleNamespace(note_received=lambda length, elapsed_s: None),
            unreached=SimpleNamespace(failed=self._failed), external=SimpleNamespace(rate=100.0),
        )  # fmt: skip
        deployments = SimpleNamespace(
            lifecycle=SimpleNamespace(manifest_of={self.manifest.id: self.manifest}.get),
            post_from_thread=lambda event: self.troubles.append((event.deployment, event.error.code)),
            post=self._posted,
        )
        audit = SimpleNamespace(record=lambda event, **fields: self.audited.append((event, fields)))
        self.executor = CommandExecutor(
            directory=cast(Any, SimpleNamespace(bulk_endpoint=ends.get, name_of=names.get)), plane=cast(Any, None),
            data_plane=cast(Any, data_plane), driver=cast(Any, SimpleNamespace(post=self.events.put)),
            deployments=cast(Any, deployments), membership_host=cast(Any, None),
            reports=cast(Any, SimpleNamespace(audit=audit, bugs=SimpleNamespace(report=self.bugs.put))),
            budget=cast(
                Any,
                SimpleNamespace(
                    judge=self._judged,
                    reads_begun=lambda deployment, chunks: self.under_way.update(chunks),
                    reads_ended=lambda deployment, chunks: self.under_way.difference_update(chunks),
                ),
            ),
        )  # fmt: skip

    def _failed(self, peer: NodeId, deployment: DeploymentId, error: Exception, now: float, *, what: str) -> None:
        self.unreached.append((peer, deployment, error, what))

    def _fetch_chunk(
        self, node: NodeId, _: object, deployment: DeploymentId, chunk: int, length: int, *, timeout_s: float,
        behind: int | None,
    ) -> IncomingChunk:  # fmt: skip
        if self.fetched is not None:
            raise self.fetched
        self.incoming = IncomingChunks().begin(deployment, chunk, node, self.pool.acquire(length))
        return self.incoming

    def _judged(self, deployment: DeploymentId, chunks: Sequence[int]) -> ReadVerdict:
        return ReadVerdict(self.refusal, self.must_wait and self.waits_of in (None, deployment))

    def _posted(self, event: DeploymentEvent) -> None:
        self.posted.append(event)
        if isinstance(event, SourceTroubled):
            self.troubles.append((event.deployment, event.error.code))

    def _complain(
        self, node: NodeId, endpoint: object, deployment: DeploymentId, chunk: int, *, timeout_s: float
    ) -> None:
        self.complaints.put((node, deployment, chunk))

    def _put(self, *_: Any) -> bool:
        if isinstance(self.put, Exception):
            raise self.put
        return bool(self.put)

    def ended(self, peer: NodeId) -> Event:
        self.executor.perform(StartFetch(self.manifest.id, 1, peer, 5.0))
        self.executor.start_threads()
        return self.events.get(timeout=TIMEOUT_S)


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench()
    yield made
    made.executor.close()
    assert made.pool.statistics().leased_bytes == 0, "every buffer came back"


def test_a_stall_is_told_with_the_limit_of_reads_in_force(bench: Bench) -> None:
    stall = ReportStall(bench.manifest.id, StallReason.STORAGE, reads=2)
    bench.executor.perform(stall)
    assert bench.posted == [replace(stall, read_bytes_per_s=100.0)]


def test_bytes_that_do_not_hash_are_their_senders_fault_and_it_is_told(bench: Bench) -> None:
    bench.put = DigestMismatchError("wrong bytes")
    assert bench.ended(LIAR) == FetchFailed(bench.manifest.id, 1, LIAR, FailReason.CORRUPT)
    assert bench.complaints.get(timeout=TIMEOUT_S) == (LIAR, bench.manifest.id, 1)
    assert not bench.incoming.is_landed, "it is not relayed to its end"
    assert [(event, fields["subject"], fields["code"]) for event, fields in bench.audited] == [
        ("quarantined", "liar", "E_DIGEST")
    ]


@pytest.mark.parametrize(
    ("put", "reason"),
    [
        (StoreWriteError("the disk is full", code="E_NO_SPACE"), FailReason.DISK),
        (StoreWriteError("the disk failed", code="E_STORE_IO"), FailReason.DISK),
        (NotHeldError("the deployment is not open here"), FailReason.CANCELLED),
        (False, FailReason.CANCELLED),
    ],
)
def test_what_our_own_disk_refuses_is_nobody_elses_fault(bench: Bench, put: object, reason: FailReason) -> None:
    bench.put = put
    assert bench.ended(HONEST) == FetchFailed(bench.manifest.id, 1, HONEST, reason)
    assert bench.complaints.empty()
    assert bench.audited == []
    assert bench.incoming.is_landed == (put is False), "what was here already is here"


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (PeerGoneError("closed"), FailReason.GONE),
        (PeerSlowError("nothing for 5 s"), FailReason.SLOW),
        (PeerBusyError("no slot", retry_after_s=1.0), FailReason.BUSY),
        (PeerProtocolError("another chunk"), FailReason.CORRUPT),
    ],
)
def test_a_fetch_that_fails_on_the_way_ends_with_its_own_reason(
    bench: Bench, error: Exception, reason: FailReason
) -> None:
    bench.fetched = error
    assert bench.ended(LIAR) == FetchFailed(bench.manifest.id, 1, LIAR, reason)
    assert bench.complaints.empty(), "nothing came that could be complained about"
    assert len(bench.audited) == (reason is FailReason.CORRUPT)
    assert bench.unreached == [(LIAR, bench.manifest.id, error, "chunks")], "whether it was reached is judged there"


def test_a_peer_that_is_not_known_any_more_is_gone(bench: Bench) -> None:
    stranger = NodeId(b"s" * 16)
    assert bench.ended(stranger) == FetchFailed(bench.manifest.id, 1, stranger, FailReason.GONE)


def test_a_source_that_refuses_is_told_as_trouble_and_its_chunks_come_back(bench: Bench) -> None:
    bench.outcome = ReadOutcome((0,), (1, 2), (SourceAuthError("s3://models/a", "access refused"),))
    bench.executor.perform(StartSourceRead(bench.manifest.id, (0, 1, 2), False))
    bench.executor.start_threads()
    assert bench.events.get(timeout=TIMEOUT_S) == SourceReadFailed(bench.manifest.id, (1, 2), FailReason.SOURCE)
    assert bench.troubles == [(bench.manifest.id, "E_SOURCE_AUTH")]


def test_a_budget_that_is_spent_is_told_as_trouble_and_storage_is_not_asked(bench: Bench) -> None:
    bench.refusal = SourceBudgetError("m@1", "the budget is spent")
    bench.outcome = ReadOutcome((0, 1), ())
    bench.executor.perform(StartSourceRead(bench.manifest.id, (0, 1), False))
    bench.executor.start_threads()
    assert bench.events.get(timeout=TIMEOUT_S) == SourceReadFailed(bench.manifest.id, (0, 1), FailReason.SOURCE)
    bench.executor.perform(ProbeSource(bench.manifest.id))
    assert bench.events.get(timeout=TIMEOUT_S) == SourceProbed(bench.manifest.id, False, False)
    assert bench.troubles == [(bench.manifest.id, "E_SOURCE_BUDGET")] * 2
    assert not bench.under_way


def test_a_read_counts_against_the_budget_from_its_begin_to_its_end(bench: Bench) -> None:
    bench.outcome = ReadOutcome((0, 1, 2), ())
    bench.executor.perform(StartSourceRead(bench.manifest.id, (0, 1, 2), False))
    assert bench.under_way == {0, 1, 2}
    bench.executor.note(ChunkStored(bench.manifest.id, 0, LOCAL, 10, 0.1))
    assert bench.under_way == {0, 1, 2}, "it came from elsewhere"
    bench.executor.note(ChunkStored(bench.manifest.id, 1, SOURCE, 10, 0.1))
    bench.executor.note(SourceReadFailed(bench.manifest.id, (0, 2), FailReason.CANCELLED))
    assert not bench.under_way


def test_a_server_without_ranges_is_no_trouble_but_is_read_in_another_way(bench: Bench) -> None:
    bench.outcome = ReadOutcome((), (1, 2), (SourceWholeOnlyError("http://s/a", "the server has no ranges"),))
    bench.executor.perform(StartSourceRead(bench.manifest.id, (1, 2), False))
    bench.executor.start_threads()
    assert bench.events.get(timeout=TIMEOUT_S) == SourceReadFailed(bench.manifest.id, (1, 2), FailReason.WHOLE_ONLY)
    assert not bench.troubles


def test_what_a_hand_must_not_raise_is_our_own_bug_and_is_not_swallowed(bench: Bench) -> None:
    bench.put = ZeroDivisionError("a bug")
    bench.executor.perform(StartFetch(bench.manifest.id, 1, HONEST, 5.0))
    bench.executor.start_threads()
    assert bench.bugs.get(timeout=TIMEOUT_S) is bench.put


def test_reads_that_wait_for_a_budget_begin_later_in_their_order(bench: Bench) -> None:
    bench.outcome = ReadOutcome((), (0,), (SourceAuthError("s3://models/a", "access refused"),))
    bench.must_wait = True
    for chunk in (0, 1):
        bench.executor.perform(StartSourceRead(bench.manifest.id, (chunk,), False))
    bench.executor.start_threads()
    bench.executor.start_threads()
    assert (bench.under_way, bench.events.empty(), bench.troubles) == (set(), True, [])
    assert [command.chunks for command in bench.executor._waiting_reads] == [(0,), (1,)]
    bench.must_wait = False
    bench.executor.start_threads()
    assert bench.events.get(timeout=TIMEOUT_S) == SourceReadFailed(bench.manifest.id, (0,), FailReason.SOURCE)
    assert bench.under_way == {0, 1}
    assert not bench.executor._waiting_reads


def test_reads_that_wait_for_one_budget_hold_up_no_other_deployment(bench: Bench) -> None:
    bench.outcome, other = ReadOutcome((), ()), DeploymentId(b"o" * 32)
    bench.must_wait = True
    for deployment, chunk in ((other, 5), (other, 6), (bench.manifest.id, 0), (bench.manifest.id, 1)):
        bench.executor.perform(StartSourceRead(deployment, (chunk,), False))
    bench.waits_of = other
    bench.executor.start_threads()
    assert bench.under_way == {0, 1}
    assert [command.chunks for command in bench.executor._waiting_reads] == [(5,), (6,)]


def test_reads_that_wait_for_a_budget_end_when_it_is_spent(bench: Bench) -> None:
    bench.must_wait = True
    bench.executor.perform(StartSourceRead(bench.manifest.id, (0, 1), False))
    bench.refusal = SourceBudgetError("m@1", "the budget is spent")
    bench.executor.start_threads()
    assert bench.events.get(timeout=TIMEOUT_S) == SourceReadFailed(bench.manifest.id, (0, 1), FailReason.SOURCE)
    assert bench.troubles == [(bench.manifest.id, "E_SOURCE_BUDGET")]
