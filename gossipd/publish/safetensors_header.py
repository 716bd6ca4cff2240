"""The header of a safetensors file, and whether the file is as long and as full as it says.

What lives here: the format's own rules (8 bytes of length, JSON, tensors end to end without gaps). What does not: the
tensors. The bounds are those of the safetensors library, which refuses to load what breaks them.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from msgspec import Struct

from gossipd.manifest.errors import shown
from gossipd.manifest.tensor_index import DTYPE_BITS

HEADER_BYTES_MAX = 100_000_000  # the library's
_FIRST_READ_BYTES = 64 * 1024  # holds the whole header of a shard with some 500 tensors

ReadAt = Callable[[int, int], bytes]


class HeaderError(ValueError):
    """The file contradicts its header. Fault: its writer. Retry: with a good file."""


class HeaderEntry(Struct, frozen=True):
    """One tensor; ``begin`` and ``end`` are bytes in the file."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int


class SafetensorsHeader(Struct, frozen=True):
    """``header_bytes`` with the 8 bytes of length; the tensors in order of offset, which fill the rest of the file."""

    header_bytes: int
    tensors: tuple[HeaderEntry, ...]


class HeaderReader:
    """``read`` gives a length of bytes at an offset; ``size`` is the file's."""

    def __init__(self, size: int, read: ReadAt) -> None:
        self._size = size
        self._read = read

    def tensor_names(self) -> frozenset[str]:
        """Raises HeaderError with the first rule broken."""
        return frozenset(one.name for one in self.header().tensors)

    def header(self) -> SafetensorsHeader:
        """Raises HeaderError with the first rule broken."""
        if self._size < 8:
            raise HeaderError(f"has {self._size} bytes, too few for a safetensors header")
        head = self._read(0, min(self._size, _FIRST_READ_BYTES))
        length = int.from_bytes(head[:8], "little")
        if length > self._size - 8:
            raise HeaderError(f"has a header of {length} bytes in a file of {self._size}")
        if not 2 <= length <= HEADER_BYTES_MAX:
            raise HeaderError(f"has a header of {length} bytes, which is none")
        text = head[8 : 8 + length]
        if len(text) < length:
            text += self._read(len(head), 8 + length - len(head))
        tensors = sorted(
            (_entry(name, entry, 8 + length) for name, entry in _tensors(text).items()),
            key=lambda one: (one.begin, one.end, one.name),
        )
        at = 8 + length
        for one in tensors:
            if one.begin != at:
                what = "overlaps the one before it" if one.begin < at else f"leaves a gap of {one.begin - at} bytes"
                raise HeaderError(f"has a tensor {shown(one.name)} that {what}")
            at = one.end
        if at != self._size:
            raise HeaderError(f"has tensors of {at - 8 - length} bytes in a body of {self._size - 8 - length}")
        return SafetensorsHeader(8 + length, tuple(tensors))


def _tensors(text: bytes) -> dict[str, Any]:
    try:
        entries = json.loads(text)
    except (ValueError, RecursionError):
        raise HeaderError("has a header that is not JSON") from None
    if not isinstance(entries, dict):
        raise HeaderError("has a header that names no tensors")
    entries.pop("__metadata__", None)
    return entries


def _entry(name: str, entry: Any, body_at: int) -> HeaderEntry:
    try:
        begin, end = entry["data_offsets"]
        dtype, shape = entry["dtype"], tuple(entry["shape"])
        bits, count = DTYPE_BITS.get(dtype), 1
        for side in shape:
            count *= side
        integers = all(type(one) is int and one >= 0 for one in (begin, end, *shape))
        whole = integers and begin <= end and isinstance(dtype, str)
        fits = bits is None or (count * bits + 7) // 8 == end - begin
    except (KeyError, TypeError, ValueError):
        whole = fits = False
    if not whole or not fits:
        raise HeaderError(f"has a tensor {shown(name)} whose place does not fit its shape")
    return HeaderEntry(name, dtype, shape, body_at + begin, body_at + end)
