"""MessagePack with every limit set: the only way in which manifests and statement files are packed and unpacked.

What lives here: ``pack``, ``unpack``, and what looks at a message without making its values. What does
not: the types of the values (``msgspec.convert``).

``msgpack.unpackb`` derives its limits from the length of the message, so nested array headers of 8 KiB cost tens of
megabytes; every count is therefore given. Also refused: trailing bytes, keys that are not text or come twice, extension
types, floats (so NaN cannot occur), integers beyond 53 bits (the most that JSON can hold), and deep nesting.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import msgpack
import msgspec

from gossipd.manifest.errors import ManifestError, shown

T = TypeVar("T")

INTEGER_MAX = 2**53 - 1  # what a double, hence JSON and JavaScript, holds exactly
DEPTH_MAX = 8  # manifests need three; headroom for additions that older readers skip
MAP_ITEMS_MAX = 64  # manifests have twelve
KEY_BYTES_MAX = 256
_READ_BYTES = 64 * 1024


def pack(value: object) -> bytes:
    """The bytes of ``value``: maps, lists, text, bytes and integers only."""
    packed: bytes = msgpack.packb(value, use_bin_type=True)
    return packed


def unpack(packed: bytes | memoryview, *, array_items_max: int, text_bytes_max: int, bytes_max: int) -> dict[str, Any]:
    """The map in ``packed``. See ``unpack_value``."""
    value = unpack_value(packed, array_items_max=array_items_max, text_bytes_max=text_bytes_max, bytes_max=bytes_max)
    if not isinstance(value, dict):
        raise ManifestError(f"the message must be a map, not {type(value).__name__}")
    return value


def unpack_value(packed: bytes | memoryview, *, array_items_max: int, text_bytes_max: int, bytes_max: int) -> Any:
    """The value in ``packed``. Raises ManifestError ``E_DECODE`` with the reason.

    Args:
        array_items_max, text_bytes_max, bytes_max: the longest array, text (in UTF-8) and byte string anywhere.
    """
    try:
        return msgpack.unpackb(
            packed,
            raw=False,
            use_list=True,
            strict_map_key=True,
            object_pairs_hook=_map_of,
            max_str_len=text_bytes_max,
            max_bin_len=bytes_max,
            max_array_len=array_items_max,
            max_map_len=MAP_ITEMS_MAX,
            max_ext_len=0,
        )
    except UnicodeDecodeError:
        raise ManifestError("a text is not UTF-8", code="E_PATH_UNICODE") from None
    except msgpack.ExtraData:
        raise ManifestError("bytes follow the message") from None
    except msgpack.StackError:
        raise ManifestError(f"nested deeper than {DEPTH_MAX}") from None
    except msgpack.FormatError:
        raise ManifestError("the message uses a reserved MessagePack byte") from None
    except ValueError as error:  # also msgpack's own classes: truncated, a length beyond its limit, a wrong key
        raise ManifestError(f"not a message within its limits: {shown(str(error))}") from None


@contextmanager
def decoding(what: str) -> Iterator[None]:
    """Turns the errors of msgspec's decoders into ManifestError ``E_DECODE``."""
    try:
        yield
    except UnicodeDecodeError:
        raise ManifestError(f"{what}: a text is not UTF-8", code="E_PATH_UNICODE") from None
    except RecursionError:
        raise ManifestError(f"{what}: nested deeper than {DEPTH_MAX}") from None
    except msgspec.DecodeError as error:
        raise ManifestError(f"{what}: {shown(str(error))}") from None


def item_count(packed: bytes | memoryview) -> int:
    """How many items the map or array in ``packed`` announces; 0 when it is neither."""
    first = packed[0] if len(packed) else 0
    if 0x80 <= first <= 0x9F:
        return first & 0x0F
    width = {0xDC: 2, 0xDD: 4, 0xDE: 2, 0xDF: 4}.get(first, 0)
    return int.from_bytes(packed[1 : 1 + width], "big")


def spans(packed: memoryview) -> dict[str, memoryview]:
    """Where in the map ``packed`` the value of each key lies; no value is made. Raises ManifestError ``E_DECODE``."""
    if not len(packed) or not (packed[0] & 0xF0 == 0x80 or packed[0] in (0xDE, 0xDF)):
        raise ManifestError("the message must be a map")
    count = item_count(packed)
    if count > MAP_ITEMS_MAX:
        raise ManifestError(f"the message has more than {MAP_ITEMS_MAX} fields")
    found: list[tuple[object, memoryview]] = []
    at = {0xDE: 3, 0xDF: 5}.get(packed[0], 1)
    for _ in range(count):
        key_end = _end(packed, at)
        if key_end - at > KEY_BYTES_MAX:
            raise ManifestError(f"a key has more than {KEY_BYTES_MAX} bytes")
        key = unpack_value(packed[at:key_end], array_items_max=0, text_bytes_max=KEY_BYTES_MAX, bytes_max=0)
        at = _end(packed, key_end)
        found.append((key, packed[key_end:at]))
    if at != len(packed):
        raise ManifestError("bytes follow the message")
    return _map_of(found)


class _Reader:
    """Gives parts, so that other threads run in between."""

    def __init__(self, packed: memoryview) -> None:
        self._packed = packed

    def read(self, count: int) -> bytes:
        part, self._packed = bytes(self._packed[:count]), self._packed[count:]
        return part


def _end(packed: memoryview, at: int) -> int:
    """Where the value that begins at ``at`` ends."""
    width = {0xC4: 1, 0xC5: 2, 0xC6: 4}.get(packed[at] if at < len(packed) else 0)
    if width is not None:  # bytes may be many, and are not read
        end = at + 1 + width + int.from_bytes(packed[at + 1 : at + 1 + width], "big")
        if end > len(packed):
            raise ManifestError("the message ends within a value")
        return end
    unpacker = msgpack.Unpacker(_Reader(packed[at:]), read_size=_READ_BYTES)
    try:
        unpacker.skip()
    except (ValueError, msgpack.UnpackException) as error:
        raise ManifestError(f"not a message within its limits: {shown(str(error) or type(error).__name__)}") from None
    return at + int(unpacker.tell())


def check_plain(value: object, *, depth: int = 1) -> None:
    """Refuse in unknown fields what ``convert`` does not check: floats, wide integers and deep nesting."""
    if depth > DEPTH_MAX:
        raise ManifestError(f"nested deeper than {DEPTH_MAX}")
    if isinstance(value, dict):
        for item in value.values():
            check_plain(item, depth=depth + 1)
    elif isinstance(value, list):
        for item in value:
            check_plain(item, depth=depth + 1)
    elif isinstance(value, float):
        raise ManifestError("floating-point numbers are not used")
    elif isinstance(value, int) and abs(value) > INTEGER_MAX:
        raise ManifestError(f"an integer is beyond {INTEGER_MAX}")
    elif not isinstance(value, str | bytes | int | None):
        raise ManifestError(f"values of type {type(value).__name__} are not used")


def _map_of(pairs: Sequence[tuple[object, T]]) -> dict[str, T]:
    found: dict[str, T] = {}
    for key, value in pairs:
        if not isinstance(key, str):
            raise ManifestError("map keys must be text")
        if key in found:
            raise ManifestError(f"key {shown(key)} comes twice")
        found[key] = value
    return found
