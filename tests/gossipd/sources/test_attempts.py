"""Which mirrors one call of the reader may still ask, for each chunk."""

from __future__ import annotations

from gossipd.manifest.source_url import parse_source_url
from gossipd.runtime.buffer_pool import BufferPool
from gossipd.sources.assembly import Delivery
from gossipd.sources.attempts import Attempts
from gossipd.sources.errors import SourceHashError
from gossipd.sources.location import Location
from gossipd.sources.packed_chunk import PackedChunk
from gossipd.sources.range_request import Job
from gossipd.sources.settings import SourceSettings
from gossipd.sources.wrong_bytes import WrongBytes
from tests.gossipd.sources.models import CHUNK_BYTES, MemoryStore, sign

MANIFEST = sign({"a.bin": bytes(4 * CHUNK_BYTES)}, "https://one.example/", "https://two.example/")
MIRRORS = [parse_source_url(url) for url in MANIFEST.sources]
ONE, TWO = MIRRORS


def test_a_mirror_is_given_up_for_one_chunk_or_for_all() -> None:
    attempts = Attempts(Job(MANIFEST), MIRRORS, WrongBytes(SourceSettings(), lambda: 0.0))
    attempts.give_up(ONE, 1)
    assert (attempts.usable(0), attempts.usable(1)) == ([ONE, TWO], [TWO])
    assert attempts.alike([0, 1, 2]) == [0]
    attempts.give_up(ONE, None)
    assert attempts.alike([0, 1, 2]) == [0, 1, 2]
    attempts.give_up(TWO, None)
    assert not attempts.are_left


def test_what_is_known_to_be_wrong_at_a_mirror_is_not_asked_for_and_the_error_is_kept() -> None:
    job, wrong = Job(MANIFEST), WrongBytes(SourceSettings(), lambda: 0.0)
    error = SourceHashError("https://one.example/a.bin", "chunk 2 does not hash")
    wrong.came_wrong(MANIFEST.id, Location.of(ONE, "a.bin"), 2, error, version="", is_whole=False)
    attempts = Attempts(job, MIRRORS, wrong)
    assert attempts.alike([1, 2, 3]) == [1]
    assert (attempts.usable(2), job.errors) == ([TWO], [error])


def test_failures_count_since_more_of_a_packed_chunk_has_come() -> None:
    files = {"a": b"1", "b": b"2", "c": b"3"}
    job = Job(sign(files, "https://one.example/", "https://two.example/"))
    attempts = Attempts(job, MIRRORS, WrongBytes(SourceSettings(), lambda: 0.0))
    delivery = Delivery(MemoryStore(job.manifest), BufferPool(4 * 1024 * 1024))
    packed = attempts.packed = PackedChunk(job, 0, delivery, clock=lambda: 0.0)
    assert [attempts.count(ONE, 0), attempts.count(ONE, 0)] == [1, 2]
    packed.feed(1, ONE.text, memoryview(b"2"))
    assert [attempts.count(ONE, 0), attempts.count(ONE, 0)] == [1, 2]
    attempts.close()
    assert delivery.pool.statistics().leased_bytes == 0


def test_a_chunk_that_does_not_hash_together_comes_from_one_mirror_at_a_time() -> None:
    attempts = Attempts(Job(MANIFEST), MIRRORS, WrongBytes(SourceSettings(), lambda: 0.0))
    assert [attempts.read_alone(1), attempts.read_alone(1)] == [True, False]
    assert (attempts.usable(0), attempts.usable(1)) == ([ONE, TWO], [ONE])
    attempts.give_up(ONE, 1)
    assert attempts.usable(1) == [TWO]
