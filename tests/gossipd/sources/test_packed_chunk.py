"""The segments of a packed chunk come in any order, and what has come is kept."""

from __future__ import annotations

import pytest

from gossipd.core.events import SourceReadMoves
from gossipd.runtime.buffer_pool import BufferPool
from gossipd.runtime.incoming_chunks import IncomingChunks
from gossipd.sources.assembly import Delivery
from gossipd.sources.errors import SourceHashError
from gossipd.sources.packed_chunk import PackedChunk
from gossipd.sources.range_request import Job
from tests.gossipd.sources.models import MemoryStore, sign

FILES = {"a": b"1" * 10, "b": b"2" * 20, "c": b"3" * 30}
MANIFEST = sign(FILES, "http://127.0.0.1/")


class Packed:
    """One chunk of three files, with a clock."""

    def __init__(self) -> None:
        self.now = 0.0
        self.told: list[SourceReadMoves] = []
        self.store = MemoryStore(MANIFEST)
        self.pool = BufferPool(4 * 1024 * 1024)
        self.job = Job(MANIFEST)
        self.incoming_chunks = IncomingChunks()
        delivery = Delivery(self.store, self.pool, self.incoming_chunks, self.told.append)
        self.chunk = PackedChunk(self.job, 0, delivery, clock=lambda: self.now)

    def is_listed(self) -> bool:
        return self.incoming_chunks.find(MANIFEST.id, 0) is not None

    def feed(self, at: int, body: bytes) -> None:
        self.chunk.feed(at, "http://127.0.0.1/", memoryview(body))


def test_segments_in_any_order_and_in_parts_make_the_chunk() -> None:
    packed = Packed()
    packed.feed(2, FILES["c"])
    packed.feed(1, FILES["b"][:5])
    assert packed.chunk.left() == [0, 1]
    assert (packed.chunk.rest(1).offset, packed.chunk.rest(1).length) == (5, 15)
    packed.feed(1, FILES["b"][5:])
    packed.feed(0, FILES["a"])
    packed.chunk.deliver("a")
    assert packed.job.stored == [0]
    assert packed.store.chunks == {0: b"".join(FILES.values())}
    assert packed.pool.statistics().leased_bytes == 0


def test_a_chunk_that_does_not_hash_is_asked_for_from_its_beginning() -> None:
    packed = Packed()
    for at, body in enumerate(FILES.values()):
        packed.feed(at, body if at else bytes(len(body)))
    with pytest.raises(SourceHashError, match="which holds 2 more files"):
        packed.chunk.deliver("a")
    assert packed.chunk.left() == [0, 1, 2]
    assert (packed.chunk.received, packed.chunk.mirrors) == (0, set())
    assert packed.pool.statistics().leased_bytes == 0


def test_a_read_that_moves_is_told_once_a_second() -> None:
    packed = Packed()
    for second in (0.5, 1.0, 1.9, 2.0):
        packed.now = second
        packed.feed(2, b"3")
    assert packed.told == [SourceReadMoves(MANIFEST.id, 0)] * 2
    packed.chunk.close()


@pytest.mark.parametrize(("after_s", "is_listed"), [(0.0, True), (1.0, False)])
def test_only_a_chunk_that_comes_quickly_is_offered_while_it_comes(after_s: float, *, is_listed: bool) -> None:
    packed = Packed()
    packed.now = after_s
    packed.feed(0, FILES["a"])
    assert packed.is_listed() is is_listed
    packed.chunk.close()
