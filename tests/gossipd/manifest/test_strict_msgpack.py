"""Row B24 of the bad-input table: bytes that are not the MessagePack we write."""

from __future__ import annotations

import tracemalloc
from typing import Any

import msgpack
import pytest

from gossipd.manifest.errors import ManifestError
from gossipd.manifest.strict_msgpack import check_plain, item_count, pack, spans, unpack

LIMITS = {"array_items_max": 100, "text_bytes_max": 100, "bytes_max": 1000}


def code_of(packed: bytes) -> str:
    with pytest.raises(ManifestError) as caught:
        unpack(packed, **LIMITS)
    return caught.value.code


@pytest.mark.parametrize(
    "packed",
    [
        b"",
        b"\xc1",
        b"\x81",
        pack({"a": 1}) + b"\0",
        pack({"a": 1})[:-1],
        pack([1]),
        pack(1),
        b"\x81\x01\x01",  # an integer as key
        b"\x81\xc4\x01a\x01",  # bytes as key
        b"\x82\xa1a\x01\xa1a\x02",  # one key twice
        b"\x81\xa1a\xd4\x05\x00",  # an extension type
        b"\x81\xa1a\xd6\xff\x00\x00\x00\x00",  # a timestamp
        b"\x91" * 2000,
        pack({"a": "x" * 101}),
        pack({"a": b"x" * 1001}),
        pack({"a": [1] * 101}),
        pack({str(i): i for i in range(65)}),
        b"\x81\xa1a\xdd\xff\xff\xff\xff",  # four thousand million items are announced
        b"\x81\xa1a\xc6\xff\xff\xff\xff",
    ],
)
def test_what_we_would_not_write_is_refused(packed: bytes) -> None:
    assert code_of(packed) == "E_DECODE"


@pytest.mark.parametrize(
    "packed",
    [
        b"",
        b"\xc1",
        b"\x81",
        b"\x81\xa1a",
        b"\x81\xa1a\xc4\x02a",  # shorter than it says
        b"\x81\xa1a\xc6\xff",
        b"\x81\xa1a\xc1",
        pack({"a": 1}) + b"\0",
        pack([1]),
        b"\x81\x01\x01",
        b"\x81\xc4\x01a\x01",
        b"\x81\x80\x01",
        b"\x82\xa1a\x01\xa1a\x02",
        b"\x82\xa1a\x01\xd9\x01a\x02",  # the same key, written in another way
        b"\x81\xa1a" + b"\x91" * 100_000 + b"\1",
        pack({"a" * 300: 1}),
        pack({str(i): i for i in range(65)}),
        b"\xdf\xff\xff\xff\xff\xa1a\x01",
    ],
)
def test_what_is_no_map_has_no_spans(packed: bytes) -> None:
    with pytest.raises(ManifestError) as caught:
        spans(memoryview(packed))
    assert caught.value.code == "E_DECODE"


def test_spans_are_where_the_values_lie_whatever_they_are() -> None:
    values: dict[str, Any] = {"a": 1, "b": [1, {"c": b"x" * 70_000}], "d": b"y" * 300, "e": "z" * 200_000, "f": None}
    packed = memoryview(pack(values))
    found = spans(packed)
    assert {key: msgpack.unpackb(value) for key, value in found.items()} == values
    assert all(value.obj is packed.obj for value in found.values())
    assert [item_count(memoryview(pack(one))) for one in ([], [1] * 3, [1] * 20, [1] * 70_000, {"a": 1}, 5)] == [
        0, 3, 20, 70_000, 1, 0,
    ]  # fmt: skip


def test_text_that_is_not_utf_8_is_refused() -> None:
    assert code_of(b"\x81\xa1a\xa2\xff\xfe") == "E_PATH_UNICODE"


def test_nested_headers_cost_no_memory_to_speak_of() -> None:
    hostile = b"\xdd\x00\x00\x20\x00" * 1600  # 8 KiB of array headers, each announcing 8,192 items
    tracemalloc.start()
    try:
        assert code_of(hostile) == "E_DECODE"
        assert tracemalloc.get_traced_memory()[1] < 2_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("value", [1.5, float("nan"), 2**53, -(2**53), [[[[[[[[[1]]]]]]]]], {"a": [float("inf")]}])
def test_unknown_fields_are_no_hiding_place(value: Any) -> None:
    decoded = msgpack.unpackb(msgpack.packb(value))
    with pytest.raises(ManifestError):
        check_plain(decoded)


def test_plain_values_pass() -> None:
    check_plain({"a": [1, "x", b"y", None, True, {"b": 2**53 - 1}]})
    assert unpack(pack({"a": [1, b"x"]}), **LIMITS) == {"a": [1, b"x"]}
