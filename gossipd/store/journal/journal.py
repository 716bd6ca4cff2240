"""The bytes of a model's journal: which chunks are verified and durable, and which may be.

What lives here: the format, encoding, and ``replay``, which is pure. What does not: the file (``ledger``), the order
in which records and data are written (``windows``), and what is done about suspects (``recovery``).

Format. 8 bytes magic ``gossipdJ``, then records until the end of the file, all integers little-endian::

    u32 length of the payload | u8 type | u64 sequence, from 0 | payload | u32 check

``check`` is the CRC-32 of the record before it, chained: each starts from the one before. So a record is only
believed where it was written; what a failed write left behind of an older tail cannot follow a newer record.
(CRC-32 as in zlib: CRC-32C is as good here and not in the standard library.)

===========  =============================================================================================
HEADER       u16 format, 32 bytes deployment, u32 chunks, u64 version, u8 length and boot id, then the name
WINDOW       u64 window: writes of this window may follow. Durable before the first of them
WRITING      u32 chunk: its bytes may be on the disk from here on. Not synced for itself
COMMIT       u64 window, then u32 each: these chunks are on the disk, synced. Durable before it is believed
DROP         u32 each: not held any more. Durable before the chunk is written again
SNAPSHOT     bits, one per chunk: all that is held and durable
PUBLISHED    u64 seconds since 1970: the tree has been renamed to its place
CLOSED       nothing was being written when the daemon left; anything after it takes that back
===========  =============================================================================================

Replay reads until the first record that is short, out of sequence or has a wrong check: a torn tail is dropped.
Chunks named by COMMIT or SNAPSHOT and not dropped since are believed. Chunks named by WRITING since and by no COMMIT
are suspects: their bytes may be whole. A record of a type that is not known, whose check is right, was written
by a newer gossipd: nothing is believed, nothing is deleted, the store says E_STORE_VERSION.

Rejected: SQLite (three more files, syncs of its own, and a page cache beside ours for 4 KiB of bits); one bitmap
rewritten in place (a torn sector loses everything); a record per chunk with a sync (500 GB are 30,000 syncs).
"""

from __future__ import annotations

import struct
import zlib
from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import IntEnum

from gossipd.core.ids import DeploymentId
from gossipd.store.errors import StoreFormatError
from gossipd.store.journal.bits import Bits

MAGIC = b"gossipdJ"
FORMAT = 1
_HEAD = struct.Struct("<IBQ")
_CHECK = struct.Struct("<I")
_NAMED = struct.Struct("<H32sIQB")
_U32, _U64 = struct.Struct("<I"), struct.Struct("<Q")
_CHUNKS_MAX = 1_000_000  # that a manifest may have
RECORD_BYTES_MAX = 4 * _CHUNKS_MAX + 64  # a COMMIT of every one of them


class RecordType(IntEnum):
    """See the module's table."""

    HEADER = 1
    WINDOW = 2
    WRITING = 3
    COMMIT = 4
    DROP = 5
    SNAPSHOT = 6
    PUBLISHED = 7
    CLOSED = 8


@dataclass(frozen=True, slots=True)
class Header:
    """Whose journal it is; enough to list and remove a model whose manifest cannot be read any more."""

    deployment: DeploymentId
    chunk_count: int
    name: str
    version: int
    boot: str


@dataclass(slots=True)
class Replay:
    """What a journal says. ``header`` is None when not even that could be read."""

    header: Header | None = None
    held: Bits = field(default_factory=lambda: Bits(0))
    """Of as many chunks as the header says."""
    suspects: set[int] = field(default_factory=set)
    has_window: bool = False
    """False of a journal that was cut before its first window: it says less than it did when it was made."""
    window_open: bool = False
    published_s: int | None = None
    dropped_bytes: int = 0
    """Length of the torn tail."""


# A check that is right says that the record is as it was written, not that it was written by this program.
_PAYLOAD_BYTES_MIN = {
    int(RecordType.WINDOW): _U64.size,
    int(RecordType.WRITING): _U32.size,
    int(RecordType.COMMIT): _U64.size,
    int(RecordType.PUBLISHED): _U64.size,
}


class Encoder:
    """Turns records into bytes, in sequence, each chained to the one before."""

    def __init__(self) -> None:
        self.sequence = 0
        self.check = 0

    def encode(self, kind: RecordType, payload: bytes = b"") -> bytes:
        """The next record."""
        body = _HEAD.pack(len(payload), kind, self.sequence) + payload
        self.check = zlib.crc32(body, self.check)
        self.sequence += 1
        return body + _CHECK.pack(self.check)

    def mark(self) -> tuple[int, int]:
        """Where the chain is, to come back to when a write has failed."""
        return self.sequence, self.check

    def rewind(self, mark: tuple[int, int]) -> None:
        """Forget what was encoded since."""
        self.sequence, self.check = mark


def pack_header(header: Header) -> bytes:
    """Payload of HEADER."""
    boot = header.boot.encode()
    fixed = _NAMED.pack(FORMAT, header.deployment, header.chunk_count, header.version, len(boot))
    return fixed + boot + header.name.encode()


def pack_chunk(chunk: int) -> bytes:
    """Payload of WRITING."""
    return _U32.pack(chunk)


