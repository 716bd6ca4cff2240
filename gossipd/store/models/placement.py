"""Where the bytes of a model's chunks lie: in the files that users see, or, of some, apart from them.

What lives here: paths, sizes and segments of a replica, as a function of its part. What does not: which part it is
(``parts.part``), bytes (``showing``).

A file of which a host has only a part begins, for users, with another header than the signed one: it lists only the
tensors that are there. The signed header is kept in ``.manifests/<id>/signed/<n>``, and the first segments of its
chunks lead there, so that every chunk is written, served, hashed and repaired as the manifest says. The kept beginning
of file ``n`` has the number ``n`` plus the count of the model's files. Where the whole model is wanted nothing is kept
apart.
"""

from __future__ import annotations

from collections.abc import Iterator

from gossipd.manifest.chunk_layout import Segment
from gossipd.manifest.manifest import Manifest
from gossipd.parts.part import Part, Presence
from gossipd.store.models import layout

HOLES_SUFFIX = ".holes"


class Placement:
    """The files of one replica. Immutable."""

    def __init__(self, manifest: Manifest, part: Part) -> None:
        self._manifest = manifest
        self._part = part
        self._kept_from = len(manifest.files)

    def files(self) -> Iterator[int]:
        """The numbers of all files, those that are kept apart last."""
        yield from self._part.files
        for file_index in self._part.kept_bytes:
            yield self._kept_from + file_index

    def is_kept(self, file_index: int) -> bool:
        """Whether users do not see it."""
        return file_index >= self._kept_from

    def has_holes(self, file_index: int) -> bool:
        """Whether not all of its bytes are wanted."""
        return self._part.files.get(file_index, Presence.WHOLE) is not Presence.WHOLE

    def kept(self, file_index: int) -> int:
        """The number of the kept beginning of a file."""
        return self._kept_from + file_index

    def shown(self, file_index: int) -> int:
        """The file whose beginning a kept one is."""
        return file_index - self._kept_from

    def beginnings_in(self, chunk: int) -> list[int]:
        """The files of which a kept beginning, or some of it, lies in this chunk."""
        if not self._part.kept_bytes:
            return []
        return [self.shown(one.file_index) for one in self.segments(chunk) if self.is_kept(one.file_index)]

    def size(self, file_index: int) -> int:
        if file_index >= self._kept_from:
            return self._part.kept_bytes[file_index - self._kept_from]
        return self._manifest.files[file_index].size

    def mode(self, file_index: int) -> int:
        """Permission bits that the publisher's file had."""
        return 0o644 if file_index >= self._kept_from else self._manifest.files[file_index].mode

    def path(self, tree: str, file_index: int) -> str:
        if file_index >= self._kept_from:
            return f"{layout.signed(self._manifest.id)}/{file_index - self._kept_from}"
        path = f"{tree}/{self._manifest.files[file_index].path}"
        return path + HOLES_SUFFIX if self._part.files.get(file_index) is Presence.HOLES else path

    def segments(self, chunk: int) -> tuple[Segment, ...]:
        """Where a chunk lies, in the order in which it is hashed."""
        segments = self._manifest.segments(chunk)
        kept = self._part.kept_bytes
        if not kept:
            return segments
        found: list[Segment] = []
        for one in segments:
            apart = max(0, min(one.length, kept.get(one.file_index, 0) - one.offset))
            if apart:
                found.append(Segment(self._kept_from + one.file_index, one.offset, apart))
            if apart < one.length:
                found.append(Segment(one.file_index, one.offset + apart, one.length - apart))
        return tuple(found)

    def chunks_of(self, file_index: int) -> range:
        """The chunks that hold any byte of a file."""
        if file_index < self._kept_from:
            return self._manifest.layout.chunks_of(file_index)
        at = file_index - self._kept_from
        return self._manifest.layout.chunks_between(at, 0, self._part.kept_bytes[at])
