"""Chunk borders at tensor starts for the files about to be published, and the index of their tensors.

What lives here: which files get them, and when a plain grid is taken instead. What does not: the rule
(``manifest.chunk_borders``), the header's format (``safetensors_header``).

Only safetensors files of at least a chunk have borders: smaller files lie packed. A header that contradicts its file
costs the borders of that file, never the publication: the bytes are delivered as they are. So does a model whose cuts,
chunks or tensors are beyond the bounds of a manifest. Each such case is a notice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import partial

from gossipd.manifest.chunk_borders import cuts_of
from gossipd.manifest.chunk_layout import Layout
from gossipd.manifest.errors import ManifestError, shown
from gossipd.manifest.payload import CUTS_BYTES_MAX, Cuts, FileEntry
from gossipd.manifest.strict_msgpack import pack
from gossipd.manifest.tensor_index import Tensor, check_index, pack_index
from gossipd.publish.safetensors_header import HeaderError, HeaderReader, SafetensorsHeader

ReadPiece = Callable[[int, int, int], bytes]
"""``length`` bytes at ``offset`` of a file, given as (file index, offset, length)."""


class ChunkBorders(Enum):
    """TENSORS: chunks of safetensors files begin at tensors. PLAIN: every ``chunk_bytes``, as in schema 1."""

    TENSORS = "tensors"
    PLAIN = "plain"


@dataclass(frozen=True, slots=True)
class BorderPlan:
    """``cuts`` and ``index`` of a manifest, None where there is nothing to say; ``notices`` for the operator."""

    cuts: Cuts | None = None
    index: bytes | None = None
    notices: tuple[str, ...] = ()


def plan_borders(files: Sequence[FileEntry], chunk_bytes: int, read_piece: ReadPiece) -> BorderPlan:
    """Read the headers of ``files`` and plan. Raises: the exceptions of ``read_piece``."""
    notices: list[str] = []
    headers: dict[int, SafetensorsHeader] = {}
    for index, entry in enumerate(files):
        if not entry.path.lower().endswith(".safetensors") or entry.size < chunk_bytes:
            continue
        try:
            headers[index] = HeaderReader(entry.size, partial(read_piece, index)).header()
        except HeaderError as error:
            notices.append(f"{shown(entry.path)} {error}: its chunks do not begin at tensors")
    if not headers:
        return BorderPlan(notices=tuple(notices))
    cuts = tuple(
        cuts_of(found.header_bytes, [one.end - one.begin for one in found.tensors], chunk_bytes) if found else None
        for found in map(headers.get, range(len(files)))
    )
    sizes = [entry.size for entry in files]
    try:
        Layout(sizes, chunk_bytes, cuts)
        if (size := len(pack([*cuts]))) > CUTS_BYTES_MAX:
            raise ManifestError(f"bytes of cuts={size} max={CUTS_BYTES_MAX}", code="E_LIMIT")
    except ManifestError as error:
        return BorderPlan(notices=(*notices, f"chunks do not begin at tensors: {error}"))
    packed = pack_index(
        Tensor(at, one.name, one.dtype, one.shape, one.begin, one.end)
        for at, found in headers.items()
        for one in found.tensors
    )
    try:
        check_index(packed, sizes)
    except ManifestError as error:
        return BorderPlan(cuts, notices=(*notices, f"the manifest has no index of tensors: {error}"))
    return BorderPlan(cuts, packed, tuple(notices))
