"""Control messages as bytes, and bytes as control messages.

What lives here: the frame and its limits. What does not: the messages (``control``) and their transport.

A frame is one ZeroMQ message part::

    u8        version of this format, 1; a frame of any other version is refused as a whole
    msgpack   array: kind, number, then the fields of the message of that kind

Array header, kind and number come first and are packed by themselves, so that the fields of a delta are packed once for
all receivers, each of which gets its own number. Decoding is bounded before it allocates: no maps, no extension types,
arrays of at most 256 items (``manifest.strict_msgpack`` says why). ``msgspec`` types the result.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate, pairwise
from typing import Any

import msgpack
import msgspec

from gossipd.core.errors import RemoteError
from gossipd.wire.control import CHUNKS_MAX, DELTA_ITEMS_MAX, INTEGER_MAX, NUMBERS, Message

FRAME_VERSION = 1
# The largest message is Holdings of a million chunks, 125 KB, or a part of a manifest, 128 KiB; the sockets
# refuse anything longer before it is read (ZMQ_MAXMSGSIZE).
FRAME_BYTES_MAX = 160 * 1024
_TEXT_BYTES_MAX = 4 * 1024  # a sentence of 1,024 characters
_VERSION = bytes([FRAME_VERSION])
_BY_NUMBER = {number: kind for kind, number in NUMBERS.items()}
_BYTES = (bytes,)  # with it, msgspec takes text for text only, not for base64 of bytes
_FIXARRAY = 0x90  # msgpack's array header for up to 15 items: 0x90 + count
_HEADS = {
    kind: _VERSION + bytes([_FIXARRAY + 2 + len(kind.__struct_fields__), number]) for kind, number in NUMBERS.items()
}
assert all(len(kind.__struct_fields__) <= 13 and number < 128 for kind, number in NUMBERS.items())


class FrameError(RemoteError):
    """A frame that is not a control message. ``kind`` names the fault in one word, for the counters. Fault: the peer,
    or a version of it that is unknown here. State: unchanged. Retry: no."""

    code = "E_DECODE"

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


def encode(message: Message, *, number: int = 0) -> bytes:
    """The frame of ``message``."""
    return join(type(message), encode_fields(message), number=number)


def encode_fields(message: Message) -> bytes:
    """The fields alone, for ``join``; the same for every receiver."""
    packed: bytes = msgpack.packb(msgspec.structs.astuple(message), use_bin_type=True)
    return packed[1:]


def join(kind: type[Message], fields: bytes, *, number: int) -> bytes:
    """A frame from packed fields and the number for one receiver."""
    if number < 128:
        return _HEADS[kind] + bytes((number,)) + fields
    packed: bytes = msgpack.packb(number)
    return _HEADS[kind] + packed + fields


def decode(frame: bytes | memoryview) -> tuple[Message, int] | None:
    """The message and its number, or None for an unknown kind, which is to be ignored. Raises FrameError, whose
    ``kind`` is "version", "oversize", "msgpack", "head" or "fields"."""
    if len(frame) > FRAME_BYTES_MAX:
        raise FrameError("oversize", f"frame has {len(frame)} bytes, at most {FRAME_BYTES_MAX}")
    if not frame or frame[0] != FRAME_VERSION:
        raise FrameError("version", f"frame version {frame[0] if frame else 'missing'}, supported {FRAME_VERSION}")
    items = _unpack(frame[1:])
    if len(items) < 2 or not _is_count(items[0]) or not _is_count(items[1]):
        raise FrameError("head", "a frame must begin with its kind and its number")
    kind = _BY_NUMBER.get(items[0])
    if kind is None:
        return None
    try:
        return msgspec.convert(items[2:], kind, builtin_types=_BYTES), items[1]
    except msgspec.ValidationError as error:
        raise FrameError("fields", f"{kind.__name__}: {error}") from None


def gaps(indexes: Sequence[int]) -> tuple[int, ...]:
    """Ascending indexes as the first one and distances, which mostly fit one byte each."""
    if len(indexes) < 2:
        return tuple(indexes)
    return (indexes[0], *(after - before for before, after in pairwise(indexes)))


def indexes(gaps_heard: Iterable[int], *, chunk_count: int) -> tuple[int, ...]:
    """The indexes that ``gaps`` wrote. Raises FrameError when one is not in ``range(chunk_count)``."""
    found = tuple(accumulate(gaps_heard))
    if found and found[-1] >= min(chunk_count, CHUNKS_MAX):
        raise FrameError("fields", f"chunk {found[-1]} is past {chunk_count - 1}")
    return found


def _unpack(packed: bytes | memoryview) -> list[Any]:
    try:
        items = msgpack.unpackb(
            packed,
            max_array_len=DELTA_ITEMS_MAX,
            max_map_len=0,
            max_ext_len=0,
            max_str_len=_TEXT_BYTES_MAX,
            max_bin_len=FRAME_BYTES_MAX,
        )
    except ValueError as error:  # msgpack's own classes and UnicodeDecodeError all derive from it
        raise FrameError("msgpack", f"not MessagePack within its limits ({type(error).__name__})") from None
    if not isinstance(items, list):
        raise FrameError("head", "a frame must hold an array")
    return items


def _is_count(value: object) -> bool:
    return type(value) is int and 0 <= value <= INTEGER_MAX
