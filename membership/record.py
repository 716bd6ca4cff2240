"""The signed member record as bytes.

Format, version 1::

    format 1 B | public key 32 B | transport key 32 B | boot 8 B | version 4 B | port 2 B | bulk port 2 B | capacity 8 B
    | name, rack, zone, host, software, payload: length 1 B and bytes each | signature 64 B

The signature (Ed25519) is over a label, the cluster id and everything before it, so a record cannot move to another
cluster. The bytes are kept and relayed as they came; only the member can make a valid change.

Its texts are printable, because they are shown wherever members are: one with a line break or a terminal's escape in
its name would add rows to what others say of it.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

from msgspec.structs import replace

from membership.errors import RecordError, WireError
from membership.member import Record

SIGNATURE_BYTES = 64
PAYLOAD_BYTES_MAX = 64
NAME_BYTES_MAX = 64
BOOT_MAX = 2**53
VERSION_MAX = 2**32 - 1
CAPACITY_MAX = 2**63
_FORMAT = 1
_FIXED = struct.Struct(">B32s32sQIHHQ")
_LIMITS = {"name": NAME_BYTES_MAX, "rack": 32, "zone": 32, "host": 64, "software": 24, "payload": PAYLOAD_BYTES_MAX}
_LABEL = b"gossip member record 1\x00"
RECORD_BYTES_MAX = _FIXED.size + sum(_LIMITS.values()) + len(_LIMITS) + SIGNATURE_BYTES

Sign = Callable[[bytes], bytes]
Verify = Callable[[bytes, bytes, bytes], bool]


def sign_record(record: Record, cluster_id: bytes, sign: Sign) -> tuple[Record, bytes]:
    """The record with its signature, and its bytes. Raises RecordError when a field does not fit."""
    unsigned = _encode(record)
    signature = sign(_LABEL + cluster_id + unsigned)
    return replace(record, signature=signature), unsigned + signature


def decode_record(data: bytes, cluster_id: bytes, verify: Verify) -> Record:
    """Bytes from another node to a verified record. Raises WireError."""
    record = parse_record(data)
    if not verify(record.public_key, record.signature, _LABEL + cluster_id + data[:-SIGNATURE_BYTES]):
        raise WireError("the record's signature is wrong")
    return record


def encode_signed(record: Record) -> bytes:
    """The bytes of a record that already carries its signature."""
    if len(record.signature) != SIGNATURE_BYTES:
        raise RecordError("the record is not signed")
    return _encode(record) + record.signature


def parse_record(data: bytes) -> Record:
    """Form only, no signature check. Raises WireError."""
    if not _FIXED.size + len(_LIMITS) + SIGNATURE_BYTES <= len(data) <= RECORD_BYTES_MAX:
        raise WireError("a record of this size cannot be")
    form, public_key, transport_key, boot, version, port, bulk_port, capacity = _FIXED.unpack_from(data)
    if form != _FORMAT or boot > BOOT_MAX or capacity > CAPACITY_MAX:  # what is kept must be fit to be passed on
        raise WireError("unknown record format")
    at = _FIXED.size
    end = len(data) - SIGNATURE_BYTES
    parts: list[bytes] = []
    for limit in _LIMITS.values():
        size = data[at] if at < end else 256
        if size > limit or at + 1 + size > end:
            raise WireError("a record's field does not fit")
        parts.append(data[at + 1 : at + 1 + size])
        at += 1 + size
    if at != end:
        raise WireError("bytes left over in a record")
    try:
        name, rack, zone, host, software = (part.decode() for part in parts[:5])
    except UnicodeDecodeError:
        raise WireError("a record's text is not UTF-8") from None
    if not all(text.isprintable() for text in (name, rack, zone, host, software)):
        raise WireError("a record's text cannot be shown")
    if not name or not host or port == 0:
        raise WireError("a record needs name, host and port")
    return Record(
        public_key, boot, version, name, rack, zone, host, port, bulk_port, transport_key, capacity, software,
        parts[5], data[end:],
    )  # fmt: skip


def _encode(record: Record) -> bytes:
    texts = (record.name, record.rack, record.zone, record.host, record.software)
    parts = [text.encode() for text in texts] + [record.payload]
    for (field, limit), part in zip(_LIMITS.items(), parts, strict=True):
        if len(part) > limit:
            raise RecordError(f"{field} has {len(part)} bytes; at most {limit} fit")
    if not record.name or not record.host:
        raise RecordError("name and host must not be empty")
    if not all(text.isprintable() for text in texts):
        raise RecordError("name, rack, zone, host and software must be printable")
    if len(record.public_key) != 32 or len(record.transport_key) != 32:
        raise RecordError("public_key and transport_key must have 32 bytes each")
    ranges = {"boot": BOOT_MAX, "version": VERSION_MAX, "port": 65535, "bulk_port": 65535, "capacity": CAPACITY_MAX}
    for field, limit in ranges.items():
        if not 0 <= getattr(record, field) <= limit:
            raise RecordError(f"{field} must be from 0 to {limit}")
    if record.port == 0:
        raise RecordError("port must not be 0")
    fixed = _FIXED.pack(
        _FORMAT, record.public_key, record.transport_key, record.boot, record.version, record.port,
        record.bulk_port, record.capacity,
    )  # fmt: skip
    return fixed + b"".join(bytes((len(part),)) + part for part in parts)
