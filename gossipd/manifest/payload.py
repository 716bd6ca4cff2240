"""The payload of a manifest: its format, and every rule that a signature does not prove.

What lives here: parsing and checking, the root hash. What does not: signatures and ``Manifest`` (``manifest``),
the rules for paths, names, URLs and layout (their own modules).

Format of the payload: one byte, the schema version, then a MessagePack map::

    name       text             "name" or "org/name"
    version    integer          0 to 2^53-1; a higher one replaces a lower one
    created    integer          seconds since 1970
    expires    integer or nil   after it, no host accepts the manifest for the first time
    files      array of [path, size, mode]       mode is permission bits only
    chunk      integer          chunk size: a power of two, 64 KiB to 64 MiB
    hashes     bytes            BLAKE3-256 of every chunk, 32 bytes each, in order (``chunk_layout`` has the order)
    root       bytes            32 bytes, see below
    sources    array of text    URLs without credentials
    racks      array of text    target racks; empty: all
    names      array of text    patterns over target nodes' names; empty: all
    priority   integer          0 to 9; 9 is first

Schema 2 has these as well, each of which may be missing. A manifest without any of them is written in schema 1, which
is accepted for ever::

    cuts         array            for each file nil or an array of integers, as in ``chunk_borders``
    directories  array of text    empty directories
    index        bytes            of all tensors, as in ``tensor_index``
    keep         map              {last, every}: which versions of the name live, as in ``annotations``
    about        bytes            lineage: the text of one JSON object, as in ``annotations``
    labels       map              text to text
    case!        true             names that differ only in case are two; a host whose disk folds case refuses it
    pack         map              reserved for packed forms of chunks: codec, length and hash of each; not read yet

A reader ignores unknown map keys and items past the third of a file, so an addition there must be safe to ignore. In
schema 2 it refuses a key that ends in ``!``: an addition that must be understood is named so. In schema 1 the keys of
schema 2 are unknown ones. Any other addition raises the schema version, and a reader refuses unknown versions.

``root`` names the content alone: BLAKE3-256 in key-derivation mode, context ``gossipd manifest root 1``, over
little-endian ``u64 chunk``, ``u64 number of files``, for each file ``u32`` length of the path, the path in UTF-8,
``u64 size``, ``u32 mode``, and then ``hashes``. Two versions with one root hold the same tree, whatever their
dates and targets; a list of hashes spliced from two manifests has a wrong root. With cuts or empty directories the
context ends in ``2``, and before ``hashes`` come ``u64`` number of directories, each as a path is, and for each file
``u64`` number of cuts and each ``u64``; 0 for nil.

Hashes are one byte string, not an array, because they stay one object and open faster. They are not copied out of the
envelope.

A trusted publisher can be careless or robbed, so every part has a bound in bytes, which is checked before any value is
made. Models in use are far below each: ``FILES_BYTES_MAX`` is 150 bytes of path for each of the most files,
``CUTS_BYTES_MAX`` twice what the 90,000 tensors of a model of 671 billion weights need, ``OTHER_BYTES_MAX`` more
than the other fields may have by their own rules.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Sequence
from typing import Annotated, Any, TypeAlias

import msgspec
from blake3 import blake3

from gossipd.manifest.annotations import Retention, check_labels, check_retention, read_about
from gossipd.manifest.chunk_layout import Layout
from gossipd.manifest.errors import ManifestError, shown
from gossipd.manifest.names import check_label, check_model_name, check_name_glob
from gossipd.manifest.paths import check_paths
from gossipd.manifest.source_url import parse_source_url
from gossipd.manifest.strict_msgpack import (
    INTEGER_MAX,
    check_plain,
    decoding,
    item_count,
    spans,
    unpack_value,
)
from gossipd.manifest.tensor_index import INDEX_BYTES_MAX, check_index

SCHEMA_VERSIONS = (1, 2)
DIGEST_BYTES = 32
FILES_MAX = 100_000
FILES_BYTES_MAX = 16 * 1024 * 1024  # of the list of files, as packed
CUTS_BYTES_MAX = 1024 * 1024  # of cuts, as packed
OTHER_BYTES_MAX = 512 * 1024  # of all other fields but ``hashes``, unknown ones too
SOURCES_MAX = 16
TARGETS_MAX = 1_024  # racks, and name patterns: more than racks in a data centre hall
TEXT_BYTES_MAX = 4_096  # longest text that reaches the rule of its field: URLs have 2,048
_ROOT_CONTEXT, _ROOT_CONTEXT_2 = "gossipd manifest root 1", "gossipd manifest root 2"
_PACKED = "pack"  # not counted to the other fields, because it has 37 bytes for each chunk

_Natural = Annotated[int, msgspec.Meta(ge=0, le=INTEGER_MAX)]
_Length = Annotated[int, msgspec.Meta(ge=1, le=INTEGER_MAX)]
Cuts: TypeAlias = Sequence[Sequence[int] | None]
"""For each file None, or the lengths of its stretches."""
_SentCuts: TypeAlias = tuple[tuple[_Length, ...] | None, ...]


class FileEntry(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One file: path relative to the model's directory, bytes, permission bits."""

    path: str
    size: _Natural
    mode: _Natural


