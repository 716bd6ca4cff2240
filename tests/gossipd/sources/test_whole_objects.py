"""Files of servers without ranges, read once and from their beginning: Python's own web server."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import cast

import pytest
from msgspec.structs import replace

from gossipd.core.events import FailReason
from gossipd.core.ids import DeploymentId
from gossipd.sources.errors import SourceError
from gossipd.sources.web_stream import WebStream
from gossipd.sources.whole_objects import WholeObjects
from tests.gossipd.sources.models import CHUNK_BYTES, sign, write_tree
from tests.gossipd.sources.test_reader import QUICK, Seat
from tests.rangeless_server import RangelessServer, rangeless_server

CHUNKS = 40
FILES = {"big.bin": Random(3).randbytes(CHUNKS * CHUNK_BYTES - 700), "config.json": b"{}"}
BYTES = CHUNKS * CHUNK_BYTES
SETTINGS = replace(QUICK, whole_file_bytes_max=2 * CHUNK_BYTES)
LOOK_BYTES = 3 * CHUNK_BYTES  # what a client's first window takes before it says that it wants no more


def seat_at(server: RangelessServer, files: dict[str, bytes] = FILES) -> Seat:
    return Seat(sign(files, server.url), settings=SETTINGS)


def read_on(seat: Seat, first: int, last: int) -> None:
    outcome = seat.reader.read_chunks(seat.manifest, range(first, last), from_start=True)
    assert outcome.stored == tuple(range(first, last)), outcome.errors


def test_a_read_of_a_part_of_a_large_file_says_that_only_whole_objects_come(tmp_path: Path) -> None:
    write_tree(FILES, tmp_path)
    with rangeless_server(tmp_path) as server:
        seat = seat_at(server)
        outcome = seat.read(3, 4)
        assert (outcome.failed, outcome.reason) == ((3, 4), FailReason.WHOLE_ONLY)
        probed = seat.reader.probe(seat.manifest)
        assert (probed.readable, probed.is_whole_only) == (True, True)
        read_on(seat, 0, 5)
        seat.reader.close()
    assert server.acknowledged < BYTES, "the looks were ended, and the rest was not taken"


def test_a_large_file_is_read_once_in_parts(tmp_path: Path) -> None:
    write_tree(FILES, tmp_path)
    with rangeless_server(tmp_path) as server:
        seat = seat_at(server)
        for first in range(0, seat.manifest.chunk_count, 4):
            read_on(seat, first, min(first + 4, seat.manifest.chunk_count))
        seat.reader.close()
    assert server.acknowledged <= BYTES + LOOK_BYTES
    assert seat.reader.statistics().bytes <= BYTES


def test_after_a_break_the_verified_part_is_dropped_and_not_stored_again(tmp_path: Path) -> None:
    write_tree(FILES, tmp_path)
    with rangeless_server(tmp_path) as server:
        seat = seat_at(server)
        read_on(seat, 0, 8)  # by the second answer: the first is the look
        server.breaks_at = [20 * CHUNK_BYTES + 5]
        seat.reader.forget(seat.manifest.id)  # another stream, which breaks
        for first in range(8, seat.manifest.chunk_count, 4):
            read_on(seat, first, min(first + 4, seat.manifest.chunk_count))
        seat.reader.close()
    assert seat.store.mismatches == 0 and len(seat.store.chunks) == seat.manifest.chunk_count
    assert seat.reader.statistics().bytes <= BYTES + (8 + 21) * CHUNK_BYTES


class LockReleasedLate:
    """Lets ``meanwhile`` happen while it is about to be released."""

    def __init__(self, meanwhile: Callable[[], None]) -> None:
        self._lock, self._meanwhile = threading.Lock(), meanwhile

    def acquire(self, *, blocking: bool = True) -> bool:
        return self._lock.acquire(blocking=blocking)

    def release(self) -> None:
        meanwhile, self._meanwhile = self._meanwhile, lambda: None
        meanwhile()
        self._lock.release()


class ClosingStream:
    """Counts its ends."""

    closed = 0

    def go_on(self) -> None: ...

    def close(self) -> None:
        self.closed += 1


def test_a_stream_that_is_given_up_as_its_part_ends_is_closed_all_the_same() -> None:
    wholes, stream = WholeObjects(), ClosingStream()
    with wholes.stream((DeploymentId(bytes(32)), "a"), 0, lambda: cast(WebStream, stream)) as one:
        one.in_use = cast(threading.Lock, LockReleasedLate(wholes.close))
        one.in_use.acquire()
    assert stream.closed == 1


def test_what_another_reader_has_read_meanwhile_is_dropped(tmp_path: Path) -> None:
    write_tree(FILES, tmp_path)
    with rangeless_server(tmp_path) as server:
        seat = seat_at(server)
        read_on(seat, 2, 4)
        read_on(seat, 30, 32)
        assert server.answers == 2, "a look, and one stream that skips"
        read_on(seat, 10, 12)
        assert server.answers == 3, "what lies behind needs another"
        seat.reader.close()


@pytest.mark.parametrize(("change", "code"), [(-5, "E_SOURCE_TRUNCATED"), (5, "E_SOURCE_LONG")])
def test_a_file_of_another_length_is_told_as_that_for_good(tmp_path: Path, change: int, code: str) -> None:
    body = FILES["big.bin"]
    write_tree(FILES | {"big.bin": body[:change] if change < 0 else body + bytes(change)}, tmp_path)
    with rangeless_server(tmp_path) as server:
        outcome = seat_at(server).reader.read_chunks(sign(FILES, server.url), [0], from_start=True)
    error = outcome.errors[-1]
    assert isinstance(error, SourceError)
    assert (error.code, error.is_permanent, error.what) == (code, True, f"{server.url}/big.bin")


def test_a_reader_that_stops_ends_its_streams(tmp_path: Path) -> None:
    write_tree(FILES, tmp_path)
    with rangeless_server(tmp_path) as server:
        seat = seat_at(server)
        read_on(seat, 0, 2)
        seat.reader.forget(seat.manifest.id)
        read_on(seat, 2, 4)
        seat.reader.close()
    assert server.answers == 3
