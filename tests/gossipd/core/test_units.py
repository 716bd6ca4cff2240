"""Sizes and durations as people write them."""

from __future__ import annotations

import pytest

from gossipd.core.units import parse_bytes, parse_seconds, printable, show_bytes, show_count


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("0", 0), ("512", 512), ("64KiB", 65536), ("64k", 65536), ("16 MiB", 2**24), ("500GB", 500 * 10**9),
        ("1.5G", 3 * 2**29), ("2T", 2**41), ("7b", 7),
    ],
)  # fmt: skip
def test_sizes(text: str, count: int) -> None:
    assert parse_bytes(text) == count


@pytest.mark.parametrize("text", ["", "-1", "1.5", "16MiBs", "MiB", "1e9", "1 2", "0x10", "nan", "9" * 16])
def test_what_is_no_size_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match=r"bytes|size such as"):
        parse_bytes(text)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 90), ("90s", 90), ("30m", 1800), ("1.5h", 5400), ("7d", 604800), ("20ms", 0.02)],
)
def test_durations(text: str, seconds: float) -> None:
    assert parse_seconds(text) == seconds


@pytest.mark.parametrize("text", ["", "-1s", "1y", "m", "1h30m", "inf"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="duration"):
        parse_seconds(text)


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"), (1023, "1023 B"), (1024, "1 KiB"), (1536, "1.5 KiB"), (3 * 2**30, "3 GiB"),
        (150.6 * 2**20, "151 MiB"), (1.25 * 2**40, "1.2 TiB"), (2**60, "1024 PiB"),
    ],
)  # fmt: skip
def test_sizes_are_shown_short(count: float, text: str) -> None:
    assert show_bytes(count) == text


@pytest.mark.parametrize(("count", "words"), [(0, "0 files"), (1, "1 file"), (2, "2 files")])
def test_one_thing_is_told_in_the_singular(count: int, words: str) -> None:
    assert show_count(count, "file") == words


def test_what_moves_a_cursor_or_has_no_encoding_is_escaped() -> None:
    assert printable("é 100 %") == "é 100 %"
    assert printable("a\n\x1b[2Jb\udcff") == r"a\n\x1b[2Jb\udcff"