class Payload(msgspec.Struct, frozen=True, omit_defaults=True, rename={"case_matters": "case!"}):
    """The map, typed but not yet checked. The fields with defaults are those of schema 2."""

    name: str
    version: _Natural
    created: _Natural
    expires: _Natural | None
    files: tuple[FileEntry, ...]
    chunk: _Natural
    hashes: memoryview
    root: bytes
    sources: tuple[str, ...]
    racks: tuple[str, ...]
    names: tuple[str, ...]
    priority: Annotated[int, msgspec.Meta(ge=0, le=9)]
    cuts: Any = None  # Cuts or None; decoded apart, because arrays take a fifth of the memory of tuples
    directories: tuple[str, ...] = ()
    index: memoryview | None = None
    keep: Retention | None = None
    about: bytes = b""
    labels: dict[str, str] = {}
    case_matters: bool = False

    @property
    def schema(self) -> int:
        """The lowest version of the schema that can say this."""
        is_second = self.cuts is not None or self.index is not None or self.keep is not None
        return 2 if is_second or self.directories or self.about or self.labels or self.case_matters else 1


_FILES = msgspec.msgpack.Decoder(tuple[FileEntry, ...])
_HASHES = msgspec.msgpack.Decoder(memoryview)
_CUTS = msgspec.msgpack.Decoder(_SentCuts)
_FIELDS = frozenset(Payload.__struct_encode_fields__)
_FIELDS_1 = frozenset(Payload.__struct_fields__[:12])
_NONE = memoryview(b"\xc0")
_LENGTH, _SIZE_AND_MODE = struct.Struct("<I").pack, struct.Struct("<QI").pack
_HASHED_AT_ONCE = 256


def root_hash(
    files: Sequence[FileEntry],
    chunk_bytes: int,
    digests: bytes | memoryview,
    *,
    cuts: Cuts | None = None,
    directories: Sequence[str] = (),
) -> bytes:
    """The hash that names a tree's content; its definition is in this module's docstring."""
    is_plain = cuts is None and not directories
    context = _ROOT_CONTEXT if is_plain else _ROOT_CONTEXT_2
    hasher = blake3(struct.pack("<QQ", chunk_bytes, len(files)), derive_key_context=context)
    for start in range(0, len(files), _HASHED_AT_ONCE):
        parts: list[bytes] = []
        for entry in files[start : start + _HASHED_AT_ONCE]:
            path = entry.path.encode()
            parts += (_LENGTH(len(path)), path, _SIZE_AND_MODE(entry.size, entry.mode))
        hasher.update(b"".join(parts))
    if not is_plain:
        hasher.update(struct.pack("<Q", len(directories)))
        for directory in directories:
            path = directory.encode()
            hasher.update(struct.pack("<I", len(path)) + path)
        no_cut = struct.pack("<Q", 0)
        for lengths in cuts or (None,) * len(files):
            hasher.update(struct.pack("<Q", len(lengths)) + array("Q", lengths).tobytes() if lengths else no_cut)
    return hasher.update(digests).digest()


def parse_payload(payload: memoryview) -> Payload:
    """Bytes that a trusted key has signed, typed. Raises ManifestError ``E_SCHEMA_VERSION``, ``E_LIMIT`` or
    ``E_DECODE``.
    """
    if not len(payload) or payload[0] not in SCHEMA_VERSIONS:
        found, known = payload[0] if len(payload) else "none", " and ".join(map(str, SCHEMA_VERSIONS))
        raise ManifestError(
            f"manifest schema {found}, supported {known}: upgrade this gossipd", code="E_SCHEMA_VERSION"
        )
    values = spans(payload[1:])
    is_second = payload[0] == 2
    files, hashes = values.pop("files", _NONE), values.pop("hashes", _NONE)
    more = _large_fields(values) if is_second else {}
    _limit("files", item_count(files), FILES_MAX)
    _limit("bytes of files", len(files), FILES_BYTES_MAX)
    _limit("bytes of other fields", sum(len(value) for value in values.values()), OTHER_BYTES_MAX)
    fields: dict[str, Any] = {
        key: unpack_value(
            value,
            array_items_max=2 * FILES_MAX,  # so that a field with a few items too many is told its limit
            text_bytes_max=TEXT_BYTES_MAX,
            bytes_max=OTHER_BYTES_MAX,
        )
        for key, value in values.items()
    }
    for key in fields.keys() - (_FIELDS if is_second else _FIELDS_1):
        check_plain(fields[key])
        if is_second and key.endswith("!"):
            raise ManifestError(
                f"the manifest needs {shown(key)}, which this gossipd does not know: upgrade it",
                code="E_SCHEMA_VERSION",
            )
        del fields[key]
    with decoding("files"):
        fields["files"] = _FILES.decode(files)
    with decoding("hashes"):
        fields["hashes"] = _HASHES.decode(hashes)
    with decoding("wrong field"):
        made = msgspec.convert(fields, Payload, builtin_types=(bytes, memoryview))  # else text would be read as base64
    return msgspec.structs.replace(made, **more) if more else made


