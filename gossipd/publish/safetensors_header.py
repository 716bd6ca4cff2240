"""The header of a safetensors file, and whether the file is as long and as full as it says.

What lives here: the format's own rules (8 bytes of length, JSON, tensors end to end without gaps). What does not: the
tensors. The bounds are those of the safetensors library, which refuses to load what breaks them.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from gossipd.manifest.errors import shown

HEADER_BYTES_MAX = 100_000_000  # the library's
_FIRST_READ_BYTES = 64 * 1024  # holds the whole header of a shard with some 500 tensors
_BITS = {
    "BOOL": 8, "U8": 8, "I8": 8, "F8_E5M2": 8, "F8_E4M3": 8, "F8_E8M0": 8, "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8,
    "I16": 16, "U16": 16, "F16": 16, "BF16": 16, "I32": 32, "U32": 32, "F32": 32, "I64": 64, "U64": 64, "F64": 64,
    "C64": 64, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6,
}  # fmt: skip

ReadAt = Callable[[int, int], bytes]


class HeaderError(ValueError):
    """The file contradicts its header. Fault: its writer. Retry: with a good file."""


class HeaderReader:
    """``read`` gives a length of bytes at an offset; ``size`` is the file's."""

    def __init__(self, size: int, read: ReadAt) -> None:
        self._size = size
        self._read = read

    def tensor_names(self) -> frozenset[str]:
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
        tensors = _tensors(text)
        _check_layout(tensors, self._size - 8 - length)
        return frozenset(tensors)


def _tensors(text: bytes) -> dict[str, Any]:
    try:
        entries = json.loads(text)
    except (ValueError, RecursionError):
        raise HeaderError("has a header that is not JSON") from None
    if not isinstance(entries, dict):
        raise HeaderError("has a header that names no tensors")
    entries.pop("__metadata__", None)
    return entries


def _check_layout(tensors: dict[str, Any], body_bytes: int) -> None:
    at = 0
    for begin, end, name in sorted((*_extent(name, entry), name) for name, entry in tensors.items()):
        if begin != at:
            what = "overlaps the one before it" if begin < at else f"leaves a gap of {begin - at} bytes"
            raise HeaderError(f"has a tensor {shown(name)} that {what}")
        at = end
    if at != body_bytes:
        raise HeaderError(f"has tensors of {at} bytes in a body of {body_bytes}")


def _extent(name: str, entry: Any) -> tuple[int, int]:
    try:
        begin, end = entry["data_offsets"]
        bits = _BITS.get(entry["dtype"])
        count = 1
        for side in entry["shape"]:
            count *= side
        whole = isinstance(begin, int) and isinstance(end, int) and 0 <= begin <= end and isinstance(count, int)
        fits = bits is None or (count * bits + 7) // 8 == end - begin
    except (KeyError, TypeError, ValueError):
        whole = fits = False
    if not whole or not fits:
        raise HeaderError(f"has a tensor {shown(name)} whose place does not fit its shape")
    return begin, end
