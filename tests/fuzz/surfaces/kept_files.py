"""The files of the ``kept`` surface: genuine ones, and the same changed with checksums, chains and hashes made to fit.

What lives here: making and changing. What does not: reading (``kept``).
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import msgpack
from blake3 import blake3

from gossipd.audit.chain_file import AuditFile
from gossipd.core.ids import DeploymentId
from gossipd.deployment.progress_record import HostState, Progress
from gossipd.deployment.progress_table import ClusterProgress
from gossipd.deployment.statement import Verb, sign_statement
from gossipd.deployment.statement_file import register_to_bytes
from gossipd.deployment.statement_store import StatementStore
from gossipd.identity.cluster_key import format_key_ring, new_key_ring
from gossipd.identity.keys import SecretKey
from gossipd.manifest.manifest import open_manifest
from gossipd.store.journal import journal
from membership.member import NodeId, Record
from membership.record import encode_signed, sign_record
from tests.fuzz.mutations import INTEGERS, any_value, mutate_bytes, mutate_integer, mutate_value, pick
from tests.fuzz.surfaces.manifest import TRUSTED, genuine

MODEL = DeploymentId(b"m" * 32)
CHUNKS = 500
WALL_S = 1_800_000_000.0
_SECRET = SecretKey(b"the fuzzed host's own secret....")


def genuine_files(scratch: Path) -> dict[str, list[bytes]]:
    """One or two of each kind, made by the program's own writers; ``scratch`` is a path that may be written to."""
    register = StatementStore()
    for number in range(3):
        deployment = DeploymentId(bytes([number]) * 32)
        register.hear(
            sign_statement(_SECRET, deployment, epoch=1 + number, verb=Verb.DEPLOY, manifest_bytes=9, now_s=WALL_S),
            [_SECRET.public.ed25519],
        )
    for envelope in (genuine(), genuine("model", 7)):
        register.accept(open_manifest(envelope, TRUSTED), WALL_S)
    register.mark_removed(MODEL)
    table = ClusterProgress()
    for number in range(4):
        progress = Progress(state=HostState.COMPLETE, chunks_verified=9, source_bytes=1 << 40)
        node = NodeId(bytes([number]) * 16)
        table.record(node, b"k" * 8, 1_800_000_000_000, progress, now=0.0)
    audit = AuditFile(scratch)
    audit.append([{"event": "accepted", "count": 3, "who": "host-1"}] * 4, "2026-01-02T03:04:05Z")
    ring = new_key_ring(bytes(range(48)))
    two = new_key_ring(bytes(range(100, 148)))
    return {
        "register": [register_to_bytes(StatementStore()), register_to_bytes(register)],
        "progress": [ClusterProgress().to_bytes(), table.to_bytes()],
        "journal": [_journal_bytes()],
        "public_key": [_SECRET.public.to_text().encode()],
        "secret_key": [_SECRET.to_text().encode()],
        "cluster_key": [format_key_ring(ring).encode(), (format_key_ring(two) + f"key {'ab' * 32}\n").encode()],
        "roster": [_roster_bytes()],
        "boot": [b"1800000000", b"7"],
        "audit": [scratch.read_bytes()],
    }


