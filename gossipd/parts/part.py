"""The part of a model that a want means: chunks to fetch, and which files of it can be shown, whole or with holes.

What lives here: a pure function of a signed manifest and a want. What does not: headers as bytes (``masked_header``),
and the union over hosts.

Every host computes the same from the same manifest, so a want is told as a short text. Files under a chunk are always
in, because they share chunks; with tensors, so are files of other kinds that a loader may need. A file of which no byte
is wanted is left out. Of a file of tensors that is wanted in part, the header is wanted too. Where the masked header
would not fit into the place of the signed one, the file is wanted whole.

Only an index says where tensors are, and a trusted publisher may be careless: what is shown later is compared with the
header itself, which is signed like all bytes. So an index that lies costs bytes, and then the part is refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from fnmatch import translate
from functools import lru_cache
from re import compile as compile_pattern

from msgspec import field

from gossipd.core.chunkset import ChunkSet
from gossipd.core.hiding_struct import HidingStruct
from gossipd.core.ids import DeploymentId
from gossipd.manifest.errors import ManifestError, shown
from gossipd.manifest.manifest import Manifest
from gossipd.manifest.tensor_index import Tensor
from gossipd.parts.masked_header import HEADER_BYTES_MAX, fits
from gossipd.parts.tensor_rules import admits, number_model
from gossipd.parts.want import FilesWanted, RangesWanted, TensorsWanted, Want, WantError, joined, text_of

_BESIDE_BYTES_MAX = 64 * 1024 * 1024  # tokenizers have some 10 MB, lists of shards less; weights more
INDEX_SUFFIX = ".safetensors.index.json"  # names the file of each tensor, and is masked too


class Presence(Enum):
    """How a file of a part is there."""

    WHOLE = "whole"
    MASKED = "masked"  # a file of tensors whose header lists only what is there
    HOLES = "holes"  # a file of another kind with some of its bytes


class Part(HidingStruct, frozen=True):
    """What one want means in one model."""

    deployment: DeploymentId
    want: Want
    wanted: ChunkSet
    files: Mapping[int, Presence]
    """By their place in the manifest; the others are left out."""
    kept_bytes: Mapping[int, int] = field(default_factory=dict)
    """Of files of tensors, and of the lists beside them: how many leading bytes are kept apart as they are signed,
    because other ones are shown."""
    tensors: Mapping[int, frozenset[str]] = field(default_factory=dict)
    """Of masked files: the tensors that are there."""
    index: Mapping[int, tuple[Tensor, ...]] = field(default_factory=dict)
    """Of masked files: what the index says of each."""

    hidden = ("index",)

    @property
    def is_everything(self) -> bool:
        """Whether nothing is left out."""
        return self.wanted.is_full


def bytes_of(manifest: Manifest, chunks: ChunkSet) -> int:
    """How many bytes the chunks have."""
    return manifest.bytes_total if chunks.is_full else sum(map(manifest.chunk_length, chunks))


def everything(manifest: Manifest) -> Part:
    """The part that leaves nothing out."""
    files = dict.fromkeys(range(len(manifest.files)), Presence.WHOLE)
    return Part(manifest.id, Want(), ChunkSet.full(manifest.chunk_count), files)


@lru_cache(maxsize=8)  # an index of 90,000 tensors takes a second, and several ask for the part of one want
def choose_part(manifest: Manifest, want: Want) -> Part:
    """The part that ``want`` means.

    Raises:
        WantError: nothing in this model is meant (``E_WANT``), or only an index would say what is (``E_NO_INDEX``).
        ManifestError: ``E_INDEX``, the index cannot be true.
    """
    if want.is_everything:
        return everything(manifest)
    return _Choice(manifest, want).part()


class _Choice:
    """The working state of ``choose_part``."""

    def __init__(self, manifest: Manifest, want: Want) -> None:
        self._manifest = manifest
        self._want = want
        self._rows: dict[int, list[Tensor]] = {}
        for row in manifest.tensors():
            self._rows.setdefault(row.file_index, []).append(row)
        self._whole = set[int]()
        self._spans: dict[int, list[tuple[int, int]]] = {}
        self._names: dict[int, set[str]] = {}
        self._has_tensors = any(isinstance(term, TensorsWanted) for term in want.terms)

    def part(self) -> Part:
        for term in self._want.terms:
            match term:
                case FilesWanted(glob):
                    self._want_files(glob)
                case RangesWanted(path, spans):
                    self._want_ranges(path, spans)
                case TensorsWanted():
                    self._want_tensors(term)
        files: dict[int, Presence] = dict.fromkeys(self._whole | self._beside(), Presence.WHOLE)
        for at in self._spans.keys() | self._names.keys():
            files.setdefault(at, self._presence(at))
        return self._made(files)

    def _beside(self) -> set[int]:
        """Files that come with every part: small ones, and with tensors what a loader may need beside them."""
        chunk_bytes = self._manifest.chunk_bytes
        most = max(chunk_bytes - 1, _BESIDE_BYTES_MAX if self._has_tensors else 0)
        files = enumerate(self._manifest.files)
        return {at for at, entry in files if entry.size < chunk_bytes or (at not in self._rows and entry.size <= most)}

    # ---- what the terms name ---------------------------------------------------------------------

    def _want_files(self, glob: str) -> None:
        pattern = compile_pattern(translate(glob))
        found = {at for at, entry in enumerate(self._manifest.files) if pattern.match(entry.path)}
        if not found:
            raise WantError(f"want {shown('files:' + glob)} matches no file of {self._manifest.name}")
        self._whole |= found

    def _want_ranges(self, path: str, spans: Sequence[tuple[int, int]]) -> None:
        for at, entry in enumerate(self._manifest.files):
            if entry.path == path:
                if spans[-1][1] > entry.size:
                    raise WantError(f"want of bytes up to {spans[-1][1]} in {shown(path)}, which has {entry.size}")
                self._spans.setdefault(at, []).extend(spans)
                return
        raise WantError(f"want of bytes in {shown(path)}, which is no file of {self._manifest.name}")

    def _want_tensors(self, term: TensorsWanted) -> None:
        if not self._rows:
            raise WantError(
                f"{self._manifest.name} has no index of its tensors: give files:GLOB, or have it published with one",
                code="E_NO_INDEX",
            )
        numbers = number_model([row.name for rows in self._rows.values() for row in rows])
        admitted = admits(term, numbers)
        is_found = False
        for at, rows in self._rows.items():
            names = {row.name for row in rows if admitted(row.name)}
            if names:
                is_found = True
                self._names.setdefault(at, set()).update(names)
        if not is_found:
            raise WantError(f"want {shown(text_of(term))} matches no tensor of {self._manifest.name}")

    # ---- what follows for each file --------------------------------------------------------------

    def _presence(self, at: int) -> Presence:
        """Of a file that is named in part. Completes what is wanted of it."""
        rows = self._rows.get(at)
        if rows is None:
            is_whole = joined(sorted(self._spans[at])) == ((0, self._manifest.files[at].size),)
            return Presence.WHOLE if is_whole else Presence.HOLES
        spans = joined(sorted(self._spans.get(at, ())))
        covered = _covered(rows, spans)
        names = self._names.setdefault(at, set())
        names |= covered
        if len(names) == len(rows) or not fits(rows, names):
            return Presence.WHOLE
        if rows[0].begin > HEADER_BYTES_MAX:
            raise ManifestError(f"index: a header of {rows[0].begin} bytes", code="E_INDEX")
        self._spans[at] = [*spans, (0, rows[0].begin), *((row.begin, row.end) for row in rows if row.name in names)]
        return Presence.MASKED

    def _made(self, files: dict[int, Presence]) -> Part:
        manifest, layout = self._manifest, self._manifest.layout
        indexes: list[range] = []
        for at, presence in files.items():
            if presence is Presence.WHOLE:
                indexes.append(layout.chunks_of(at))
            else:
                indexes += [layout.chunks_between(at, begin, end) for begin, end in joined(sorted(self._spans[at]))]
        bits = 0
        for run in indexes:
            bits |= ((1 << len(run)) - 1) << run.start
        masked = [at for at, presence in files.items() if presence is Presence.MASKED]
        kept = {at: rows[0].begin for at, rows in self._rows.items() if at in files and rows}
        for at, entry in enumerate(manifest.files):
            if (
                files.get(at) is Presence.WHOLE
                and entry.path.endswith(INDEX_SUFFIX)
                and entry.size <= _BESIDE_BYTES_MAX
            ):
                kept[at] = entry.size
        return Part(
            manifest.id, self._want, ChunkSet(manifest.chunk_count, bits), dict(sorted(files.items())), kept,
            {at: frozenset(self._names[at]) for at in masked}, {at: tuple(self._rows[at]) for at in masked},
        )  # fmt: skip


def _covered(rows: Sequence[Tensor], spans: Sequence[tuple[int, int]]) -> set[str]:
    """The tensors whose every byte lies in the spans, which are apart and ascending."""
    found, at = set[str](), 0
    for row in rows:
        while at < len(spans) and spans[at][1] < row.end:
            at += 1
        if at < len(spans) and spans[at][0] <= row.begin and row.begin < row.end:
            found.add(row.name)
    return found
