"""Manifests: signed envelopes, from an inbox, a peer or our own disk, through opening and accepting.

The corpus is made with the publisher's own code. A change before signing is one in the payload, mostly in a field
(with the root hash made to fit, as a hostile publisher would), signed by a trusted key. What opens is accepted into
a register, laid out, and asked what the daemon asks.
"""

from __future__ import annotations

import zlib
from random import Random
from typing import Any

import msgpack
from blake3 import blake3
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from gossipd.core.lineage import parents_of
from gossipd.core.targets import Targets
from gossipd.deployment.statement_store import StatementStore
from gossipd.identity.keys import SecretKey
from gossipd.manifest.annotations import Retention, pack_about
from gossipd.manifest.chunk_layout import Layout
from gossipd.manifest.envelope import SIGNATURE_BYTES, _pae, seal
from gossipd.manifest.manifest import (
    ENVELOPE_TYPE,
    FileEntry,
    ManifestDraft,
    ManifestError,
    deployment_id,
    open_manifest,
    seal_manifest,
)
from gossipd.manifest.payload import root_hash
from gossipd.manifest.tensor_index import Tensor, pack_index
from tests.fuzz.mutations import any_value, mutate_bytes, mutate_integer, mutate_value, pick
from tests.fuzz.surface import Case

PUBLISHER = SecretKey(b"the fuzzed publisher's seed.....")
_STRANGER = SecretKey(b"a stranger's seed of 32 bytes...")
TRUSTED = (PUBLISHER.public.ed25519,)
_NOW_S = 1_800_000_000.0
_CREATED_S, _EXPIRES_S = 1_700_000_000, 4_000_000_000  # valid by any clock that this runs on
_CHUNK = 65_536
_KEYS = (
    "name", "version", "created", "expires", "files", "chunk", "hashes", "root", "sources", "racks", "names",
    "priority", "cuts", "directories", "index", "keep", "about", "labels",
)  # fmt: skip


def genuine(name: str = "org/model", version: int = 1, sizes: tuple[int, ...] = (200_000, 10, 0)) -> bytes:
    """A small model's envelope, as a publisher makes it."""
    files = tuple(FileEntry(f"dir{at % 2}/file-{at}.bin", size, 0o644) for at, size in enumerate(sizes))
    count = Layout(sizes, _CHUNK).chunk_count
    digests = b"".join(blake3(at.to_bytes(4, "little")).digest() for at in range(count))
    draft = ManifestDraft(
        name=name, version=version, created_s=_CREATED_S, files=files, chunk_bytes=_CHUNK, digests=digests,
        sources=("https://storage.example/model/", "s3://bucket/model"), expires_s=_EXPIRES_S,
        targets=Targets(("rack-1",), ("host-[0-9]*",)), priority=5,
    )  # fmt: skip
    return seal_manifest(draft, PUBLISHER)


def genuine_2() -> bytes:
    """The same of schema 2, with every key that it has."""
    sizes, cuts = (_CHUNK * 3, _CHUNK * 2 + 5, 10), ((200, 3000, _CHUNK * 2, _CHUNK - 3200), None, None)
    files = tuple(FileEntry(f"file-{at}.safetensors", size, 0o644) for at, size in enumerate(sizes))
    tensors = [
        Tensor(0, "norm", "BF16", (1500,), 200, 3200), Tensor(0, "w", "F8_E4M3", (2, _CHUNK), 3200, 3200 + 2 * _CHUNK),
        Tensor(1, "later", "F99", (), 0, 7),
    ]  # fmt: skip
    draft = ManifestDraft(
        name="run-7", version=2 << 32 | 300, created_s=_CREATED_S, files=files, chunk_bytes=_CHUNK,
        digests=bytes(32 * Layout(sizes, _CHUNK, cuts).chunk_count), sources=("s3://bucket/model",),
        expires_s=_EXPIRES_S, cuts=cuts, directories=("logs", "a/empty"), index=pack_index(tensors),
        keep=Retention(last=3, every=1000), labels={"team": "rl"},
        about=pack_about({"run": "r7", "step": 300, "attempt": 2, "parents": ["ab" * 32], "metrics": {"loss": 1.5}}),
    )  # fmt: skip
    return seal_manifest(draft, PUBLISHER)


