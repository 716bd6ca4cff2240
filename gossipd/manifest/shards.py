"""One version whose files lie on several hosts: what each of them has hashed and signed, put together.

What lives here: the form of a shard set, which is what one host has, and the rules by which they become one tree. What
does not: hashing (``publish.shard_hashing``), signing the whole (``manifest``), and carrying shard sets between hosts,
which a job does.

A shard set is the payload of a manifest, of the files of one host alone, under another kind of envelope: so no host
takes it for a version, and a manifest is no shard set. Two labels say which one it is: ``rank``, and of how many,
``ranks``.

A file of at least a chunk begins a chunk of its own, so its hashes are the same in the shard set and in the whole.
Smaller files are packed together: all of them must come from one host, or a chunk would need bytes of two. Trainers
write such files on their first rank. Rejected: to carry small files in the shard set, a second way for content, with
its own checks, for what no trainer does.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from msgspec.structs import replace

from gossipd.core.hiding_struct import HidingStruct
from gossipd.identity.keys import SecretKey
from gossipd.manifest.chunk_layout import Layout
from gossipd.manifest.envelope import open_envelope
from gossipd.manifest.errors import ManifestError, shown
from gossipd.manifest.manifest import ManifestDraft, seal_manifest
from gossipd.manifest.payload import DIGEST_BYTES, FileEntry, check_payload, parse_payload

SHARDS_TYPE = "gossipd-shards"
RANKS_MAX = 4_096


class ShardSet(HidingStruct, frozen=True):
    """The files of one host, as a trusted key has signed them; only ``open_shards`` makes one."""

    name: str
    rank: int
    ranks: int
    files: tuple[FileEntry, ...]
    layout: Layout
    digests: bytes

    hidden = ("files", "layout", "digests")

    @property
    def chunk_bytes(self) -> int:
        """Nominal chunk size."""
        return self.layout.chunk_bytes


class Joined(HidingStruct, frozen=True):
    """All files of a version, and the hashes of its chunks."""

    files: tuple[FileEntry, ...]
    chunk_bytes: int
    digests: bytes

    hidden = ("digests",)


def seal_shards(draft: ManifestDraft, secret: SecretKey, *, rank: int, ranks: int) -> bytes:
    """The signed envelope. Raises ManifestError."""
    check_place(rank, ranks)
    labels = {"rank": str(rank), "ranks": str(ranks)}
    return seal_manifest(replace(draft, labels=labels), secret, kind=SHARDS_TYPE)


def open_shards(envelope: bytes, trusted: Collection[bytes]) -> ShardSet:
    """Raises ManifestError with the code of the first rule broken, the signature first."""
    payload = parse_payload(open_envelope(SHARDS_TYPE, envelope, trusted).payload)
    layout = check_payload(payload)
    numbers = [payload.labels.get(key, "") for key in ("rank", "ranks")]
    if not all(text.isascii() and text.isdecimal() and len(text) <= 4 for text in numbers) or layout.has_cuts:
        raise ManifestError("a shard set says its rank and the number of ranks, and has no cuts", code="E_SHARDS")
    rank, ranks = map(int, numbers)
    check_place(rank, ranks)
    return ShardSet(payload.name, rank, ranks, payload.files, layout, bytes(payload.hashes))


def check_place(rank: int, ranks: int) -> None:
    """Raises ManifestError ``E_SHARDS``."""
    if not 0 <= rank < ranks <= RANKS_MAX:
        raise ManifestError(f"rank {rank} of {ranks}: ranks count from 0, at most {RANKS_MAX}", code="E_SHARDS")


def join_shards(name: str, sets: Sequence[ShardSet]) -> Joined:
    """The tree that all shard sets make. Raises ManifestError ``E_SHARDS``, which names the rank and the file: one is
    missing or comes twice, two hosts have written one file, or small files come from two hosts."""
    _check_complete(name, sets)
    writers: dict[str, ShardSet] = {}
    entries: dict[str, tuple[FileEntry, bytes]] = {}
    packed = b""
    packer: tuple[ShardSet, str] | None = None
    for own in sorted(sets, key=lambda one: one.rank):
        for entry, digests in _hashed_files(own):
            before = writers.setdefault(entry.path, own)
            if before is not own and (not digests or entries[entry.path] != (entry, digests)):
                raise ManifestError(
                    f"ranks {before.rank} and {own.rank} have both written {shown(entry.path)}; one of them may",
                    code="E_SHARDS",
                )
            entries[entry.path] = entry, digests
            if 0 < entry.size < own.chunk_bytes:
                if packer is not None and packer[0] is not own:
                    raise ManifestError(
                        f"ranks {packer[0].rank} and {own.rank} have files of less than a chunk, {own.chunk_bytes} "
                        f"bytes: {shown(packer[1])}, {shown(entry.path)}; write them on one rank, or in smaller chunks",
                        code="E_SHARDS",
                    )
                packer = own, entry.path
                packed = own.digests[own.layout.packed_chunk * DIGEST_BYTES :]
    ordered = [entries[path] for path in sorted(entries, key=str.encode)]
    digests = b"".join(digests for _, digests in ordered) + packed
    return Joined(tuple(entry for entry, _ in ordered), sets[0].chunk_bytes, digests)


def _check_complete(name: str, sets: Sequence[ShardSet]) -> None:
    if not sets:
        raise ManifestError("no rank has sent its shards", code="E_SHARDS")
    first = sets[0]
    for own in sets:
        said = (own.name, own.ranks, own.chunk_bytes)
        if said != (name, first.ranks, first.chunk_bytes):
            raise ManifestError(
                f"the shards of rank {own.rank} are of {shown(own.name)}, {own.ranks} ranks and chunks of "
                f"{own.chunk_bytes} bytes; wanted: {name}, {first.ranks} and {first.chunk_bytes}",
                code="E_SHARDS",
            )
    ranks = [own.rank for own in sets]
    missing = sorted(set(range(first.ranks)) - set(ranks))
    if missing or len(ranks) != first.ranks:
        words = f"the shards of rank {missing[0]} are missing" if missing else "a rank has sent its shards twice"
        more = f", and of {len(missing) - 1} more" if len(missing) > 1 else ""
        raise ManifestError(f"{words}{more}; {first.ranks} ranks save {name}", code="E_SHARDS")


def _hashed_files(own: ShardSet) -> list[tuple[FileEntry, bytes]]:
    """Each file with the hashes of its own chunks; none for a small one."""
    found, at = [], 0
    for entry in own.files:
        count = -(-entry.size // own.chunk_bytes) if entry.size >= own.chunk_bytes else 0
        found.append((entry, own.digests[at * DIGEST_BYTES : (at + count) * DIGEST_BYTES]))
        at += count
    return found
