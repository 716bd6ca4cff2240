"""Ranges of files on this host: every byte, in pieces or at once, and every way in which a file is none."""

from __future__ import annotations

import os
import time
from contextlib import closing
from pathlib import Path
from random import Random
from types import SimpleNamespace
from urllib.parse import quote

import pytest

from gossipd.manifest.chunk_layout import Segment
from gossipd.manifest.source_url import parse_source_url
from gossipd.sources.errors import SourceNotFoundError, SourceShortError
from gossipd.sources.file_stream import FileStream
from gossipd.sources.location import Location
from gossipd.sources.settings import SourceSettings

BODY = Random(1).randbytes(700_000)


def stream(directory: Path, name: str, offset: int, length: int, *, whole: bool = False) -> FileStream:
    location = Location.of(parse_source_url(f"file://{quote(os.fsencode(directory))}"), name)
    part = Segment(0, offset, length)
    return FileStream(location, part, whole=whole, settings=SourceSettings(), clock=time.monotonic)


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("name", ["model.bin", "ä b%20#?.bin"])
def test_a_range_gives_exactly_its_bytes(tmp_path: Path, name: str, whole: bool) -> None:
    directory = tmp_path / "a directory, 100 %"
    directory.mkdir()
    (directory / name).write_bytes(BODY)
    with closing(stream(directory, name, 5, 600_000, whole=whole)) as pieces:
        assert pieces.version.size == len(BODY)
        assert b"".join(bytes(piece) for piece in pieces) == BODY[5:600_005]


def test_a_range_read_at_once_is_one_piece(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(BODY)
    with closing(stream(tmp_path, "a", 0, len(BODY), whole=True)) as pieces:
        assert [len(piece) for piece in pieces] == [len(BODY)]


def test_a_file_that_is_cut_meanwhile_ends_the_read(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(BODY)
    with closing(stream(tmp_path, "a", 0, len(BODY))) as pieces:
        reading = iter(pieces)
        next(reading)
        os.truncate(tmp_path / "a", 300_000)
        with pytest.raises(SourceShortError, match="300000 bytes came, 700000 were promised"):
            list(reading)


@pytest.mark.parametrize("time_s", [float(2**62), -float(2**62), 253402300800.0])
def test_a_file_of_a_time_beyond_every_calendar_has_no_date(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, time_s: float
) -> None:
    (tmp_path / "a").write_bytes(BODY)
    found = os.stat(tmp_path / "a")
    fields = {name: getattr(found, name) for name in ("st_mode", "st_ino", "st_mtime_ns", "st_size")}
    monkeypatch.setattr(os, "fstat", lambda _: SimpleNamespace(**fields, st_mtime=time_s))
    with closing(stream(tmp_path, "a", 0, 100)) as pieces:
        assert pieces.version.modified is None


def test_a_file_that_opens_late_is_held_to_the_rate_of_its_bytes(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(BODY)
    times = iter([0.0, 60.0, *(60.0 + number / 100 for number in range(100))])
    location = Location.of(parse_source_url(f"file://{tmp_path}"), "a")
    made = FileStream(location, Segment(0, 0, 1000), whole=False, settings=SourceSettings(), clock=lambda: next(times))
    with closing(made) as pieces:
        assert sum(map(len, pieces)) == 1000


@pytest.mark.parametrize("name", ["fifo", "directory", "absent", "file/below", "x" * 300])
def test_what_is_no_file_is_not_found_at_once(tmp_path: Path, name: str) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "directory").mkdir()
    (tmp_path / "file").touch()
    with pytest.raises(SourceNotFoundError):
        stream(tmp_path, name, 0, 1)
