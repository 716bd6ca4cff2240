"""The index of tensors: what comes back, and every table that lies."""

from __future__ import annotations

import zlib
from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossipd.manifest import tensor_index
from gossipd.manifest.errors import ManifestError
from gossipd.manifest.tensor_index import Tensor, check_index, pack_index, read_index

SIZES = [1000, 50]
GOOD = [[0, "a", "BF16", [2, 4], 10, 26], [0, "b", "U8", [], 26, 27], [1, "a", "F99", [3], 0, 50]]


def packed(*rows: Any) -> bytes:
    return zlib.compress(b"".join(msgpack.packb(row) for row in rows))


def refusal(index: bytes) -> ManifestError:
    with pytest.raises(ManifestError) as caught:
        check_index(index, SIZES)
    return caught.value


def test_tensors_come_back_as_they_were_packed() -> None:
    tensors = [Tensor(0, "model.層.weight", "F32", (2, 3), 8, 32), Tensor(1, "b", "U8", (), 0, 1)]
    index = pack_index(tensors)
    assert check_index(index, SIZES) == 2
    assert list(read_index(memoryview(index))) == tensors
    assert list(read_index(packed(*GOOD)))[2] == Tensor(1, "a", "F99", (3,), 0, 50)


def test_an_index_of_nothing_is_one() -> None:
    assert check_index(pack_index([]), SIZES) == 0


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ([0, "c", "U8", [1], 26, 27], "not behind"),
        ([0, "c", "U8", [1], 27], "is not"),
        ({}, "not within its limits|is not"),
        (7, "is not"),
        (["0", "c", "U8", [1], 27, 28], "is not"),
        ([True, "c", "U8", [1], 27, 28], "is not"),
        ([0, b"c", "U8", [1], 27, 28], "not within its limits|no name"),
        ([0, "", "U8", [1], 27, 28], "no name"),
        ([0, "c", "U8\n", [1], 27, 28], "or a dtype"),
        ([0, "c", "U" * 17, [1], 27, 28], "at most 16"),
        ([0, "c" * 1025, "U8", [1], 27, 28], "not within its limits"),
        ([0, "c", "U8", [1] * 9, 27, 28], "not within its limits|dimensions"),
        ([0, "c", "U8", [[1]], 27, 28], "no length"),
        ([0, "c", "U8", [-1], 27, 28], "no length"),
        ([0, "c", "U8", [1.0], 27, 28], "no length"),
        ([0, "c", "U8", [2], 27, 28], "fit its shape"),
        ([0, "c", "U8", [1], 1000, 1001], "file of 1000"),
        ([0, "c", "U8", [1], 28, 27], "bytes 28 to 27"),
        ([2, "c", "U8", [1], 27, 28], "file 2 of 2"),
        ([-1, "c", "U8", [1], 27, 28], "file -1 of 2"),
    ],
)
def test_a_row_that_lies_is_refused(row: Any, says: str) -> None:
    error = refusal(packed(*GOOD[:2], row))
    assert error.code == "E_INDEX"
    assert any(word in str(error) for word in says.split("|"))


def test_a_file_that_comes_twice_is_refused() -> None:
    assert "not behind" in str(refusal(packed(GOOD[2], GOOD[0])))


@pytest.mark.parametrize(
    "index",
    [b"", b"no zlib", zlib.compress(b"")[:-1], zlib.compress(b"") + b"x", zlib.compress(msgpack.packb(GOOD[0])[:-1]),
     zlib.compress(b"\xc1"), zlib.compress(b"\xdd\xff\xff\xff\xff"), zlib.compress(b"\x91" * 5000),
     zlib.compress(msgpack.packb(GOOD[0]).replace(b"BF16", b"\xff\xff16"))],
)  # fmt: skip
def test_what_is_no_stream_of_rows_is_refused(index: bytes) -> None:
    assert refusal(index).code == "E_INDEX"


def test_bounds_hold_at_the_edge(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tensor_index, "TENSORS_MAX", 3)
    assert check_index(packed(*GOOD), SIZES) == 3
    assert refusal(packed(*GOOD, [1, "b", "U8", [0], 50, 50])).code == "E_LIMIT"


def test_a_bomb_is_refused_while_it_is_inflated() -> None:
    bomb = zlib.compress(msgpack.packb([0, "", "", [], 0, 0]) + b"\x01" * 40 * 1024 * 1024, 9)
    assert len(bomb) < 60_000
    assert refusal(bomb).code == "E_INDEX"  # the first row is wrong
    rows = zlib.compress(b"".join(msgpack.packb([0, "n" * 1000, "U8", [0], 0, 0]) for _ in range(34_000)), 9)
    assert refusal(rows).sentence.startswith("E_LIMIT: bytes of index, inflated")
    assert refusal(bytes(4 * 1024 * 1024 + 1)).sentence == "E_LIMIT: bytes of index=4194305 max=4194304"


@given(st.binary(max_size=300), st.booleans())
def test_any_bytes_are_read_or_refused(body: bytes, is_stream: bool) -> None:
    index = zlib.compress(body) if is_stream else body
    try:
        count = check_index(index, SIZES)
    except ManifestError:
        return
    assert len(list(read_index(index))) == count
