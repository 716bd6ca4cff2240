"""The room of what a part leaves out of the files that it shows.

What lives here: giving blocks back that a file had for bytes which are wanted no longer. What does not: which bytes
are wanted (``parts.part``), and files of which nothing is (``part_note`` removes them).

A file that a process has open stays as it is: there may be a job that still reads what is left out now, and it would
find zeros. It is freed by the next order to free, after that process has ended. Rejected: a copy of what is wanted in
the file's place, because it needs room for all of it when there is too little.
"""

from __future__ import annotations

from collections import defaultdict

from gossipd.core.chunkset import ChunkSet
from gossipd.manifest.manifest import Manifest
from gossipd.parts.part import Part
from gossipd.store.disk.disk import FileKind, opened
from gossipd.store.models.context import Context
from gossipd.store.models.placement import Placement
from gossipd.store.models.replica import ModelReplica


def free_holes(context: Context, replica: ModelReplica) -> None:
    """Give back the blocks of what the part leaves out of its files. For an opened model whose journal was started: an
    older one may claim chunks of an earlier part, and a later part would believe them. Raises OSError.
    """
    assert not replica.ledger.broken, "no journal was started"
    disk = context.disk
    with replica.committing:
        if replica.is_closed:
            return
        for file_index, spans in _left_out(replica.manifest, replica.part).items():
            path = replica.path(file_index)
            if disk.kind(path) is not FileKind.FILE:
                continue
            with opened(disk, path, write=True) as descriptor:
                if not disk.is_open_elsewhere(descriptor):
                    for start, end in spans:
                        disk.punch(descriptor, start, end - start)


def _left_out(manifest: Manifest, part: Part) -> dict[int, list[tuple[int, int]]]:
    """Of files with holes: where these begin and end."""
    placement = Placement(manifest, part)
    found: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
    for chunk in ChunkSet.full(manifest.chunk_count) - part.wanted:
        for one in manifest.segments(chunk):
            if not placement.has_holes(one.file_index) or one.file_index not in part.files:
                continue
            spans, end = found[one.file_index], one.offset + one.length
            if spans and spans[-1][1] == one.offset:
                spans[-1] = (spans[-1][0], end)
            else:
                spans.append((one.offset, end))
    return found
