"""Objects whose bytes stay wrong: read again ever more seldom, and taken soon when they are repaired."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path
from random import Random

import pytest
from msgspec.structs import replace

from gossipd.core.events import FailReason
from gossipd.manifest.source_url import parse_source_url
from gossipd.sources.errors import SourceHashError
from gossipd.sources.location import Location
from gossipd.sources.settings import SourceSettings
from gossipd.sources.wrong_bytes import ROW_MAX, WrongBytes
from tests.gossipd.sources.models import CHUNK_BYTES, sign, write_tree
from tests.gossipd.sources.test_reader import PATIENT, Seat
from tests.rangeless_server import rangeless_server
from tests.servers import fault_server

CHUNKS = 40
FILES = {"big.bin": Random(4).randbytes(CHUNKS * CHUNK_BYTES - 700)}
WRONG = FILES["big.bin"][:-1] + b"?"
MANIFEST = sign(FILES, "https://storage.example/m/")
OURS = MANIFEST.id
MIRROR = parse_source_url("https://storage.example/m/")
AT = Location.of(MIRROR, "big.bin")
ERROR = SourceHashError(AT.shown, "chunk 3 does not hash to the manifest's digest")
HOUR_S = 3600.0


@dataclass
class Clock:
    """Time goes on by itself, and by ``on_s``."""

    on_s: float = 0.0

    def __call__(self) -> float:
        return time.monotonic() + self.on_s


@dataclass
class Still:
    now: float = 0.0

    def __call__(self) -> float:
        return self.now


def came_wrong(wrong: WrongBytes, chunk: int, *, version: str = '"v1"', is_whole: bool = False) -> None:
    wrong.came_wrong(OURS, AT, chunk, ERROR, version=version, is_whole=is_whole)


def reads_in(hours: float, *, is_whole: bool) -> int:
    """How often a chunk is read that is always wrong, by a reader that asks every second."""
    clock = Still()
    wrong, reads = WrongBytes(SourceSettings(), clock), 0
    while clock.now < hours * HOUR_S:
        if wrong.refusal(MANIFEST, MIRROR, 3) is None:
            reads += 1
            came_wrong(wrong, 3, is_whole=is_whole)
        clock.now += 1.0
    return reads


def test_the_pause_before_a_wrong_chunk_is_read_again_doubles_up_to_an_hour() -> None:
    assert reads_in(1.0, is_whole=False) == 12
    assert reads_in(25.0, is_whole=False) - reads_in(5.0, is_whole=False) == 20
    assert reads_in(1.0, is_whole=True) == 7


def test_other_chunks_of_the_object_are_read_until_several_in_a_row_are_wrong() -> None:
    wrong = WrongBytes(SourceSettings(), Still())
    for chunk in range(ROW_MAX - 1):
        came_wrong(wrong, chunk)
    assert wrong.refusal(MANIFEST, MIRROR, 0) is ERROR and wrong.refusal(MANIFEST, MIRROR, 9) is None
    wrong.came_right(MANIFEST, MIRROR, [9])
    came_wrong(wrong, 10)
    assert wrong.refusal(MANIFEST, MIRROR, 11) is None, "one was right between them"
    for chunk in (11, 12):
        came_wrong(wrong, chunk)
    assert wrong.refusal(MANIFEST, MIRROR, 13) is ERROR


def test_a_wrong_chunk_that_comes_right_is_forgotten() -> None:
    wrong = WrongBytes(SourceSettings(), Still())
    came_wrong(wrong, 3, is_whole=True)
    assert wrong.was_wrong(MANIFEST, MIRROR, 3)
    wrong.came_right(MANIFEST, MIRROR, [3])
    assert (wrong.is_any, wrong.refusal(MANIFEST, MIRROR, 3)) == (False, None)


def test_a_version_that_was_not_seen_wrong_ends_the_pause_at_once() -> None:
    clock = Still()
    wrong = WrongBytes(SourceSettings(), clock)
    came_wrong(wrong, 3, is_whole=True)
    assert wrong.take_looks(OURS) == [], "it was read a moment ago"
    clock.now = 29.0
    came_wrong(wrong, 4, is_whole=True)
    clock.now = 30.5
    came_wrong(wrong, 4, is_whole=True)
    assert wrong.take_looks(OURS) == [AT] and wrong.take_looks(OURS) == []
    wrong.look(OURS, AT, '"v1"')
    assert wrong.refusal(MANIFEST, MIRROR, 3) is ERROR
    wrong.look(OURS, AT, '"v2"')
    assert wrong.refusal(MANIFEST, MIRROR, 3) is None
    came_wrong(wrong, 3, version='"v2"', is_whole=True)
    clock.now += 100.0
    assert wrong.refusal(MANIFEST, MIRROR, 3) is ERROR, "what fails again waits longer than before"


def test_replicas_with_tags_of_their_own_do_not_end_the_pause_for_ever() -> None:
    clock = Still()
    wrong, reads = WrongBytes(SourceSettings(), clock), 0
    for turn in range(24 * 360):
        if wrong.refusal(MANIFEST, MIRROR, 3) is None:
            reads += 1
            came_wrong(wrong, 3, version=f'"{turn}"', is_whole=True)
        for location in wrong.take_looks(OURS):
            wrong.look(OURS, location, f'"look {turn}"')
        clock.now += 10.0
    assert reads <= 8 + 30


@pytest.mark.parametrize("is_reloaded", [True, False])
def test_a_repair_that_no_version_shows_is_taken_at_once_after_a_reload(is_reloaded: bool) -> None:
    clock = Clock()
    with fault_server({"big.bin": WRONG}) as server:
        server.etags["big.bin"] = '"the same"'
        seat = Seat(sign(FILES, server.url), settings=SETTINGS, clock=clock)
        assert seat.read().failed == (CHUNKS - 1,)
        for _ in range(10):  # until the pause is an hour
            clock.on_s += 3600.0
            assert seat.read(CHUNKS - 1).failed
        server.objects["big.bin"] = FILES["big.bin"]
        if is_reloaded:
            seat.reader.look_again()
        assert bool(seat.read(CHUNKS - 1).stored) is is_reloaded


def test_errors_that_are_kept_hold_no_buffers_of_reads() -> None:
    with fault_server({"big.bin": WRONG}) as server:
        seat = Seat(sign(FILES, server.url), settings=PATIENT)
        outcome = seat.read(CHUNKS - 1)
    refused = seat.reader._wrong.refusal(seat.manifest, parse_source_url(server.url), CHUNKS - 1)
    assert refused is not None
    for error in (refused, *outcome.errors):
        assert (error.__traceback__, error.__context__, error.__cause__) == (None, None, None)


def test_a_deployment_that_is_over_leaves_nothing_behind() -> None:
    wrong = WrongBytes(SourceSettings(), Still())
    came_wrong(wrong, 3)
    wrong.forget(OURS)
    assert not wrong.is_any


SETTINGS = replace(PATIENT, whole_file_bytes_max=2 * CHUNK_BYTES)


@pytest.mark.parametrize("has_ranges", [True, False])
def test_lastingly_wrong_bytes_cost_little_and_a_repaired_object_is_taken(tmp_path: Path, has_ranges: bool) -> None:
    clock = Clock()
    path = tmp_path / "big.bin"
    write_tree({"big.bin": WRONG}, tmp_path)
    os.utime(path, (1, 1))
    with rangeless_server(tmp_path) as rangeless, fault_server({"big.bin": WRONG}) as ranged:
        seat = Seat(sign(FILES, ranged.url if has_ranges else rangeless.url), settings=SETTINGS, clock=clock)

        def turn() -> tuple[int, ...]:
            """As the daemon does: it asks for what is missing, and looks at storage that has failed."""
            missing = [chunk for chunk in range(CHUNKS) if chunk not in seat.store.chunks]
            outcome = seat.reader.read_chunks(seat.manifest, missing, from_start=not has_ranges)
            if outcome.failed:
                assert outcome.reason is FailReason.CORRUPT and outcome.errors[-1].code == "E_SOURCE_HASH"
                seat.reader.probe(seat.manifest)
            clock.on_s += 10.0
            return outcome.failed

        assert turn() == (CHUNKS - 1,), "what is as published is read on"
        before, answers = seat.reader.statistics().bytes, rangeless.answers
        for _ in range(360):
            assert turn() == (CHUNKS - 1,)
        read = seat.reader.statistics().bytes - before
        assert read <= (12 * CHUNK_BYTES if has_ranges else 8 * len(WRONG)) + 720
        assert rangeless.answers - answers <= 360 + 120 + 8, "of looks, which are ended, and reads"
        ranged.objects["big.bin"], ranged.etags["big.bin"] = FILES["big.bin"], '"repaired"'
        path.write_bytes(FILES["big.bin"])
        for _ in range(6):
            if not turn():
                break
        assert len(seat.store.chunks) == CHUNKS, "within a minute"
        seat.reader.close()
