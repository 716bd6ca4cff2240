"""Held chunks, ready to be sent: descriptors and spans for sendfile.

What lives here: opening what a bulk server sends. What does not: hashing. A sender does not hash, as that costs half as
much again; the receiver does, and its complaint makes us read the chunk back (``scrub.recheck``).

A chunk of more files than ``gather_pieces_max`` is copied into one memory file, which saves a descriptor for each.
"""

from __future__ import annotations

from collections.abc import Sequence

from gossipd.core.ids import ChunkIndex
from gossipd.manifest.chunk_layout import Segment
from gossipd.runtime.ports import NotHeldError, Span
from gossipd.store.disk.disk import read_all, write_all
from gossipd.store.disk.handles import Handle
from gossipd.store.models.context import Context
from gossipd.store.models.replica import ModelReplica


class HeldChunk:
    """Spans over leased handles; an ``OpenChunk``."""

    __slots__ = ("_context", "_handles", "_memory", "length", "spans")

    def __init__(
        self, context: Context, spans: Sequence[Span], handles: Sequence[Handle], *, memory: int | None = None
    ) -> None:
        self._context = context
        self._handles = handles
        self._memory = memory
        self.spans: Sequence[Span] = spans
        self.length = sum(span.length for span in spans)

    def close(self) -> None:
        """Give the handles back; a second call does nothing."""
        handles, self._handles = self._handles, ()
        for handle in handles:
            self._context.handles.give_back(handle)
        memory, self._memory = self._memory, None
        if memory is not None:
            self._context.disk.close(memory)


def open_held_chunk(context: Context, replica: ModelReplica, chunk: ChunkIndex) -> HeldChunk:
    """Raises NotHeldError: the chunk is not held, or its files cannot be opened (``E_CHUNK_UNAVAILABLE``)."""
    if not 0 <= chunk < replica.manifest.chunk_count:
        raise NotHeldError(f"chunk {chunk} outside 0..{replica.manifest.chunk_count - 1}", code="E_CHUNK_RANGE")
    if chunk not in replica.held:
        raise NotHeldError(f"chunk {chunk} is not held")
    segments = replica.placement.segments(chunk)
    try:
        is_gathered = len(segments) > context.settings.gather_pieces_max
        opened = (_gather if is_gathered else _spans)(context, replica, segments)
    except OSError as error:
        raise NotHeldError(
            f"chunk {chunk} cannot be read: {error.strerror or error}", code="E_CHUNK_UNAVAILABLE"
        ) from error
    if replica.is_closed:  # what a part leaves out may be freed from now on; what was leased before is not
        opened.close()
        raise NotHeldError(f"chunk {chunk} is not held")
    return opened


def lease_for_reading(context: Context, replica: ModelReplica, file_index: int) -> Handle:
    """Lease a file. If publishing moved the tree between the look at its path and the open, look again."""
    while True:
        tree = replica.tree
        try:
            return context.handles.lease(replica.deployment, file_index, replica.path(file_index))
        except FileNotFoundError:
            if tree == replica.tree:
                raise


def _spans(context: Context, replica: ModelReplica, segments: Sequence[Segment]) -> HeldChunk:
    handles: list[Handle] = []
    spans = []
    try:
        for segment in segments:
            handle = lease_for_reading(context, replica, segment.file_index)
            handles.append(handle)
            spans.append(Span(handle.descriptor, segment.offset, segment.length))
    except OSError:
        for handle in handles:
            context.handles.give_back(handle)
        raise
    return HeldChunk(context, spans, handles)


def _gather(context: Context, replica: ModelReplica, segments: Sequence[Segment]) -> HeldChunk:
    memory = context.disk.memory_file()
    position = 0
    try:
        for segment in segments:
            part = memoryview(bytearray(segment.length))
            handle = lease_for_reading(context, replica, segment.file_index)
            try:
                read_all(context.disk, handle.descriptor, part, segment.offset)  # short: the receiver refuses it
            finally:
                context.handles.give_back(handle)
            write_all(context.disk, memory, part, position)
            position += segment.length
    except OSError:
        context.disk.close(memory)
        raise
    return HeldChunk(context, (Span(memory, 0, position),), (), memory=memory)
