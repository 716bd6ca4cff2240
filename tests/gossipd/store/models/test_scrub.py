"""Rot: found by a complaint, by a verification and by the scrub; dropped, told and repaired in place."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from gossipd.core.events import ChunkLost
from gossipd.core.ids import SOURCE
from gossipd.runtime.ports import NotHeldError, StoreWriteError
from gossipd.store.chunk_store import ChunkStore
from gossipd.store.models.scrub import PASS_S_MIN
from gossipd.store.notices import StoreEvent
from gossipd.store.settings import StoreSettings
from tests.gossipd.store.set_clock import SetClock
from tests.gossipd.store.small_models import CHUNK, small

ONE = small()
ID = ONE.manifest.id


class Published:
    """A store with one published model, a wall clock that the test sets, and its events."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.wall = 1_000_000.0
        self.events: list[StoreEvent] = []
        self.store = self._open()
        self.store.open(ONE.manifest)
        self.put(*range(6))
        self.store.finish(ID)
        self.events.clear()

    def _open(self) -> ChunkStore:
        return ChunkStore(
            self.root,
            settings=StoreSettings(reserve_bytes=0),
            on_event=self.events.append,
            clock=SetClock(wall=lambda: self.wall),
            background=False,
        )

    def put(self, *chunks: int) -> None:
        for chunk in chunks:
            self.store.put(ID, chunk, ONE.chunks[chunk], SOURCE, 0.0)

    def restart(self) -> None:
        self.store.close()
        self.store = self._open()
        self.store.open(ONE.manifest)

    def rot(self, path: str, at: int) -> None:
        with (self.root / "m/1" / path).open("r+b") as file:
            file.seek(at)
            byte = file.read(1)
            file.seek(at)
            file.write(bytes([byte[0] ^ 1]))

    @property
    def lost(self) -> list[int]:
        return [event.chunk for event in self.events if isinstance(event, ChunkLost)]


@pytest.fixture
def published(tmp_path: Path) -> Iterator[Published]:
    one = Published(tmp_path)
    yield one
    one.store.close()


def test_a_complaint_about_a_good_chunk_changes_nothing(published: Published) -> None:
    assert published.store.recheck(ID, 0)
    assert published.lost == []


def test_a_rotten_chunk_is_dropped_refused_and_repaired_in_place(published: Published) -> None:
    published.rot("shards/one.bin", CHUNK + 3)
    assert not published.store.recheck(ID, 1)
    assert published.lost == [1]
    with pytest.raises(NotHeldError):
        published.store.open_chunk(ID, 1)
    published.put(1)
    assert published.store.recheck(ID, 1)
    assert (published.root / "m/1/shards/one.bin").read_bytes() == ONE.files["shards/one.bin"]


def test_a_chunk_in_the_place_of_another_is_found(published: Published) -> None:
    path = published.root / "m/1/shards/one.bin"
    body = bytearray(path.read_bytes())
    body[CHUNK : 2 * CHUNK] = body[:CHUNK]
    path.write_bytes(body)
    assert published.store.recheck(ID, 0)
    assert not published.store.recheck(ID, 1)


def test_a_drop_is_remembered_by_a_restart(published: Published) -> None:
    published.rot("two.bin", 0)
    published.store.recheck(ID, 3)
    published.restart()
    assert set(published.store.held(ID)) == {0, 1, 2, 4, 5}


def test_a_file_that_is_gone_loses_all_of_its_chunks_at_once_and_is_made_again(published: Published) -> None:
    (published.root / "m/1/shards/one.bin").unlink()
    assert not published.store.recheck(ID, 2)
    assert sorted(published.lost) == [0, 1, 2]
    published.put(0, 1, 2)
    assert (published.root / "m/1/shards/one.bin").read_bytes() == ONE.files["shards/one.bin"]


def test_a_file_that_was_cut_loses_what_lay_behind_the_cut(published: Published) -> None:
    os.truncate(published.root / "m/1/shards/one.bin", CHUNK + 1)
    assert not published.store.recheck(ID, 1)
    assert sorted(published.lost) == [1, 2]
    published.put(1, 2)
    assert (published.root / "m/1/shards/one.bin").read_bytes() == ONE.files["shards/one.bin"]


