"""From a source to a signed manifest: find, inspect, lay out, hash, look again, sign, write.

What lives here: the order of the steps, and the source address in the manifest. What does not: each step.

Seeds read from the published place, unless ``--source`` names another that holds the same tree. A web server's
directory cannot be listed by any standard, so it is published from a copy on disk.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, TypeAlias
from urllib.parse import quote, unquote

from msgspec.structs import replace

from gossipd.core.ids import DeploymentId
from gossipd.core.targets import EVERY_HOST, Targets
from gossipd.identity.keys import SecretKey
from gossipd.manifest.annotations import Retention
from gossipd.manifest.chunk_layout import (
    CHUNK_BYTES_MAX,
    CHUNKS_MAX,
    Layout,
    chunk_bytes_for_link,
    default_chunk_bytes,
    step_chunk_bytes,
)
from gossipd.manifest.envelope import ENVELOPE_BYTES_MAX
from gossipd.manifest.errors import ManifestError, shown
from gossipd.manifest.manifest import FileEntry, ManifestDraft, open_manifest, seal_manifest
from gossipd.manifest.names import check_model_name
from gossipd.manifest.paths import check_paths
from gossipd.manifest.payload import check_tree
from gossipd.manifest.source_url import HUB_SCHEME, WEB_SCHEMES, SourceUrl, check_scheme, parse_source_url
from gossipd.publish.bucket import FoundObject, StoredObjects, find_object, find_objects, open_storage
from gossipd.publish.empty_directories import find_empty_directories
from gossipd.publish.errors import (
    InspectionError,
    PublishError,
    StorageNotFoundError,
    TreeChangedError,
    blaming_the_caller,
)
from gossipd.publish.file_reading import LocalFiles, WholeFiles
from gossipd.publish.hashing import ExtentReader, hash_chunks
from gossipd.publish.hub_listing import HubFiles, list_repository
from gossipd.publish.inspection import Finding, inspect
from gossipd.publish.model_signature import ModelSigning
from gossipd.publish.output import check_writable, write_whole
from gossipd.publish.selection import EVERYTHING, Selection, pattern_for
from gossipd.publish.tensor_borders import BorderPlan, ChunkBorders, plan_borders
from gossipd.publish.tree import FoundFile, find_files

_FIELD = re.compile(r"files\[(\d+)\](?:\.path)?")  # in the sentence of a rule on paths
Found: TypeAlias = Sequence[FoundFile] | Sequence[FoundObject]


class PublishProgress(Protocol):
    """An observer. Called in worker threads, one at a time."""

    def found(self, file_count: int, bytes_total: int) -> None:
        """Everything is found; hashing begins."""

    def hashed(self, count: int) -> None:
        """``count`` more bytes are hashed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishOrder:
    """The operator's request. ``chunk_bytes`` None: by size; ``sources`` empty: the published place. ``about``,
    ``keep`` and ``labels``: as in ``manifest.annotations``."""

    source: str
    name: str
    version: int
    secret: SecretKey
    out: Path
    sources: tuple[str, ...] = ()
    chunk_bytes: int | None = None
    link_bytes_per_s: float | None = None
    """Of the hosts: chunks are what it carries in some time, where ``chunk_bytes`` is None."""
    is_step: bool = False
    """Of a training run: chunks are smaller, where neither of those is given."""
    targets: Targets = EVERY_HOST
    priority: int = 5
    selection: Selection = EVERYTHING
    allow_case_collisions: bool = False
    """Names may differ only in case; hosts whose disk folds case refuse them."""
    is_strict: bool = False
    """Refuse what looks wrong."""
    is_adopted: bool = False
    """No source: the daemon of this host adopts the published place, and the other hosts fetch from it."""
    created_s: int
    expires_s: int | None = None
    borders: ChunkBorders = ChunkBorders.TENSORS
    about: bytes = b""
    keep: Retention | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    model_signing: ModelSigning = field(default_factory=ModelSigning)