def pack_chunks(chunks: Iterable[int]) -> bytes:
    """Payload of DROP."""
    return _little(array("I", chunks)).tobytes()


def pack_number(number: int, chunks: Iterable[int] = ()) -> bytes:
    """Payload of WINDOW, COMMIT and PUBLISHED."""
    return _U64.pack(number) + pack_chunks(chunks)


def replay(body: bytes, deployment: DeploymentId) -> Replay:
    """What the journal ``body`` says about ``deployment``.

    Raises:
        StoreFormatError: it is not a journal, not of this deployment, or of a newer gossipd.
    """
    found = Replay()
    if body[: len(MAGIC)] != MAGIC:
        if body.strip(b"\0") and not MAGIC.startswith(body):
            raise StoreFormatError(f"the journal of {deployment.hex()} begins with {body[:8]!r}, not {MAGIC!r}")
        found.dropped_bytes = len(body)  # empty, torn or zeros: lost in a power cut, which is not a foreign file
        return found
    at, sequence, check = len(MAGIC), 0, 0
    while at + _HEAD.size + _CHECK.size <= len(body):
        length, kind, number = _HEAD.unpack_from(body, at)
        end = at + _HEAD.size + length
        if number != sequence or length > RECORD_BYTES_MAX or end + _CHECK.size > len(body):
            break
        computed = zlib.crc32(memoryview(body)[at:end], check)
        if computed != _CHECK.unpack_from(body, end)[0]:
            break
        _apply(found, kind, body[at + _HEAD.size : end], deployment)
        at, sequence, check = end + _CHECK.size, sequence + 1, computed
    found.dropped_bytes = len(body) - at
    return found


def _apply(found: Replay, kind: int, payload: bytes, deployment: DeploymentId) -> None:
    """One record whose check is right."""
    if found.header is None and kind != RecordType.HEADER:
        raise StoreFormatError(f"the journal of {deployment.hex()} does not begin with its header")
    if len(payload) < _PAYLOAD_BYTES_MIN.get(kind, 0):
        raise StoreFormatError(
            f"the journal of {deployment.hex()} has a record of type {kind} with {len(payload)} bytes, "
            f"need {_PAYLOAD_BYTES_MIN[kind]}"
        )
    if kind == RecordType.HEADER:
        found.header = _unpack_header(payload, deployment)
        found.held = Bits.of_raw(found.header.chunk_count, found.held.raw)
    elif kind == RecordType.WRITING:
        found.suspects.add(_U32.unpack_from(payload)[0])
    elif kind == RecordType.COMMIT:
        chunks = _chunks(payload[_U64.size :])
        found.held.update(_named(found, chunks))
        found.suspects.difference_update(chunks)
    elif kind == RecordType.DROP:
        chunks = _chunks(payload)
        found.held.difference_update(_named(found, chunks))
        found.suspects.difference_update(chunks)
    elif kind == RecordType.SNAPSHOT:
        assert found.header is not None
        found.held = Bits.of_raw(found.header.chunk_count, payload)
    elif kind == RecordType.PUBLISHED:
        found.published_s = _U64.unpack_from(payload)[0]
    elif kind not in (RecordType.WINDOW, RecordType.CLOSED):
        raise StoreFormatError(
            f"the journal of {deployment.hex()} has a record of type {kind}, which is newer than this gossipd",
            code="E_STORE_VERSION",
        )
    if kind in (RecordType.WINDOW, RecordType.WRITING, RecordType.CLOSED):
        found.window_open = kind != RecordType.CLOSED
        found.has_window = True


def _named(found: Replay, chunks: Iterable[int]) -> Iterator[int]:
    """Those that the model has."""
    size = found.held.size
    return (chunk for chunk in chunks if chunk < size)


def _unpack_header(payload: bytes, deployment: DeploymentId) -> Header:
    form = int.from_bytes(payload[:2], "little")
    if form > FORMAT:
        raise StoreFormatError(
            f"the journal of {deployment.hex()} has format {form}, supported {FORMAT}", code="E_STORE_VERSION"
        )
    if form == 0 or len(payload) < _NAMED.size:
        raise StoreFormatError(f"the journal of {deployment.hex()} has a header of {len(payload)} bytes")
    _, identity, chunk_count, version, boot_bytes = _NAMED.unpack_from(payload)
    if identity != deployment:
        raise StoreFormatError(f"the journal of {deployment.hex()} belongs to {identity.hex()}")
    if chunk_count > _CHUNKS_MAX:
        raise StoreFormatError(f"the journal of {deployment.hex()} counts {chunk_count} chunks, at most {_CHUNKS_MAX}")
    rest = payload[_NAMED.size :]
    boot, name = rest[:boot_bytes].decode(errors="replace"), rest[boot_bytes:].decode(errors="replace")
    return Header(DeploymentId(identity), chunk_count, name, version, boot)


def _chunks(payload: bytes) -> array[int]:
    found = array("I")
    found.frombytes(payload[: len(payload) // 4 * 4])
    return _little(found)


def _little(numbers: array[int]) -> array[int]:
    assert numbers.itemsize == 4
    if struct.pack("=H", 1) != b"\1\0":
        numbers.byteswap()
    return numbers