def test_a_chunk_whose_file_is_gone_is_refused_by_its_own_code_and_found_lost_when_looked_at(
    published: Published,
) -> None:
    (published.root / "m/1/shards/one.bin").unlink()
    with pytest.raises(NotHeldError) as caught:
        published.store.open_chunk(ID, 0)
    assert caught.value.code == "E_CHUNK_UNAVAILABLE"
    assert not published.store.recheck(ID, 0)
    with pytest.raises(NotHeldError) as caught:
        published.store.open_chunk(ID, 0)
    assert caught.value.code == "E_NOT_HELD"


def test_being_out_of_descriptors_says_nothing_about_a_chunk(
    published: Published, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: str, *, write: bool = False, create: bool = False, mode: int = 0) -> int:
        raise OSError(errno.EMFILE, "too many open files")

    monkeypatch.setattr(published.store._disk, "open", refuse)
    with pytest.raises(StoreWriteError) as caught:
        published.store.recheck(ID, 0)
    assert caught.value.code == "E_STORE_HANDLES"
    assert published.lost == []


def test_verifying_names_every_bad_chunk_and_how_far_it_is(published: Published) -> None:
    published.rot("two.bin", 5)
    published.rot("config.json", 1)
    checks = list(published.store.verify("m", 1))
    assert [check.chunk for check in checks if not check.is_good] == [3, 5]
    assert [check.chunk for check in checks] == list(range(ONE.manifest.chunk_count))
    assert published.lost == [3, 5]


def test_verifying_calls_what_has_not_come_yet_not_bad(published: Published) -> None:
    other = small(version=2, seed=2)
    published.store.open(other.manifest)
    for chunk in (0, 4):
        published.store.put(other.manifest.id, chunk, other.chunks[chunk], SOURCE, 0.0)
    checks = list(published.store.verify("m", 2))
    assert [check.chunk for check in checks if check.is_here and check.is_good] == [0, 4]
    assert not [check for check in checks if check.is_here and not check.is_good]
    assert len(checks) == other.manifest.chunk_count
    assert published.lost == []


def test_the_scrub_walks_over_everything_and_says_how_long_ago_the_oldest_check_was(published: Published) -> None:
    published.wall += 500
    assert published.store.statistics().oldest_unchecked_age_s == 500
    assert published.store.scrubber.step(1) == CHUNK
    assert published.store.statistics().oldest_unchecked_age_s == 500
    while published.store.statistics().oldest_unchecked_age_s:
        published.store.scrubber.step(1)
    assert published.store.statistics().scrubbed_bytes == ONE.manifest.bytes_total


def test_a_small_model_is_read_once_in_a_minute_and_not_without_a_pause(published: Published) -> None:
    paced_step = published.store.scrubber.paced_step
    assert paced_step() is None, "it was verified when it came"
    published.wall += PASS_S_MIN
    for _ in range(6):
        assert paced_step()
    assert paced_step() is None
    published.wall += PASS_S_MIN
    assert paced_step()


def test_a_clock_that_is_set_back_does_not_end_the_scrub(published: Published) -> None:
    published.wall -= 1000 * PASS_S_MIN
    assert published.store.scrubber.paced_step()


def test_the_scrub_goes_on_after_a_restart_where_it_was(published: Published) -> None:
    published.wall += 500
    published.store.scrubber.step(3 * CHUNK)
    published.restart()
    published.wall += 100
    assert published.store.statistics().oldest_unchecked_age_s == 600
    published.rot("two.bin", CHUNK)
    published.store.scrubber.step(1)
    assert published.lost == [4]


def test_without_a_file_of_check_times_the_journal_says_when_the_model_was_published(published: Published) -> None:
    published.restart()
    published.store.close()
    published.wall += 700
    assert not (published.root / ".manifests" / ID.hex() / "checked").exists()
    for _ in range(2):
        published.store = published._open()
        published.store.open(ONE.manifest)
        assert published.store.statistics().oldest_unchecked_age_s == 700
        published.store.close()
    published.store = published._open()


def test_a_damaged_file_of_check_times_costs_only_a_check(published: Published) -> None:
    published.wall += 10
    published.store.scrubber.step(1)
    published.store.close()
    checked = published.root / ".manifests" / ID.hex() / "checked"
    body = bytearray(checked.read_bytes())
    body[-1] ^= 1
    checked.write_bytes(body)
    published.store = published._open()
    published.store.open(ONE.manifest)
    assert published.store.statistics().oldest_unchecked_age_s == 10
