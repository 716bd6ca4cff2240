"""The bytes of a model's journal: which chunks are verified and durable, and which may be.

What lives here: the format, encoding, and ``replay``, which is pure. What does not: the file (``ledger``), the order of
records and data (``windows``), and the treatment of suspects (``recovery``).

Format. 8 bytes magic ``gossipdJ``, then records until the end of the file, all integers little-endian::

    u32 length of the payload | u8 type | u64 sequence, from 0 | payload | u32 check

``check`` is a CRC-32 over the record, started from the check of the record before it. So a record is valid only in its
place: the remains of an older tail cannot follow a newer record.

===========  =============================================================================================
HEADER       u16 format, 32 bytes deployment, u32 chunks, u64 version, u8 length and boot id, then the name
WINDOW       u64 window: writes of this window may follow. Durable before the first of them
WRITING      u32 chunk: its bytes may be on the disk from here on. Has no sync of its own
COMMIT       u64 window, then u32 each: these chunks are on the disk, synced. Durable before it is believed
DROP         u32 each: no longer held. Durable before the chunk is written again
SNAPSHOT     bits, one per chunk: all that is held and durable
PUBLISHED    u64 seconds since 1970: the tree has been renamed to its place
CLOSED       nothing was being written when the daemon ended; any later record revokes it
===========  =============================================================================================

Replay stops at the first record that is short, out of sequence or has a wrong check, which drops a torn tail. It
believes chunks of COMMIT and SNAPSHOT that no later DROP names. Chunks of WRITING without a later COMMIT are suspects:
their bytes may be whole. An unknown type with a right check comes from a newer gossipd: nothing is believed or deleted,
and the store reports E_STORE_VERSION.

Rejected: SQLite (more files, own syncs and a page cache for 4 KiB of bits); a bitmap rewritten in place (a torn sector
loses everything); a sync per record (500 GB are 30,000 syncs).
"""

from __future__ import annotations

import struct
import zlib
from array import array
from collections.abc import Iterable, Iterator
from enum import IntEnum

from msgspec import Struct, field

from gossipd.core.bits import Bits
from gossipd.core.ids import DeploymentId
from gossipd.store.errors import StoreFormatError

MAGIC = b"gossipdJ"
FORMAT = 1
_HEAD = struct.Struct("<IBQ")
_CHECK = struct.Struct("<I")
_NAMED = struct.Struct("<H32sIQB")
_U32, _U64 = struct.Struct("<I"), struct.Struct("<Q")
_CHUNKS_MAX = 1_000_000  # the limit of a manifest
RECORD_BYTES_MAX = 4 * _CHUNKS_MAX + 64  # a COMMIT of all chunks


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


class Header(Struct, frozen=True):
    """The model of a journal: enough to list and remove it when its manifest cannot be read."""

    deployment: DeploymentId
    chunk_count: int
    name: str
    version: int
    boot: str


class Replay(Struct):
    """The content of a journal. ``header`` is None when not even that could be read."""

    header: Header | None = None
    held: Bits = field(default_factory=lambda: Bits(0))
    """As large as the header's chunk count."""
    suspects: set[int] = field(default_factory=set)
    has_window: bool = False
    """False when the journal was cut before its first window: it says less than when it was made."""
    window_open: bool = False
    published_s: int | None = None
    dropped_bytes: int = 0
    """Length of the torn tail."""


# A right check proves that the record is as it was written, not that this program wrote it.
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
        body = _HEAD.pack(len(payload), kind, self.sequence) + payload
        self.check = zlib.crc32(body, self.check)
        self.sequence += 1
        return body + _CHECK.pack(self.check)


def pack_header(header: Header) -> bytes:
    """Payload of HEADER."""
    boot = header.boot.encode()
    fixed = _NAMED.pack(FORMAT, header.deployment, header.chunk_count, header.version, len(boot))
    return fixed + boot + header.name.encode()


def pack_chunks(chunks: Iterable[int]) -> bytes:
    """Payload of WRITING and DROP."""
    return _little(array("I", chunks)).tobytes()


def pack_number(number: int, chunks: Iterable[int] = ()) -> bytes:
    """Payload of WINDOW, COMMIT and PUBLISHED."""
    return _U64.pack(number) + pack_chunks(chunks)


def replay(body: bytes, deployment: DeploymentId) -> Replay:
    """Read a journal. Raises StoreFormatError: not a journal, of another deployment, or of a newer gossipd."""
    found = Replay()
    if body[: len(MAGIC)] != MAGIC:
        if body.strip(b"\0") and not MAGIC.startswith(body):
            raise StoreFormatError(f"the journal of {deployment.hex()} begins with {body[:8]!r}, not {MAGIC!r}")
        found.dropped_bytes = len(body)  # empty, torn or zeros after a power cut; not a foreign file
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
    """Apply one record whose check is right."""
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
    """The chunks that the model has; a damaged journal may name others."""
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
