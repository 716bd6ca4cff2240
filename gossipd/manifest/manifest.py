"""``Manifest``, a version whose signature and rules were checked, and the only ways to make and to open one.

What lives here: ``Manifest``, and the only ways to make and to open one. What does not: the payload's format and rules
(``payload``), the envelope around it, and whether a version may follow the ones before it (``statement_store``).

A deployment's id is the BLAKE3-256 of the payload, schema byte included and signatures not, so that a second signature
does not make another deployment. Parse, then trust: a holder of a ``Manifest`` need not check again that it is signed,
that its paths stay inside, and that its hashes fit its files.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import InitVar, dataclass, field
from typing import Any

import msgspec
from blake3 import blake3

from gossipd.core.hiding_struct import HidingStruct
from gossipd.core.ids import DeploymentId
from gossipd.core.model import Shape
from gossipd.core.targets import EVERY_HOST, Targets
from gossipd.core.units import show_time
from gossipd.core.versions import show_step
from gossipd.identity.keys import SecretKey
from gossipd.manifest.annotations import Retention, lineage_words, read_about, step_label, step_numbers
from gossipd.manifest.chunk_layout import Layout, Segment, extent_chunks
from gossipd.manifest.envelope import ENVELOPE_BYTES_MAX, open_envelope, payload_of, seal
from gossipd.manifest.errors import ManifestError
from gossipd.manifest.payload import (
    DIGEST_BYTES,
    Cuts,
    FileEntry,
    Payload,
    check_payload,
    check_tree,
    parse_payload,
    root_hash,
)
from gossipd.manifest.strict_msgpack import pack
from gossipd.manifest.tensor_index import Tensor, read_index

__all__ = [
    "FileEntry",
    "Manifest",
    "ManifestDraft",
    "ManifestError",
    "Segment",
    "deployment_id",
    "open_manifest",
    "seal_manifest",
]

ENVELOPE_TYPE = "gossipd-manifest"
CLOCK_SKEW_S = 600  # how far ahead a publisher's clock may be; hosts without NTP drift minutes a month
_PROOF = object()


class ManifestDraft(HidingStruct, frozen=True):
    """What a publisher is about to sign; no field is checked yet. Those after ``priority`` make it one of schema 2;
    ``payload`` says what they are."""

    name: str
    version: int
    created_s: int
    files: tuple[FileEntry, ...]
    chunk_bytes: int
    digests: bytes
    sources: tuple[str, ...]
    expires_s: int | None = None
    targets: Targets = EVERY_HOST
    priority: int = 5
    cuts: Cuts | None = None
    directories: tuple[str, ...] = ()
    index: bytes | None = None
    keep: Retention | None = None
    about: bytes = b""
    labels: Mapping[str, str] = msgspec.field(default_factory=dict)
    case_matters: bool = False

    hidden = ("digests", "index")


@dataclass(frozen=True, slots=True, eq=False)
class Manifest:
    """A manifest that a trusted key has signed and that breaks no rule; only ``open_manifest`` makes one."""

    id: DeploymentId
    name: str
    version: int
    created_s: int
    expires_s: int | None
    files: tuple[FileEntry, ...] = field(repr=False)
    layout: Layout = field(repr=False)
    digests: memoryview = field(repr=False)
    """Of every chunk, 32 bytes each: a part of ``envelope``."""
    root: bytes = field(repr=False)
    sources: tuple[str, ...]
    targets: Targets
    priority: int
    signer: bytes = field(repr=False)
    """Ed25519 public key of the signer."""
    envelope: bytes = field(repr=False)
    """The signed bytes, as other hosts are sent them."""
    schema: int = 1
    directories: tuple[str, ...] = ()
    """The empty ones."""
    index: memoryview | None = field(default=None, repr=False)
    """A part of ``envelope``; ``tensors`` reads it."""
    keep: Retention | None = None
    about: bytes = field(default=b"", repr=False)
    labels: Mapping[str, str] = field(default_factory=dict)
    version_label: str = ""
    """The version for people: ``300.2`` for a step."""
    is_step: bool = False
    """Whether the version is a step of a run."""
    lineage: str = ""
    """Run and step, in a few words."""
    case_matters: bool = False
    """Whether names differ only in case, so that a disk that folds case cannot hold it."""
    proof: InitVar[object] = None

    def __post_init__(self, proof: object) -> None:
        assert proof is _PROOF, "a Manifest is made by open_manifest only"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Manifest) and other.id == self.id

    def __hash__(self) -> int:
        return int.from_bytes(self.id[:8], "little")

    @property
    def chunk_bytes(self) -> int:
        """Nominal chunk size."""
        return self.layout.chunk_bytes

    @property
    def chunk_count(self) -> int:
        """Number of chunks."""
        return self.layout.chunk_count

    @property
    def bytes_total(self) -> int:
        """Sum of all files' sizes."""
        return self.layout.bytes_total

    def digest(self, chunk: int) -> bytes:
        """BLAKE3-256 of a chunk."""
        assert 0 <= chunk < self.chunk_count
        return bytes(self.digests[chunk * DIGEST_BYTES : (chunk + 1) * DIGEST_BYTES])

    def chunk_length(self, chunk: int) -> int:
        """Bytes of a chunk."""
        return self.layout.chunk_length(chunk)

    def segments(self, chunk: int) -> tuple[Segment, ...]:
        """Where in which files a chunk lies."""
        return self.layout.segments(chunk)

    def shape(self) -> Shape:
        """What the planner needs to know."""
        extent = extent_chunks(self.bytes_total, self.layout.chunk_bytes_mean)
        packed_chunk, packed_files = self.layout.packed_chunk, self.layout.packed_files_mean
        return Shape(
            self.chunk_count, self.chunk_bytes, self.bytes_total, extent, bool(self.sources),
            packed_chunk if packed_files else 0, packed_files,
        )  # fmt: skip

    def tensors(self) -> Iterator[Tensor]:
        """The tensors of all files that the publisher could read, in order; none without an index."""
        return read_index(self.index) if self.index is not None else iter(())

    @property
    def label(self) -> str:
        """``NAME@VERSION`` for people."""
        return f"{self.name}@{self.version_label}"

    def label_of(self, version: int) -> str:
        """Another version of the name for people, as this one's publisher numbers them: ``300.2`` for a step."""
        return show_step(version) if self.is_step else str(version)

    def rollback_words(self, trusted: int) -> str:
        """What is told where a higher version of the name is trusted: both as this one's publisher numbers them."""
        return f"{self.name}: offered {self.version_label}, trusted {self.label_of(trusted)}"

    def about_fields(self) -> dict[str, Any]:
        """What the publisher says of its lineage; any fields, which decide nothing."""
        return read_about(self.about)

    def is_target(self, name: str, rack: str) -> bool:
        """Whether the model is meant for this host."""
        return self.targets.include(name=name, rack=rack)

    def check_time(self, now_s: float) -> None:
        """Raises ManifestError ``E_EXPIRED``: expired, or made in the future. Only for a first acceptance.

        Args:
            now_s: seconds since 1970; the later of the clock, which may be set back, and the last signed time seen.
        """
        if self.expires_s is not None and now_s >= self.expires_s:
            raise ManifestError(f"expired at {show_time(self.expires_s)}, now {show_time(now_s)}", code="E_EXPIRED")
        if self.created_s > now_s + CLOCK_SKEW_S:
            raise ManifestError(
                f"created at {show_time(self.created_s)}, which is more than {CLOCK_SKEW_S} s after now "
                f"{show_time(now_s)}; check both clocks",
                code="E_EXPIRED",
            )