@dataclass(frozen=True, slots=True)
class Published:
    """The manifest at ``out``."""

    deployment: DeploymentId
    name: str
    version: int
    file_count: int
    bytes_total: int
    chunk_bytes: int
    chunk_count: int
    root: bytes
    sources: tuple[str, ...]
    manifest_bytes: int
    out: Path
    is_new: bool
    """False when ``out`` had the same content already and was not written."""
    findings: tuple[Finding, ...] = ()
    """What looks wrong in it."""
    left_out: Mapping[str, int] = field(default_factory=dict)
    """How many files each default pattern left out."""
    schema: int = 1
    """2: hosts with gossipd 0.1 refuse it."""
    notices: tuple[str, ...] = ()
    """What could not be done, and does not hinder."""
    version_label: str = ""
    """``300.2`` for the step of a run."""


@dataclass(frozen=True, slots=True)
class _Origin:
    """One published place: its content, its reader, and its address for seeds."""

    found: Found
    reader: LocalFiles | StoredObjects | HubFiles
    base_url: str
    look_again: Callable[[], tuple[Found, tuple[str, ...]]]
    left_out: Mapping[str, int]
    directories: tuple[str, ...] = ()
    """The empty ones, which ``look_again`` finds too."""
    root: Path | None = None
    """Where it is a directory of this host."""


class InspectionObserver(Protocol):
    """Called once, before hashing begins."""

    def __call__(self, findings: Sequence[Finding], left_out: Mapping[str, int], /) -> None:
        """What looks wrong, and how many files each default pattern left out."""


def publish(
    order: PublishOrder, progress: PublishProgress, on_inspected: InspectionObserver = lambda findings, left_out: None
) -> Published:
    """Write the signed manifest of ``order.source`` to ``order.out``. Raises PublishError, StorageError; then nothing
    was written."""
    with blaming_the_caller():
        return _publish(order, progress, on_inspected)


def _publish(order: PublishOrder, progress: PublishProgress, on_inspected: InspectionObserver) -> Published:
    check_model_name(order.name)
    check_writable(order.out)
    origin = _open(order)
    files = tuple(FileEntry(one.path, one.size, one.mode) for one in origin.found)
    case_matters = _check_paths(files, origin.directories, allow_case_collisions=order.allow_case_collisions)
    sources = tuple(_source_base(text, files) for text in order.sources) or (origin.base_url,)
    sources = () if order.is_adopted else sources
    findings = inspect(origin.found, origin.left_out, origin.reader.read_piece)
    on_inspected(findings, origin.left_out)
    if findings and order.is_strict:
        raise InspectionError(findings)
    bytes_total = sum(entry.size for entry in files)
    chunk_bytes, directories = _chunk_bytes(order, bytes_total), origin.directories
    check_tree(files, chunk_bytes, None, directories, case_matters=case_matters)  # before hours of hashing
    order.model_signing.check(origin.root, {entry.path for entry in files})
    plan = BorderPlan()
    if order.borders is ChunkBorders.TENSORS:
        plan = plan_borders(files, chunk_bytes, origin.reader.read_piece)
    layout = Layout([entry.size for entry in files], chunk_bytes, plan.cuts)
    progress.found(len(files), bytes_total)
    digests, whole = _hash(layout, origin.reader, progress)
    found, empty = origin.look_again()
    if list(found) != list(origin.found) or empty != directories:
        raise TreeChangedError(f"{shown(order.source)} changed while it was hashed; publish when nobody writes to it")
    draft = ManifestDraft(
        name=order.name,
        version=order.version,
        created_s=order.created_s,
        expires_s=order.expires_s,
        files=files,
        chunk_bytes=layout.chunk_bytes,
        digests=digests,
        sources=sources,
        targets=order.targets,
        priority=order.priority,
        cuts=plan.cuts,
        directories=directories,
        index=plan.index,
        keep=order.keep,
        about=order.about,
        labels=order.labels,
        case_matters=case_matters,
    )
    envelope = _said_before(order, draft)
    is_new = envelope is None
    order.model_signing.write(order.name, whole)
    envelope = envelope or seal_manifest(draft, order.secret)
    manifest = open_manifest(envelope, [order.secret.public.ed25519])
    if is_new:
        write_whole(order.out, envelope)
    return Published(
        manifest.id, manifest.name, manifest.version, len(files), bytes_total, layout.chunk_bytes,
        layout.chunk_count, manifest.root, sources, len(envelope), order.out, is_new, findings, origin.left_out,
        manifest.schema, plan.notices, manifest.version_label,
    )  # fmt: skip


