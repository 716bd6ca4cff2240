"""Chunks that come from storage in pieces can be relayed while they come."""

from __future__ import annotations

import pytest

from gossipd.core.events import ChunkArriving, ChunkEnding
from gossipd.core.ids import SOURCE, ChunkIndex, DeploymentId, Supplier
from gossipd.runtime.buffer_pool import BufferPool
from gossipd.runtime.incoming_chunks import IncomingChunks
from gossipd.sources.assembly import Assembly, Delivery
from gossipd.sources.errors import SourceHashError
from gossipd.sources.range_request import Job
from tests.gossipd.sources.models import CHUNK_BYTES, MemoryStore, sign

HALF = CHUNK_BYTES // 2
BODY = bytes(range(256)) * (2 * CHUNK_BYTES // 256)
MANIFEST = sign({"a.bin": BODY}, "http://127.0.0.1/")


class Run:
    """Two adjacent chunks on their way into a store."""

    def __init__(self) -> None:
        self.store = MemoryStore(MANIFEST)
        self.pool = BufferPool(4 * 1024 * 1024)
        self.listed: list[tuple[DeploymentId, ChunkIndex, Supplier]] = []
        self.ended: list[tuple[DeploymentId, ChunkIndex, Supplier]] = []
        self.incoming_chunks = IncomingChunks(self._post)
        job = Job(MANIFEST)
        self.stored = job.stored
        delivery = Delivery(self.store, self.pool, self.incoming_chunks)
        self.assembly = Assembly(job, (0, 1), delivery, what="a.bin", clock=lambda: 1.0)

    def _post(self, event: ChunkArriving | ChunkEnding) -> None:
        told = (event.deployment, event.chunk, event.supplier)
        if isinstance(event, ChunkArriving):
            self.listed.append(told)
        if isinstance(event, ChunkEnding) or event.ending_at_s is not None:
            self.ended.append(told)

    def feed(self, begin: int, end: int, body: bytes = BODY) -> None:
        self.assembly.feed(memoryview(body)[begin:end])


def test_each_chunk_of_a_run_is_listed_while_it_comes_and_lands_when_the_store_has_it() -> None:
    run = Run()
    for chunk in (0, 1):
        begin = chunk * CHUNK_BYTES
        run.feed(begin, begin + HALF)
        assert run.listed[chunk:] == [(MANIFEST.id, chunk, SOURCE)]
        incoming = run.incoming_chunks.find(MANIFEST.id, chunk)
        assert incoming is not None
        with incoming.piece(0, 0.0) as piece:
            assert piece is not None
            assert BODY[begin : begin + HALF].startswith(piece)
        landed = [incoming.is_landed]
        run.feed(begin + HALF, begin + CHUNK_BYTES)
        landed.append(incoming.is_landed)
        assert landed == [False, True]
        assert run.incoming_chunks.find(MANIFEST.id, chunk) is None
    assert run.stored == [0, 1]
    assert run.pool.statistics().leased_bytes == 0


def test_bytes_of_a_chunk_that_does_not_come_whole_are_counted_once() -> None:
    run = Run()
    run.feed(0, CHUNK_BYTES + HALF)
    assert run.incoming_chunks.take_cut_off() == {}
    run.assembly.close()
    assert run.incoming_chunks.take_cut_off() == {MANIFEST.id: HALF}
    assert run.incoming_chunks.take_cut_off() == {}


def test_of_a_run_only_the_last_chunk_tells_that_little_is_left_of_it() -> None:
    run = Run()
    for chunk in (0, 1):
        begin = chunk * CHUNK_BYTES
        run.feed(begin, begin + HALF)
        assert not run.ended
        run.feed(begin + HALF, begin + CHUNK_BYTES * 7 // 8)
        assert run.ended == [(MANIFEST.id, 1, SOURCE)] * chunk
        run.feed(begin + CHUNK_BYTES * 7 // 8, begin + CHUNK_BYTES)


def test_a_chunk_that_stops_coming_ends_its_relays_and_is_listed_again_when_it_comes_once_more() -> None:
    run = Run()
    run.feed(0, HALF)
    incoming = run.incoming_chunks.find(MANIFEST.id, 0)
    assert incoming is not None
    run.assembly.close()
    with incoming.piece(0, 0.0) as piece:
        assert piece is None
    assert not incoming.is_landed
    assert run.incoming_chunks.find(MANIFEST.id, 0) is None
    run.feed(0, HALF)
    assert run.listed == 2 * [(MANIFEST.id, 0, SOURCE)]
    run.assembly.close()
    assert run.pool.statistics().leased_bytes == 0


def test_a_wrong_chunk_never_lands() -> None:
    run = Run()
    wrong = bytes(2 * CHUNK_BYTES)
    run.feed(0, HALF, wrong)
    incoming = run.incoming_chunks.find(MANIFEST.id, 0)
    assert incoming is not None
    with pytest.raises(SourceHashError):
        run.feed(HALF, CHUNK_BYTES, wrong)
    assert not incoming.is_landed
    with incoming.piece(0, 0.0) as piece:
        assert piece is None
    assert run.stored == []


def test_a_chunk_that_comes_whole_is_not_listed() -> None:
    run = Run()
    run.feed(0, 2 * CHUNK_BYTES)
    assert run.stored == [0, 1]
    assert run.listed == []