def open_manifest(envelope: bytes, trusted: Collection[bytes], *, now_s: float | None = None) -> Manifest:
    """The manifest in ``envelope``. Raises ManifestError with the code of the first rule broken, the signature first.

    Args:
        trusted: Ed25519 public keys, 32 bytes each.
        now_s: when given, expiry is judged too; see ``Manifest.check_time``.
    """
    opened = open_envelope(ENVELOPE_TYPE, envelope, trusted)
    payload = parse_payload(opened.payload)
    layout, about = check_payload(payload), read_about(payload.about)
    manifest = Manifest(
        id=DeploymentId(blake3(opened.payload).digest()),
        name=payload.name,
        version=payload.version,
        created_s=payload.created,
        expires_s=payload.expires,
        files=payload.files,
        layout=layout,
        digests=payload.hashes,
        root=payload.root,
        sources=payload.sources,
        targets=Targets(payload.racks, payload.names),
        priority=payload.priority,
        signer=opened.signer,
        envelope=envelope,
        schema=payload.schema,
        directories=payload.directories,
        index=payload.index,
        keep=payload.keep,
        about=payload.about,
        labels=payload.labels,
        version_label=step_label(payload.version, about),
        is_step=step_numbers(payload.version, about),
        lineage=lineage_words(about),
        case_matters=payload.case_matters,
        proof=_PROOF,
    )
    if now_s is not None:
        manifest.check_time(now_s)
    return manifest