def _hash(
    layout: Layout, reader: ExtentReader, progress: PublishProgress
) -> tuple[bytes, Mapping[str, bytes]]:  # fmt: skip
    """The hashes of chunks, and where they are wanted those of whole files."""
    if isinstance(reader, WholeFiles):
        return hash_chunks(layout, reader, progress.hashed, by_file=True), reader.whole_digests()
    return hash_chunks(layout, reader, progress.hashed), {}


def _check_paths(files: Sequence[FileEntry], directories: Sequence[str], *, allow_case_collisions: bool) -> bool:
    """Every rule on paths. Returns whether names differ only in case. Raises ManifestError that names files by their
    paths, where the rules have an index."""
    paths = [*(entry.path for entry in files), *directories]
    try:
        try:
            check_paths(paths)
        except ManifestError as error:
            if error.code != "E_PATH_COLLISION":
                raise
            check_paths(paths, case_matters=True)
            if allow_case_collisions:
                return True
            cure = "(they differ only in case: --allow-case-collisions, where every host's disk tells them apart)"
            raise ManifestError(f"{error} {cure}", code=error.code) from None
    except ManifestError as error:
        raise ManifestError(_with_names(str(error), paths), code=error.code) from None
    return False


def _with_names(said: str, paths: Sequence[str]) -> str:
    """The sentence of a rule, with files by their paths, and how to leave the last of them out."""
    named = [paths[int(found[1])] for found in _FIELD.finditer(said)]
    said = _FIELD.sub(lambda found: shown(paths[int(found[1])]), said)
    for path in named[-1:]:
        said = said.replace(f"{shown(path)} {shown(path)}", shown(path))
        said += f"; rename it, or leave it out with --exclude {shown(pattern_for(path))}"
    return said


def _said_before(order: PublishOrder, draft: ManifestDraft) -> bytes | None:
    """The manifest at ``order.out`` if it differs only by its date: then it stays. Otherwise a repeated script would
    make another deployment of the same version, which hosts refuse with an alarm."""
    try:
        with order.out.open("rb") as file:
            envelope = file.read(ENVELOPE_BYTES_MAX + 1)
        before = open_manifest(envelope, [order.secret.public.ed25519])
    except (OSError, ManifestError):
        return None
    return envelope if seal_manifest(replace(draft, created_s=before.created_s), order.secret) == envelope else None


