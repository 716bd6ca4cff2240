"""Looking for rot: one chunk when a peer complains, all of a model on request, everything slowly in the background.

What lives here: reading a chunk back and comparing, and the times of the last comparison. What does not: the
thread and its rate (``background``), and fetching what was dropped (the planner, told by ChunkLost).

A chunk counts as checked when it was verified on its way in, and each time it is read back and right. The times
are kept per chunk (u32 seconds, in ``.manifests/<id>/checked``: magic, then the array, then its CRC-32) and written
when a pass ends, every ten minutes of a pass, and at the end; a lost file costs a check that comes too early.

Reading back goes through a descriptor opened for it by path, so that a file which was deleted or replaced is seen,
and leaves the page cache as it found it. Repair is a write in place into the published file: a reader of that chunk
has had wrong bytes since it rotted and has right ones after; a copy of the file and a rename would need the space
of the file again and would leave every process that has it mapped with the rotten one.
"""

from __future__ import annotations

import errno
import struct
import zlib
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from threading import Lock

from blake3 import blake3

from gossipd.core.errors import NotFoundError
from gossipd.core.ids import DeploymentId
from gossipd.runtime.ports import NotHeldError
from gossipd.store.disk.disk import read_all, read_file, write_new_file
from gossipd.store.journal.claims import drop
from gossipd.store.models import layout
from gossipd.store.models.context import Context
from gossipd.store.models.repair import mend_tree
from gossipd.store.models.replica import ModelReplica

_MAGIC = b"gossipdC\x01"
SAVE_INTERVAL_S = 600
_TRANSIENT = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EINTR)


class Filled(Enum):
    """How reading a chunk back went: all of it, a file was missing or too short, the device failed."""

    WHOLE = "whole"
    SHORT = "short"
    UNREADABLE = "unreadable"


@dataclass(frozen=True, slots=True)
class Checked:
    """One chunk that was read back. ``bytes_done`` of ``bytes_total`` are behind us."""

    chunk: int
    is_good: bool
    bytes_done: int
    bytes_total: int


class CheckTimes:
    """When each chunk of a model was last known to be right."""

    def __init__(self, chunk_count: int, now_s: int) -> None:
        self.times = array("I", [now_s]) * chunk_count
        self.cursor = 0
        self.saved_s = now_s
        self.is_changed = False

    @property
    def oldest_s(self) -> int:
        """The chunk that has waited longest."""
        return min(self.times, default=0)

    def to_bytes(self) -> bytes:
        """The file's content."""
        body = _MAGIC + struct.pack("<II", len(self.times), self.cursor) + self.times.tobytes()
        return body + struct.pack("<I", zlib.crc32(body))

    def load(self, body: bytes) -> bool:
        """Take over what a file says; False when it is not about this model or damaged."""
        head = len(_MAGIC) + 8
        if len(body) != head + 4 * len(self.times) + 4 or body[: len(_MAGIC)] != _MAGIC:
            return False
        if zlib.crc32(body[:-4]) != struct.unpack("<I", body[-4:])[0]:
            return False
        count, cursor = struct.unpack_from("<II", body, len(_MAGIC))
        if count != len(self.times):
            return False
        self.cursor = cursor % max(1, count)
        self.times = array("I", body[head:-4])
        return True


def load_times(context: Context, replica: ModelReplica) -> CheckTimes:
    """From the file, else as if everything had been checked when it was published."""
    times = CheckTimes(replica.manifest.chunk_count, replica.published_s or int(context.clock.wall()))
    try:
        times.load(read_file(context.disk, layout.checked(replica.deployment), bytes_max=len(times.to_bytes())))
    except OSError:
        return times
    return times


def save_times(context: Context, replica: ModelReplica, times: CheckTimes) -> None:
    """Write the file if it says anything new; a disk that refuses costs only the file."""
    if not times.is_changed:
        return
    times.saved_s = int(context.clock.wall())
    try:
        write_new_file(context.disk, layout.checked(replica.deployment), times.to_bytes())
    except OSError:
        return
    times.is_changed = False


def recheck(context: Context, replica: ModelReplica, chunk: int, *, passing: bool = False) -> bool:
    """Read a chunk back and compare; a wrong one is dropped and told as lost.

    Returns: whether it is held and right.
    Raises:
        OSError: it could not be read for a reason that says nothing about it (out of descriptors).
        NotHeldError: the model was removed meanwhile, which says nothing about it either.
    """
    if chunk not in replica.held:
        return False
    body = memoryview(bytearray(replica.manifest.chunk_length(chunk)))
    filled = _read_back(context, replica, chunk, body, passing=passing)
    if filled is Filled.SHORT:
        with replica.committing:  # the tree may just have moved to its place; while this is held it stays where it is
            filled = _read_back(context, replica, chunk, body, passing=passing)
    if filled is Filled.WHOLE and blake3(body).digest() == replica.manifest.digest(chunk):
        return True
    mended: list[int] = []
    if filled is Filled.SHORT:  # before the chunk is told as lost: a new copy of it would hide how short the file was
        try:
            mended = mend_tree(context, replica)
        except OSError as error:
            context.tracker.refused(error, context.clock.monotonic(), need_bytes=0)
    if chunk not in mended:
        drop(context, replica, [chunk])
    if replica.is_closed:
        raise NotHeldError("the deployment is not open here")
    return False


