"""MessagePack with every limit set: the only way in which manifests and statement files are packed and unpacked.

What lives here: ``pack`` and ``unpack``. What does not: the types of the values (``msgspec.convert``).

``msgpack.unpackb`` derives its limits from the length of the message, so nested array headers of 8 KiB cost tens of
megabytes; every count is therefore given. Also refused: trailing bytes, keys that are not text or come twice, extension
types, floats (so NaN cannot occur), integers beyond 53 bits (the most that JSON can hold), and deep nesting.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgpack

from gossipd.manifest.errors import ManifestError, shown

INTEGER_MAX = 2**53 - 1  # what a double, hence JSON and JavaScript, holds exactly
DEPTH_MAX = 8  # manifests need three; headroom for additions that older readers skip
MAP_ITEMS_MAX = 64  # manifests have twelve


def pack(value: object) -> bytes:
    """The bytes of ``value``: maps, lists, text, bytes and integers only."""
    packed: bytes = msgpack.packb(value, use_bin_type=True)
    return packed


def unpack(packed: bytes | memoryview, *, array_items_max: int, text_bytes_max: int, bytes_max: int) -> dict[str, Any]:
    """The map in ``packed``. Raises ManifestError ``E_DECODE`` with the reason.

    Args:
        array_items_max, text_bytes_max, bytes_max: the longest array, text (in UTF-8) and byte string anywhere.
    """
    try:
        value = msgpack.unpackb(
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
    if not isinstance(value, dict):
        raise ManifestError(f"the message must be a map, not {type(value).__name__}")
    return value


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


def _map_of(pairs: Sequence[tuple[object, object]]) -> dict[str, object]:
    found: dict[str, object] = {}
    for key, value in pairs:
        if not isinstance(key, str):
            raise ManifestError("map keys must be text")
        if key in found:
            raise ManifestError(f"key {shown(key)} comes twice")
        found[key] = value
    return found