def _chunk_bytes(order: PublishOrder, bytes_total: int) -> int:
    if order.chunk_bytes is not None:
        return order.chunk_bytes
    if order.link_bytes_per_s is None:
        return step_chunk_bytes(bytes_total) if order.is_step else default_chunk_bytes(bytes_total)
    chosen = chunk_bytes_for_link(order.link_bytes_per_s, bytes_total)
    if order.borders is ChunkBorders.TENSORS and bytes_total <= CHUNK_BYTES_MAX // 2 * CHUNKS_MAX // 2:
        return min(chosen, CHUNK_BYTES_MAX // 2)  # a chunk with its margins must not outgrow the limit
    return chosen


def _open(order: PublishOrder) -> _Origin:
    if "://" not in order.source:
        return _open_path(Path(order.source), order)
    url = parse_source_url(order.source, "SOURCE")
    check_scheme(url.scheme, "SOURCE")
    if url.scheme == "file":
        return _open_path(Path(url.path), order)
    if url.scheme in WEB_SCHEMES:
        raise PublishError(
            f"{url.shown}: a web server's directory cannot be listed; publish the directory that it serves, as in "
            f"'gossipd publish DIRECTORY --source {url.scheme}://HOST/PATH/'",
            code="E_SOURCE_LISTING",
        )
    if url.scheme == HUB_SCHEME:
        return _open_hub(url, order.selection)
    return _open_storage(order)


def _open_hub(url: SourceUrl, selection: Selection) -> _Origin:
    left_out: Counter[str] = Counter()
    listing = list_repository(url, selection, left_out)
    return _Origin(
        listing.files,
        HubFiles(listing),
        listing.url.text,
        lambda: (list_repository(listing.url, selection).files, ()),
        left_out,
    )


def _open_path(source: Path, order: PublishOrder) -> _Origin:
    path = Path(os.path.abspath(source))  # not resolve(): a link that the operator names stays in the address
    selection, signing = order.selection, order.model_signing
    _check_outside(path, "--out", order.out, selection)
    if signing.key is not None:
        _check_outside(path, "--model-sig-out", signing.out, selection)
    left_out: Counter[str] = Counter()
    found = find_files(path, selection, left_out)
    base = path if path.is_dir() else path.parent
    url = f"file://{quote(os.fsencode(base)).rstrip('/')}/"
    return _Origin(
        found,
        WholeFiles(found) if signing.key is not None else LocalFiles(found),
        url,
        lambda: (find_files(path, selection), find_empty_directories(path, selection)),
        left_out,
        find_empty_directories(path, selection),
        path if path.is_dir() else None,
    )


def _check_outside(source: Path, option: str, out: Path, selection: Selection) -> None:
    """Refuse to write into the model, where it would be part of the next manifest."""
    target = Path(os.path.abspath(out))
    if target.is_relative_to(source) and selection.admits(str(target.relative_to(source))):
        raise PublishError(
            f"{option} {shown(str(out))} lies in SOURCE and would be part of it; write it elsewhere, or --exclude it",
            code="E_OUTPUT",
        )


def _open_storage(order: PublishOrder) -> _Origin:
    url = parse_source_url(order.source, "SOURCE")
    store = open_storage(url)
    left_out: Counter[str] = Counter()
    try:
        found = find_objects(store, url, order.selection, left_out)
    except PublishError:
        single = None if url.text.endswith("/") else _open_object(order.source)
        if single is None:
            raise
        return single
    base = f"{url.text.rstrip('/')}/"
    return _Origin(
        found,
        StoredObjects(store, url, found),
        base,
        lambda: (find_objects(store, url, order.selection), ()),
        left_out,
    )


def _open_object(source: str) -> _Origin | None:
    """SOURCE as the address of a single object, or None."""
    base, _, name = source.rpartition("/")
    if base.endswith(":/"):
        return None  # s3://bucket
    url = parse_source_url(f"{base}/", "SOURCE")
    store, name = open_storage(url), unquote(name)

    def look() -> list[FoundObject]:
        one = find_object(store, name, url)
        if one is None:
            raise StorageNotFoundError(f"{shown(source)} is not there")
        return [one]

    if find_object(store, name, url) is None:
        return None
    found = look()
    return _Origin(found, StoredObjects(store, url, found), url.text, lambda: (look(), ()), {})


def _source_base(text: str, files: Sequence[FileEntry]) -> str:
    """``--source`` as the directory for the manifest, also when it is the address of the only file."""
    url = parse_source_url(text, "--source")
    check_scheme(url.scheme, "--source")
    if url.scheme == HUB_SCHEME:
        return list_repository(url, EVERYTHING).url.text  # its commit: a branch moves
    last = url.path.rpartition("/")[2]
    if last and len(files) == 1 and last == files[0].path:
        return text[: text.rindex("/") + 1]
    return f"{text.rstrip('/')}/"