def _journal_bytes() -> bytes:
    encoder, kinds = journal.Encoder(), journal.RecordType
    header = journal.Header(MODEL, CHUNKS, "org/model", 3, "boot-1")
    records = [
        (kinds.HEADER, journal.pack_header(header)), (kinds.SNAPSHOT, bytes(range(CHUNKS // 8 + 1))),
        (kinds.WINDOW, journal.pack_number(1)), (kinds.WRITING, journal.pack_chunks([4])),
        (kinds.WRITING, journal.pack_chunks([5])), (kinds.COMMIT, journal.pack_number(1, [4, 5])),
        (kinds.DROP, journal.pack_chunks([5])),
        (kinds.PUBLISHED, journal.pack_number(1_800_000_000)), (kinds.CLOSED, b""),
    ]  # fmt: skip
    return journal.MAGIC + b"".join(encoder.encode(kind, payload) for kind, payload in records)


def _roster_bytes() -> bytes:
    parts = []
    for number in range(3):
        secret = SecretKey(bytes([number + 1]) * 32)
        public = secret.public.ed25519
        record = Record(public, 1, 1, f"host-{number}", "rack", "", "10.0.0.1", 7946, 7947, public, 0, "1", b"")
        signed, _ = sign_record(record, b"c" * 16, secret.sign)
        encoded = encode_signed(signed)
        parts.append(len(encoded).to_bytes(2, "big") + encoded)
    return b"".join(parts)


# ---- changes before sealing ----------------------------------------------------------------------------


def _change_register(body: bytes, rng: Random) -> bytes | None:
    content = body[17:]
    if rng.random() < 0.3:
        content = mutate_bytes(content, rng)
    else:
        fields = msgpack.unpackb(content)
        key = pick(rng, (*fields, "later"))
        fields[key] = mutate_value(fields[key], rng) if key in fields else any_value(rng)
        try:
            content = msgpack.packb(fields, use_bin_type=True)
        except (OverflowError, ValueError, TypeError):
            return None
    return bytes([1]) + blake3(content).digest(16) + content


def _change_journal(body: bytes, rng: Random) -> bytes:
    """Records with other payloads, in other orders, of other types; sequence and checks fit."""
    records, at = [], len(journal.MAGIC)
    while at < len(body):
        length, kind, _ = struct.unpack_from("<IBQ", body, at)
        records.append((kind, body[at + 13 : at + 13 + length]))
        at += 13 + length + 4
    for _ in range(1 + int(rng.random() * 3)):
        place = int(rng.random() * len(records))
        kind, payload = records[place]
        draw = rng.random()
        if draw < 0.5:
            records[place] = (kind, _change_payload(payload, rng))
        elif draw < 0.65:
            records[place] = (int(rng.random() * 12) if rng.random() < 0.9 else 255, payload)
        elif draw < 0.8:
            records.insert(place, records[int(rng.random() * len(records))])
        elif len(records) > 1:
            del records[place]
    out, check = [journal.MAGIC], 0
    for sequence, (kind, payload) in enumerate(records):
        record = struct.pack("<IBQ", len(payload), kind, sequence) + payload
        check = zlib.crc32(record, check)
        out.append(record + check.to_bytes(4, "little"))
    return b"".join(out)


def _change_payload(payload: bytes, rng: Random) -> bytes:
    draw = rng.random()
    if draw < 0.01:
        return b"\xff" * int(pick(rng, (1000, 100_000, 1_000_000)))
    if draw < 0.4 and len(payload) >= 4:
        at = int(rng.random() * (len(payload) - 3))
        number = int(pick(rng, INTEGERS)) & 0xFFFFFFFF
        return payload[:at] + number.to_bytes(4, "little") + payload[at + 4 :]
    return mutate_bytes(payload, rng)


def _change_audit(body: bytes, rng: Random) -> bytes:
    """Records changed and hashed again, so that the chain holds up to there."""
    lines = body.splitlines()
    place = int(rng.random() * len(lines))
    out, prev = [], None
    for number, line in enumerate(lines):
        fields: Any = json.loads(line)
        fields.pop("hash")
        if prev is not None:
            fields["prev"] = prev
        if number == place:
            fields = mutate_value(fields, rng)
        try:
            text = json.dumps(fields, sort_keys=True, separators=(",", ":"))
        except (TypeError, ValueError):
            text = "{}"
        prev = blake3(text.encode()).hexdigest()
        out.append(f'{text[:-1]},"hash":"{prev}"}}\n'.encode())
    return b"".join(out)


def _change_boot(body: bytes, rng: Random) -> bytes:
    number = mutate_integer(int(body), rng)
    return str(number).encode() * int(pick(rng, (1, 1, 2, 600)))


def _change_roster(body: bytes, rng: Random) -> bytes:
    """Records of the right length, changed inside."""
    out, at = [], 0
    while at < len(body):
        size = int.from_bytes(body[at : at + 2], "big")
        record = body[at + 2 : at + 2 + size]
        if rng.random() < 0.5:
            record = mutate_bytes(record, rng)[:65_535]
        out.append(len(record).to_bytes(2, "big") + record)
        at += 2 + size
    return b"".join(out)


def _change_progress(body: bytes, rng: Random) -> bytes:
    """Whole rows, changed inside."""
    rows = bytearray(body)
    if len(rows) > 1:
        for _ in range(1 + int(rng.random() * 4)):
            at = 1 + int(rng.random() * (len(rows) - 1))
            rows[at] = int(rng.random() * 256)
    return bytes(rows[:1]) + bytes(rows[1:]) * int(pick(rng, (1, 1, 2, 30)))


def _change_key_text(body: bytes, rng: Random) -> bytes:
    """Lines and digits, as a hand would."""
    lines = body.decode().splitlines()
    place = int(rng.random() * len(lines))
    draw = rng.random()
    if draw < 0.2:
        lines.insert(place, lines[int(rng.random() * len(lines))])
    elif draw < 0.3:
        del lines[place]
    elif draw < 0.4:
        lines[place] = lines[place].upper() if draw < 0.35 else f"  {lines[place]}  "
    elif draw < 0.5:
        name = lines[place].partition(" ")[0]
        lines[place] = (
            name + " " + pick(rng, ("00" * 32, "01" + "00" * 31, "ff" * 32, "00" * 16, "zz" * 32, "é" * 64, "1 " * 32))
        )
    else:
        lines[place] = mutate_value(lines[place], rng) if draw < 0.8 else lines[place][: int(rng.random() * 80)]
    return "\n".join(str(line) for line in lines).encode("utf-8", "surrogatepass") + b"\n"


CHANGES: dict[str, Callable[[bytes, Random], bytes | None]] = {
    "register": _change_register,
    "progress": _change_progress,
    "journal": _change_journal,
    "audit": _change_audit,
    "boot": _change_boot,
    "roster": _change_roster,
    "public_key": _change_key_text,
    "secret_key": _change_key_text,
    "cluster_key": _change_key_text,
}
