"""The index of a model's tensors: which bytes of which file each one is, as its publisher read it in the headers.

What lives here: the format, packed by the publisher, and read by a host with every bound. What does not: reading
headers (``publish.safetensors_header``), and what a host does with it.

Format: a zlib stream of MessagePack arrays, one after the other, one a tensor, by file and offset::

    [file, name, dtype, [shape], begin, end]        file: its place in ``files``; begin, end: bytes in the file

Rows are read one at a time while the stream is inflated, and none is kept, so that an index at its bounds costs a
second of one core and no memory. An index decides nothing about bytes: chunks are checked by their hashes, whatever it
says. The table of DeepSeek-V3 (89,697 tensors) has 265 KiB.

Rejected: columns, which shrink a little better and cannot be read a row at a time; JSON, twice as slow.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Sequence
from math import prod
from typing import Any

import msgpack
from msgspec import Struct

from gossipd.manifest.errors import ManifestError, shown
from gossipd.manifest.strict_msgpack import INTEGER_MAX

INDEX_BYTES_MAX = 4 * 1024 * 1024  # as packed
INFLATED_BYTES_MAX = 32 * 1024 * 1024
TENSORS_MAX = 150_000  # Kimi K2 has some 140,000
NAME_BYTES_MAX = 1024
DTYPE_BYTES_MAX = 16
DIMENSIONS_MAX = 8
_PIECE_BYTES = 64 * 1024
# Bits of an element, by the names that safetensors gives; other dtypes are taken as they are.
DTYPE_BITS = {
    "BOOL": 8, "U8": 8, "I8": 8, "F8_E5M2": 8, "F8_E4M3": 8, "F8_E8M0": 8, "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8,
    "I16": 16, "U16": 16, "F16": 16, "BF16": 16, "I32": 32, "U32": 32, "F32": 32, "I64": 64, "U64": 64, "F64": 64,
    "C64": 64, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6,
}  # fmt: skip

_TYPES = (int, str, str, list, int, int)


class Tensor(Struct, frozen=True):
    """One tensor: bytes ``begin`` to ``end`` (not included) of file ``file_index``."""

    file_index: int
    name: str
    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int


def pack_index(tensors: Iterable[Tensor]) -> bytes:
    """The index of tensors that are in order of file and offset. ``check_index`` says whether a host takes it."""
    packer, stream = msgpack.Packer(), zlib.compressobj(9)
    packed = [
        stream.compress(packer.pack([one.file_index, one.name, one.dtype, one.shape, one.begin, one.end]))
        for one in tensors
    ]
    return b"".join((*packed, stream.flush()))


def check_index(packed: bytes | memoryview, sizes: Sequence[int]) -> int:
    """Read every row; returns how many there are. ``sizes``: of the manifest's files. Raises ManifestError
    ``E_LIMIT`` or ``E_INDEX``: the table lies, or is none."""
    count = 0
    file_before, end_before = -1, 0
    for count, row in enumerate(_rows(packed), start=1):
        if count > TENSORS_MAX:
            raise ManifestError(f"tensors>{TENSORS_MAX} max={TENSORS_MAX}", code="E_LIMIT")
        file_index, begin, end = _checked(row, count - 1, sizes)
        if file_index < file_before or (file_index == file_before and begin < end_before):
            raise _refusal(count - 1, "is not behind the one before it")
        file_before, end_before = file_index, end
    return count


def read_index(packed: bytes | memoryview) -> Iterator[Tensor]:
    """The tensors of an index that ``check_index`` has passed."""
    for file_index, name, dtype, shape, begin, end in _rows(packed):
        yield Tensor(file_index, name, dtype, tuple(shape), begin, end)


def _checked(row: object, number: int, sizes: Sequence[int]) -> tuple[int, int, int]:
    """File, begin and end of a row. Raises ManifestError."""
    if type(row) is not list or tuple(map(type, row)) != _TYPES:
        raise _refusal(number, "is not [file, name, dtype, shape, begin, end]")
    file_index, name, dtype, shape, begin, end = row
    bits = DTYPE_BITS.get(dtype)
    if not name or (bits is None and not (dtype.isascii() and dtype.isprintable() and len(dtype) <= DTYPE_BYTES_MAX)):
        raise _refusal(number, f"has no name, or a dtype that is not at most {DTYPE_BYTES_MAX} printable letters")
    if len(shape) > DIMENSIONS_MAX:
        raise _refusal(number, f"has over {DIMENSIONS_MAX} dimensions")
    if not 0 <= file_index < len(sizes):
        raise _refusal(number, f"is in file {file_index} of {len(sizes)}")
    if not 0 <= begin <= end <= sizes[file_index]:
        raise _refusal(number, f"has bytes {begin} to {end} of a file of {sizes[file_index]}")
    for side in shape:
        if type(side) is not int or not 0 <= side <= INTEGER_MAX:
            raise _refusal(number, "has a side that is no length")
    if bits is not None and (prod(shape) * bits + 7) // 8 != end - begin:
        raise _refusal(number, f"has {end - begin} bytes, which do not fit its shape")
    return file_index, begin, end


def _rows(packed: bytes | memoryview) -> Iterator[Any]:
    """Each value of the stream. Raises ManifestError when it is no such stream, or too long."""
    unpacker = msgpack.Unpacker(
        raw=False, use_list=True, strict_map_key=True, max_buffer_size=2 * _PIECE_BYTES, max_str_len=NAME_BYTES_MAX,
        max_bin_len=0, max_array_len=max(6, DIMENSIONS_MAX), max_map_len=0, max_ext_len=0,
    )  # fmt: skip
    try:
        for piece in _inflated(packed):
            unpacker.feed(piece)
            yield from unpacker
        unpacker.feed(b"\xc0")  # a nil, which a row that has not ended would take in
        if list(unpacker) != [None]:
            raise ManifestError("index ends within a row", code="E_INDEX")
    except zlib.error:
        raise ManifestError("index is not a zlib stream", code="E_INDEX") from None
    except (ValueError, msgpack.UnpackException) as error:  # also UnicodeDecodeError
        raise ManifestError(f"index is not within its limits: {shown(str(error))}", code="E_INDEX") from None


def _inflated(packed: bytes | memoryview) -> Iterator[bytes]:
    """The stream in pieces, so that a bomb of 4 MiB never becomes 4 GiB."""
    if len(packed) > INDEX_BYTES_MAX:
        raise ManifestError(f"bytes of index={len(packed)} max={INDEX_BYTES_MAX}", code="E_LIMIT")
    inflater, total = zlib.decompressobj(), 0
    for at in range(0, len(packed), _PIECE_BYTES):
        left = bytes(packed[at : at + _PIECE_BYTES])
        while left:
            if inflater.eof:
                raise ManifestError("bytes follow the index", code="E_INDEX")
            piece = inflater.decompress(left, _PIECE_BYTES)
            left = inflater.unconsumed_tail or inflater.unused_data
            total += len(piece)
            if total > INFLATED_BYTES_MAX:
                raise ManifestError(
                    f"bytes of index, inflated>{INFLATED_BYTES_MAX} max={INFLATED_BYTES_MAX}", code="E_LIMIT"
                )
            yield piece
    if not inflater.eof:
        raise ManifestError("index ends within its stream", code="E_INDEX")


def _refusal(number: int, says: str) -> ManifestError:
    return ManifestError(f"index: tensor {number} {says}", code="E_INDEX")