class ManifestSurface:
    """See the module."""

    name = "manifest"
    share = 1.0

    def __init__(self, rng: Random) -> None:
        self._envelopes = [
            genuine(), genuine("model", 7, (1,)), genuine("org/wide", 3, (50_000,) * 12),
            genuine("org/model", 2, (_CHUNK * 3,)), genuine_2(), genuine_2(),
        ]  # fmt: skip
        head = len(ENVELOPE_TYPE) + 3 + 16 + 64
        self._payloads = [envelope[head:] for envelope in self._envelopes]
        self._maps: list[dict[str, Any]] = [msgpack.unpackb(payload[1:]) for payload in self._payloads]
        self._register = StatementStore()
        self._count = 0
        # ``seal`` derives the key each time; what it writes is this.
        self._private = Ed25519PrivateKey.from_private_bytes(PUBLISHER.seed)
        self._head = seal(ENVELOPE_TYPE, b"", [PUBLISHER])[:-SIGNATURE_BYTES]

    def case(self, rng: Random) -> Case:
        """See Surface."""
        draw = rng.random()
        at = int(rng.random() * len(self._maps))
        if draw < 0.35:
            return Case("envelope", mutate_bytes(self._envelopes[at], rng, self._envelopes), False)
        if draw < 0.5:
            return Case("payload", mutate_bytes(self._payloads[at], rng, self._payloads), True)
        fields = dict(self._maps[at])
        if draw < 0.9:
            for _ in range(1 + (rng.random() < 0.3)):
                self._change_field(fields, rng)
        else:
            fields = mutate_value(fields, rng)
        if isinstance(fields, dict) and rng.random() < 0.2:  # versions of one name only go up: others have room
            fields["name"], fields["version"] = f"org/m{int(rng.random() * 5000)}", int(rng.random() * 1000)
        if isinstance(fields, dict) and rng.random() < 0.8:
            _fit(fields, rng)
        try:
            packed = msgpack.packb(fields, use_bin_type=True)
        except (OverflowError, ValueError, TypeError):
            return Case("payload", mutate_bytes(self._payloads[at], rng, self._payloads), True)
        usual = 2 if "cuts" in self._maps[at] else 1
        schema = usual if rng.random() < 0.97 else int(rng.random() * 256)
        return Case("payload", bytes([schema]) + packed, True)

    @staticmethod
    def _change_field(fields: dict[str, Any], rng: Random) -> None:
        key = pick(rng, _KEYS)
        files = fields["files"]
        if key == "files" and isinstance(files, list) and all(isinstance(entry, list) for entry in files) and files:
            files = [list(entry) for entry in files]
            place = int(rng.random() * len(files))
            column = int(rng.random() * len(files[place]))
            if column == 1 and isinstance(files[place][1], int) and rng.random() < 0.5:
                files[place][1] = abs(mutate_integer(files[place][1], rng))
            elif files[place]:
                files[place][column] = mutate_value(files[place][column], rng)
            fields["files"] = files
        elif key == "cuts" and isinstance(fields.get("cuts"), list) and rng.random() < 0.8:
            fields["cuts"] = _moved_cuts(fields["cuts"], rng)
        elif key == "index" and isinstance(fields.get("index"), bytes) and rng.random() < 0.8:
            fields["index"] = _changed_index(fields["index"], rng)
        elif rng.random() < 0.05:
            fields[str(pick(rng, ("later", "name ", "")))] = any_value(rng)
        else:
            fields[key] = mutate_value(fields.get(key), rng)

    def seal(self, case: Case) -> bytes:
        """See Surface."""
        if case.kind == "envelope":
            return case.body
        self._count += 1
        if self._count % 64 == 0:
            return seal(ENVELOPE_TYPE, case.body, [_STRANGER, PUBLISHER])
        return self._head + self._private.sign(_pae(ENVELOPE_TYPE.encode(), case.body)) + case.body

    async def deliver(self, arrived: bytes) -> None:
        """See Surface."""
        try:
            named = deployment_id(arrived)
            manifest = open_manifest(arrived, TRUSTED)
            assert manifest.id == named
            self._register.accept(manifest, _NOW_S)
        except ManifestError:
            return
        shape = manifest.shape()
        assert 0 < shape.chunk_count <= 1_000_000
        manifest.is_target("host-7", "rack-1")
        for chunk in {0, shape.chunk_count // 2, shape.chunk_count - 1}:
            assert sum(segment.length for segment in manifest.segments(chunk)) == manifest.chunk_length(chunk)
            manifest.digest(chunk)
        assert sum(1 for _ in manifest.tensors()) <= 150_000
        parents_of(manifest.about_fields())
        self._register.statements()

    def rest(self) -> None:
        """See Surface."""

    def close(self) -> None:
        """See Surface."""


def _moved_cuts(cuts: list[Any], rng: Random) -> list[Any]:
    """A border moved between two stretches, a stretch split or joined, or any other value."""
    found = [list(one) if isinstance(one, list) else one for one in cuts]
    lengths = next((one for one in found if isinstance(one, list) and len(one) > 1), None)
    if lengths is None or rng.random() < 0.2 or not all(type(one) is int for one in lengths):
        return [mutate_value(one, rng) for one in found]
    at = int(rng.random() * (len(lengths) - 1))
    both = lengths[at] + lengths[at + 1]
    first = int(rng.random() * max(1, abs(both)))
    lengths[at : at + 2] = [both] if rng.random() < 0.2 else [first, both - first]
    return found


def _changed_index(index: bytes, rng: Random) -> bytes:
    """Other bytes in the stream, or in what it inflates to."""
    if rng.random() < 0.3:
        return mutate_bytes(index, rng, [index])
    try:
        body = zlib.decompressobj().decompress(index, 1 << 20)
    except zlib.error:
        return index
    return zlib.compress(mutate_bytes(body, rng, [body]))


def _fit(fields: dict[str, Any], rng: Random) -> None:
    """As many hashes as the files need, and the root of it all, where the fields can be understood at all."""
    try:
        files = [FileEntry(*entry[:3]) for entry in fields["files"]]
        if rng.random() < 0.9:
            count = Layout([entry.size for entry in files], fields["chunk"], fields.get("cuts")).chunk_count
            if count <= 64:
                fields["hashes"] = (fields["hashes"] + bytes(32 * count))[: 32 * count]
        fields["root"] = root_hash(
            files, fields["chunk"], fields["hashes"], cuts=fields.get("cuts"), directories=fields.get("directories", ())
        )
    except Exception:  # noqa: BLE001 - no publisher could make a root of this; it keeps its old one
        return