def seal_manifest(draft: ManifestDraft, secret: SecretKey, *, kind: str = ENVELOPE_TYPE) -> bytes:
    """The signed envelope of ``draft``. Raises ManifestError when a reader would refuse it. ``kind``: of ``shards``."""
    # Before the root, whose fields have fixed widths.
    check_tree(draft.files, draft.chunk_bytes, draft.cuts, draft.directories, case_matters=draft.case_matters)
    payload = Payload(
        name=draft.name,
        version=draft.version,
        created=draft.created_s,
        expires=draft.expires_s,
        files=draft.files,
        chunk=draft.chunk_bytes,
        hashes=memoryview(draft.digests),
        root=root_hash(draft.files, draft.chunk_bytes, draft.digests, cuts=draft.cuts, directories=draft.directories),
        sources=draft.sources,
        racks=draft.targets.racks,
        names=draft.targets.names,
        priority=draft.priority,
        cuts=draft.cuts,
        directories=draft.directories,
        index=memoryview(draft.index) if draft.index is not None else None,
        keep=draft.keep,
        about=draft.about,
        labels=dict(draft.labels),
        case_matters=draft.case_matters,
    )
    packed = bytes([payload.schema]) + pack(msgspec.to_builtins(payload, builtin_types=(bytes, memoryview)))
    check_payload(parse_payload(memoryview(packed)))
    envelope = seal(kind, packed, [secret])
    if len(envelope) > ENVELOPE_BYTES_MAX:
        raise ManifestError(f"manifest has {len(envelope)} bytes, at most {ENVELOPE_BYTES_MAX}", code="E_LIMIT")
    return envelope


def sign_again(manifest: Manifest, secret: SecretKey) -> bytes:
    """The envelope of the same payload, signed by ``secret`` alone: the same deployment."""
    return seal(ENVELOPE_TYPE, bytes(payload_of(ENVELOPE_TYPE, manifest.envelope)), [secret])


def deployment_id(envelope: bytes) -> DeploymentId:
    """The id that ``envelope`` would have. Nothing is checked: not for deciding what to trust."""
    return DeploymentId(blake3(payload_of(ENVELOPE_TYPE, envelope)).digest())


def label_of(envelope: bytes) -> tuple[str, int]:
    """The name and version that ``envelope`` would have; nothing else is checked, so not for deciding what to trust.
    Raises ManifestError when it has none."""
    payload = parse_payload(payload_of(ENVELOPE_TYPE, envelope))
    return payload.name, payload.version


def label_for_people(envelope: bytes) -> str:
    """``NAME@VERSION`` that ``envelope`` would have, as ``Manifest.label``, under the same terms as ``label_of``."""
    payload = parse_payload(payload_of(ENVELOPE_TYPE, envelope))
    return f"{payload.name}@{step_label(payload.version, read_about(payload.about))}"
