"""Headers for files that are there in part: they list what is there, in the place and length of the signed ones.

What lives here: bytes to bytes. What does not: which tensors are there (``part``), files.

A hole in a sparse file reads as zeros, and a safetensors file with holes reads without an error. So the header that
users see lists only the tensors that are there, at the offsets where they are, and covers each gap with one entry of
dtype U8, because the format wants no gaps. It is padded with spaces to the length of the signed header, so that no
byte of a tensor moves. The real library then refuses an absent tensor by its name. ``weight_map`` of the list of shards
is cut down likewise. Rejected: shorter files, because each tensor would have to be copied.

The signed header is compared with the index before it is masked, so that an index that lies shows nothing at all.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from gossipd.manifest.errors import ManifestError, shown
from gossipd.manifest.tensor_index import Tensor

HEADER_BYTES_MAX = 100_000_000  # the library's, without the 8 bytes of length
_LENGTH_BYTES = 8


def fits(rows: Sequence[Tensor], present: Collection[str]) -> bool:
    """Whether a masked header is no longer than the signed one: each gap's entry fits where those of its tensors were.
    ``rows``: all tensors of the file, in order."""
    spare = sum(len(_entry(row.name, _described(row, 0))) for row in rows if row.name not in present)
    fillers = sum(len(_entry(_filler_name(number), one)) for number, one in enumerate(_gaps(rows, present, 0)))
    return fillers <= spare


def masked_header(signed: bytes, rows: Sequence[Tensor], present: Collection[str]) -> bytes:
    """The header to show, as long as ``signed``, which is the leading bytes of the file up to its first tensor.

    Raises ManifestError ``E_INDEX``: the header is not what the index says, so nothing of the file may be shown.
    """
    entries, metadata = _parsed(signed)
    body_at = len(signed)
    told = {row.name: _described(row, body_at) for row in rows}
    if entries != told or len(told) != len(rows):
        odd = sorted(name for name in entries.keys() | told.keys() if entries.get(name) != told.get(name))
        raise _lie(f"of tensor {shown(odd[0])}" if odd else "of a tensor that it has twice")
    shown_entries: dict[str, Any] = {} if metadata is None else {"__metadata__": metadata}
    shown_entries.update((row.name, told[row.name]) for row in rows if row.name in present)
    for number, filler in enumerate(_gaps(rows, present, body_at)):
        name = _filler_name(number)
        if name in told:
            raise _lie(f"of tensor {name}, a name that is kept for what is absent")
        shown_entries[name] = filler
    try:
        text = json.dumps(shown_entries, separators=(",", ":"), ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise _lie("that is not Unicode") from None
    if len(text) > len(signed) - _LENGTH_BYTES:
        raise _lie("whose masked form is longer than itself")
    return signed[:_LENGTH_BYTES] + text.ljust(len(signed) - _LENGTH_BYTES)


def masked_weight_map(signed: bytes, directory: str, present: Mapping[str, Collection[str] | None]) -> bytes:
    """The list of shards to show, as long as ``signed``. ``present``: by path, the tensors of each file that is there,
    None for all of them; ``directory``: the list's own, with a final ``/``, or nothing. What is not such a list stays
    as it is."""
    try:
        listed = json.loads(signed)
        weight_map = listed["weight_map"]
        kept = {}
        for tensor, path in weight_map.items():
            names = present.get(directory + path, ())
            if names is None or tensor in names:
                kept[tensor] = path
        text = json.dumps({**listed, "weight_map": kept}, separators=(",", ":"), ensure_ascii=False).encode()
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return signed
    return text.ljust(len(signed)) if len(text) <= len(signed) else b"{}".ljust(len(signed))


def _parsed(signed: bytes) -> tuple[dict[str, Any], Any]:
    length = int.from_bytes(signed[:_LENGTH_BYTES], "little")
    if len(signed) < _LENGTH_BYTES or length != len(signed) - _LENGTH_BYTES:
        raise _lie(f"of {len(signed) - _LENGTH_BYTES} bytes, which has {length}")
    try:
        entries = json.loads(signed[_LENGTH_BYTES:], object_pairs_hook=_once)
    except (ValueError, RecursionError):
        raise _lie("that is not JSON") from None
    if not isinstance(entries, dict):
        raise _lie("that names no tensors")
    metadata = entries.pop("__metadata__", None)
    return {name: _plain(entry) for name, entry in entries.items()}, metadata


def _plain(entry: object) -> object:
    """The keys of a tensor that mean something."""
    return {key: entry.get(key) for key in ("dtype", "shape", "data_offsets")} if isinstance(entry, dict) else entry


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key comes twice")
    return found


def _described(row: Tensor, body_at: int) -> dict[str, Any]:
    return {"dtype": row.dtype, "shape": list(row.shape), "data_offsets": [row.begin - body_at, row.end - body_at]}


def _gaps(rows: Iterable[Tensor], present: Collection[str], body_at: int) -> Iterator[dict[str, Any]]:
    """One entry for each stretch of absent bytes."""
    begin = end = 0
    for row in rows:
        if row.name not in present:
            begin, end = (begin if begin < end else row.begin), row.end
            continue
        if begin < end:
            yield _filler(begin - body_at, end - body_at)
        begin = end = row.end
    if begin < end:
        yield _filler(begin - body_at, end - body_at)


def _filler(begin: int, end: int) -> dict[str, Any]:
    return {"dtype": "U8", "shape": [end - begin], "data_offsets": [begin, end]}


def _filler_name(number: int) -> str:
    return f"absent.{number}"


def _entry(name: str, described: Mapping[str, Any]) -> bytes:
    return json.dumps({name: described}, separators=(",", ":"), ensure_ascii=False).encode()


def _lie(says: str) -> ManifestError:
    return ManifestError(f"index: the file has a header {says}", code="E_INDEX")
