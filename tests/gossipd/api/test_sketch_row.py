"""Whose chunks are told by which word: its own, an announcement's, or a record's of all or none."""

from __future__ import annotations

from base64 import b64decode

import pytest

from gossipd.api.deployment_row import TargetFacts
from gossipd.api.schema import SketchRow
from gossipd.api.sketch_row import answered_row, own_fine_row, sketch_row
from gossipd.core.chunkset import ChunkSet
from gossipd.core.reasons import HostReason
from gossipd.core.sketch import KnownHoldings
from gossipd.deployment.progress_record import HostState, Progress
from gossipd.deployment.progress_table import ClusterProgress, HostProgress
from gossipd.wire.control import Sketch
from membership.member import NodeId

CHUNKS = 128
FULL, HALF = ChunkSet.full(CHUNKS), ChunkSet(CHUNKS, (1 << 64) - 1)
HOST = TargetFacts(NodeId(b"n" * 16), "node-1", "rack-1", "alive")


def said(state: HostState, chunks: int, wanted: int = 0) -> HostProgress:
    table = ClusterProgress()
    reason = HostReason.REMOVED if state is HostState.REMOVED else HostReason.NONE
    progress = Progress(state=state, reason=reason, chunks_verified=chunks, chunks_wanted=wanted)
    table.record(HOST.node, b"k" * 8, 1_800_000_010_000, progress, now=100.0)
    (found,) = [row for row in [table.host(HOST.node, b"k" * 8)] if row is not None]
    return found


def row(told: HostProgress | None, known: KnownHoldings | None, target: TargetFacts = HOST) -> SketchRow | None:
    return sketch_row(target, told, known, chunk_count=CHUNKS, now=103.0)


def shown(found: SketchRow | None) -> tuple[str, int, int, int]:
    assert found is not None
    shares = b64decode(found.shares)
    assert len(shares) == 64
    return found.known_by, found.chunks_held, shares[0], shares[-1]


def test_this_hosts_own_chunks_go_before_its_record() -> None:
    own = KnownHoldings(HALF, FULL, None)
    assert shown(row(said(HostState.COMPLETE, CHUNKS), own)) == ("itself", 64, 254, 0)


def test_what_a_neighbour_announced_is_told_with_its_age() -> None:
    found = row(said(HostState.DOWNLOADING, 60), KnownHoldings(HALF, FULL, 101.0))
    assert shown(found) == ("announcements", 64, 254, 0)
    assert found is not None
    assert found.age_s == 2.0


def test_a_host_that_is_complete_has_all_whatever_it_announced_before() -> None:
    found = row(said(HostState.COMPLETE, CHUNKS), KnownHoldings(HALF, FULL, 101.0))
    assert shown(found) == ("progress", CHUNKS, 254, 254)


def test_of_a_part_only_what_is_wanted_counts() -> None:
    assert shown(row(said(HostState.COMPLETE, 64, 64), KnownHoldings(HALF, HALF, 101.0))) == (
        "announcements", 64, 254, 255,
    )  # fmt: skip


@pytest.mark.parametrize("state", [HostState.INIT, HostState.DOWNLOADING, HostState.REMOVED])
def test_a_host_with_nothing_has_none_of_the_chunks(state: HostState) -> None:
    chunks = 7 if state is HostState.REMOVED else 0
    assert shown(row(said(state, chunks), None)) == ("progress", 0, 0, 0)


def test_nothing_is_told_of_hosts_whose_chunks_are_not_known() -> None:
    assert row(None, None) is None
    assert row(said(HostState.DOWNLOADING, 7), None) is None
    assert row(said(HostState.COMPLETE, 64, 64), None) is None
    assert row(said(HostState.COMPLETE, CHUNKS), None, TargetFacts(HOST.node, "a", "r", "alive", is_twice=True)) is None


def test_the_own_row_and_an_answer_have_a_bin_for_each_of_few_chunks() -> None:
    own = own_fine_row(HOST, KnownHoldings(HALF, FULL, None))
    assert b64decode(own.shares) == bytes([254] * 64 + [0] * 64)
    answer = Sketch(b64decode(own.shares), 64)
    found = answered_row(HOST, answer, 0.26, chunk_count=CHUNKS)
    assert found is not None
    assert (found.known_by, found.chunks_held, found.shares, found.age_s) == ("answer", 64, own.shares, 0.3)


@pytest.mark.parametrize("answer", [None, Sketch(bytes(127), 0), Sketch(bytes(129), 0), Sketch(bytes(128), CHUNKS + 1)])
def test_an_answer_that_does_not_fit_the_model_is_none(answer: Sketch | None) -> None:
    assert answered_row(HOST, answer, 0.0, chunk_count=CHUNKS) is None