def _large_fields(values: dict[str, memoryview]) -> dict[str, Any]:
    """Take out of ``values`` what has a bound of its own; what is read of it. Raises ManifestError."""
    values.pop(_PACKED, None)
    found: dict[str, Any] = {}
    if (cuts := values.pop("cuts", None)) is not None:
        _limit("cuts", item_count(cuts), FILES_MAX)
        _limit("bytes of cuts", len(cuts), CUTS_BYTES_MAX)
        with decoding("cuts"):
            found["cuts"] = tuple(None if one is None else array("Q", one) for one in _CUTS.decode(cuts))
    if (index := values.pop("index", None)) is not None:
        _limit("bytes of index", len(index), INDEX_BYTES_MAX)
        with decoding("index"):
            found["index"] = _HASHES.decode(index)
    return found


def check_payload(payload: Payload) -> Layout:
    """Check every rule that a signature does not prove; returns the layout that the files imply."""
    check_model_name(payload.name)
    _limit("sources", len(payload.sources), SOURCES_MAX)
    _limit("racks", len(payload.racks), TARGETS_MAX)
    _limit("names", len(payload.names), TARGETS_MAX)
    layout = check_tree(
        payload.files, payload.chunk, payload.cuts, payload.directories, case_matters=payload.case_matters
    )
    _check_hashes(payload, layout)
    for index, rack in enumerate(payload.racks):
        check_label(rack, f"racks[{index}]")
    for index, glob in enumerate(payload.names):
        check_name_glob(glob, f"names[{index}]")
    for index, source in enumerate(payload.sources):
        parse_source_url(source, f"sources[{index}]")
    if payload.index is not None:
        check_index(payload.index, layout.sizes)
    if payload.keep is not None:
        check_retention(payload.keep)
    check_labels(payload.labels)
    read_about(payload.about)
    return layout


def check_tree(
    files: Sequence[FileEntry],
    chunk_bytes: int,
    cuts: Cuts | None = None,
    directories: Sequence[str] = (),
    *,
    case_matters: bool = False,
) -> Layout:
    """Check the rules about files and empty directories, each and together; returns the layout that sizes and cuts
    imply. A path's number in a refusal counts the files first, then the directories."""
    if not files:
        raise ManifestError("a manifest must list at least one file", code="E_EMPTY")
    _limit("files", len(files) + len(directories), FILES_MAX)
    check_paths([*(entry.path for entry in files), *directories], case_matters=case_matters)
    for index, entry in enumerate(files):
        if entry.mode & ~0o777:
            raise ManifestError(
                f"files[{index}].mode {entry.mode:o} must be permission bits of a regular file, without setuid",
                code="E_FILE_TYPE",
            )
    layout = Layout([entry.size for entry in files], chunk_bytes, cuts)
    if not layout.bytes_total:
        raise ManifestError("the files hold no bytes; a model has at least one", code="E_EMPTY")
    return layout


def _check_hashes(payload: Payload, layout: Layout) -> None:
    if len(payload.hashes) % DIGEST_BYTES:
        raise ManifestError(
            f"the last hash has {len(payload.hashes) % DIGEST_BYTES} bytes, need 32", code="E_HASH_LENGTH"
        )
    if len(payload.root) != DIGEST_BYTES:
        raise ManifestError(f"root has {len(payload.root)} bytes, need 32", code="E_HASH_LENGTH")
    count = len(payload.hashes) // DIGEST_BYTES
    if count != layout.chunk_count:
        raise ManifestError(
            f"files of {layout.bytes_total} bytes need {layout.chunk_count} chunks, there are {count} hashes",
            code="E_CHUNK_LAYOUT",
        )
    if payload.root != root_hash(
        payload.files, payload.chunk, payload.hashes, cuts=payload.cuts, directories=payload.directories
    ):
        raise ManifestError("root is not the hash of files and chunk hashes", code="E_ROOT_HASH")


def _limit(field_name: str, count: int, most: int) -> None:
    if count > most:
        raise ManifestError(f"{field_name}={count} max={most}", code="E_LIMIT")
