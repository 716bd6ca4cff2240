"""What a SYNC_LIST carries: per bucket, an id and a mark for all that its sender believes there.

A mark's lower half is zero for a member that is not alive. A bucket with more rows than fit comes in partial lists.
"""

from __future__ import annotations

import struct

from membership.errors import WireError

LOW = 0xFFFFFFFF  # the liveness half of a mark; zero for a member that is not alive
ROW = struct.Struct(">8sQ")
_BUCKET_HEAD = struct.Struct(">BBB")
_WHOLE = 1  # flag: these rows are all that the peer has in this bucket
_ROWS_PER_BUCKET = 80  # more than fit beside each other; above 20,000 members a bucket comes in parts


def pack_rows(rows: dict[int, list[bytes]], room: int) -> list[bytes]:
    """Rows of each bucket behind its head, in as few parts as fit ``room``."""
    parts: list[bytes] = []
    current = b""
    for bucket, all_rows in rows.items():
        for at in range(0, max(1, len(all_rows)), _ROWS_PER_BUCKET):
            piece = all_rows[at : at + _ROWS_PER_BUCKET]
            flags = _WHOLE if len(all_rows) <= _ROWS_PER_BUCKET else 0
            data = _BUCKET_HEAD.pack(bucket, flags, len(piece)) + b"".join(piece)
            if len(current) + len(data) > room:
                parts.append(current)
                current = b""
            current += data
    return [*parts, current] if current else parts


def unpack_rows(body: bytes, at: int) -> list[tuple[int, bool, dict[bytes, int]]]:
    """The inverse of ``pack_rows``. Raises WireError."""
    found: list[tuple[int, bool, dict[bytes, int]]] = []
    while at < len(body):
        if at + _BUCKET_HEAD.size > len(body):
            raise WireError("cut short")
        bucket, flags, count = _BUCKET_HEAD.unpack_from(body, at)
        at += _BUCKET_HEAD.size
        stop = at + count * ROW.size
        if stop > len(body):
            raise WireError("cut short")
        rows = {row_id: mark for row_id, mark in ROW.iter_unpack(body[at:stop]) if row_id[0] == bucket}
        found.append((bucket, bool(flags & _WHOLE), rows))
        at = stop
    return found