def _read_back(context: Context, replica: ModelReplica, chunk: int, body: memoryview, *, passing: bool) -> Filled:
    position = 0
    for segment in replica.manifest.segments(chunk):
        part = body[position : position + segment.length]
        position += segment.length
        try:
            descriptor = context.disk.open(replica.path(segment.file_index))
        except OSError as error:
            if error.errno in _TRANSIENT:
                raise
            return Filled.SHORT
        try:
            if not read_all(context.disk, descriptor, part, segment.offset, passing=passing):
                return Filled.SHORT
        except OSError as error:
            if error.errno in _TRANSIENT:
                raise
            return Filled.UNREADABLE
        finally:
            context.disk.close(descriptor)
    return Filled.WHOLE


def note_checked(context: Context, times: CheckTimes, chunk: int) -> None:
    """The chunk is right, or known not to be held."""
    times.times[chunk] = int(context.clock.wall())
    times.is_changed = True


class Scrubber:
    """Walks over all published models, one chunk after another, for ever. One thread at a time calls ``step``."""

    def __init__(self, context: Context, published: Callable[[], Sequence[ModelReplica]]) -> None:
        self._context = context
        self._published = published
        self._lock = Lock()
        self._times: dict[DeploymentId, CheckTimes] = {}
        self.scrubbed_bytes = 0

    def add(self, replica: ModelReplica) -> None:
        """From now on this model is looked at too."""
        times = load_times(self._context, replica)
        with self._lock:
            self._times.setdefault(replica.deployment, times)

    def discard(self, deployment: DeploymentId) -> None:
        """The model is being removed."""
        with self._lock:
            self._times.pop(deployment, None)

    def step(self, max_bytes: int) -> int:
        """Read back the chunks that have waited longest, at least one; bytes read, 0 when nothing is published."""
        done = 0
        while done < max_bytes or not done:
            chosen = self._choose()
            if chosen is None:
                break
            replica, times, chunk = chosen
            try:
                recheck(self._context, replica, chunk, passing=True)
            except (OSError, NotHeldError):
                break  # out of descriptors, or this model is being removed: later
            note_checked(self._context, times, chunk)
            times.cursor = (chunk + 1) % len(times.times)
            done += replica.manifest.chunk_length(chunk)
            if times.cursor == 0 or self._context.clock.wall() - times.saved_s >= SAVE_INTERVAL_S:
                save_times(self._context, replica, times)
        self.scrubbed_bytes += done
        return done

    def _choose(self) -> tuple[ModelReplica, CheckTimes, int] | None:
        """The model whose next chunk is oldest, and that chunk."""
        found: tuple[ModelReplica, CheckTimes, int] | None = None
        for replica in self._published():
            times = self._times.get(replica.deployment)
            if times is None or not times.times:
                continue
            if found is None or times.times[times.cursor] < found[1].times[found[2]]:
                found = (replica, times, times.cursor)
        return found

    def paced_step(self) -> float | None:
        """One chunk, and the seconds that it is worth at the set rate; None when there is nothing to read."""
        done = self.step(1)
        return done / self._context.settings.scrub_bytes_per_s if done else None

    def verify(self, replica: ModelReplica) -> Iterator[Checked]:
        """Read back everything, chunk by chunk; wrong ones are dropped as they are found, missing ones are not good.

        Raises NotFoundError when the model is removed meanwhile.
        """
        times = self._times.get(replica.deployment)
        done = 0
        for chunk in range(replica.manifest.chunk_count):
            try:
                is_good = recheck(self._context, replica, chunk, passing=True)
            except NotHeldError:
                label = f"{replica.manifest.name}@{replica.manifest.version}"
                raise NotFoundError(f"{label} was removed while it was verified") from None
            done += replica.manifest.chunk_length(chunk)
            if times is not None:
                note_checked(self._context, times, chunk)
            yield Checked(chunk, is_good, done, replica.manifest.bytes_total)

    def oldest_unchecked_age_s(self) -> int:
        """Of all published models; 0 when there is none."""
        with self._lock:
            oldest = min((times.oldest_s for times in self._times.values() if times.times), default=None)
        return 0 if oldest is None else max(0, int(self._context.clock.wall()) - oldest)

    def save(self) -> None:
        """Write the times of every model down."""
        for replica in self._published():
            times = self._times.get(replica.deployment)
            if times is not None:
                save_times(self._context, replica, times)
