"""Looking for rot: one chunk after a complaint, a model on request, all models slowly in the background.

What lives here: reading chunks back, comparing, and the times of the last comparison. What does not: the thread and its
rate (``background``), and fetching dropped chunks (ChunkLost tells the planner).

A chunk counts as checked when it was verified at its arrival and whenever it was read back right. Times are kept per
chunk (u32 seconds, in ``.manifests/<id>/checked``: magic, array, CRC-32) and written at the end of a pass, every ten
minutes during it, and at the close; losing the file costs some early checks.

Reading back opens the file by its path, which detects deleted and replaced files, and leaves the page cache unchanged.
A repair writes into the published file: a reader of the chunk has had wrong bytes since it rotted. Rejected: copy and
rename, because it needs the file's space again, and processes that have mapped the file keep the rotten one.
"""

from __future__ import annotations

import errno
import struct
import zlib
from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from enum import Enum
from threading import Lock

from blake3 import blake3
from msgspec import Struct

from gossipd.core.errors import NotFoundError
from gossipd.core.ids import DeploymentId
from gossipd.runtime.ports import NotHeldError
from gossipd.store.disk.disk import read_all, read_file, write_new_file
from gossipd.store.journal.claims import take_claims_back
from gossipd.store.models import layout
from gossipd.store.models.context import Context
from gossipd.store.models.repair import mend_beginnings, mend_tree
from gossipd.store.models.replica import ModelReplica

_MAGIC = b"gossipdC\x01"
SAVE_INTERVAL_S = 600
# A model that is read in less is read once in this time: without a pause it would never let its host rest.
PASS_S_MIN = 60.0
_TRANSIENT = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EINTR)


class Filled(Enum):
    """The outcome of reading a chunk: complete; a file is missing or short; the device failed."""

    WHOLE = "whole"
    SHORT = "short"
    UNREADABLE = "unreadable"


class Checked(Struct, frozen=True):
    """The result for one chunk. One that has not come yet is neither here nor good."""

    chunk: int
    is_good: bool
    is_here: bool = True


class CheckTimes:
    """When each chunk of a model was last known to be right."""

    def __init__(self, chunk_count: int, now_s: int) -> None:
        self.times = array("I", [now_s]) * chunk_count
        self.cursor = 0
        self.saved_s = now_s
        self.is_changed = False

    @property
    def oldest_s(self) -> int:
        return min(self.times, default=0)

    def to_bytes(self) -> bytes:
        body = _MAGIC + struct.pack("<II", len(self.times), self.cursor) + self.times.tobytes()
        return body + struct.pack("<I", zlib.crc32(body))

    def load(self, body: bytes) -> bool:
        """Read a file's content; False when it is damaged or about another model."""
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
    """From the file; without one, as if all chunks had been checked at publication."""
    times = CheckTimes(replica.manifest.chunk_count, replica.published_s or int(context.clock.wall()))
    with suppress(OSError):
        times.load(read_file(context.disk, layout.checked(replica.deployment), bytes_max=len(times.to_bytes())))
    return times


def save_times(context: Context, replica: ModelReplica, times: CheckTimes) -> None:
    """Write the file if anything changed; if the disk refuses, only the file is lost."""
    if not times.is_changed:
        return
    times.saved_s = int(context.clock.wall())
    with suppress(OSError):
        write_new_file(context.disk, layout.checked(replica.deployment), times.to_bytes())
        times.is_changed = False


def recheck(context: Context, replica: ModelReplica, chunk: int, *, passing: bool = False) -> bool:
    """Read a chunk back and compare; drop a wrong one and emit ChunkLost. True when it is held and right. Raises
    OSError or NotHeldError when the chunk could not be judged: out of descriptors, or the model was removed.
    """
    if chunk not in replica.held:
        return False
    body = memoryview(bytearray(replica.manifest.chunk_length(chunk)))
    filled = _read_back(context, replica, chunk, body, passing=passing)
    if filled is Filled.SHORT:
        with replica.committing:  # the tree may just have moved; with this lock it stays
            filled = _read_back(context, replica, chunk, body, passing=passing)
    if filled is Filled.WHOLE and blake3(body).digest() == replica.manifest.digest(chunk):
        mend_beginnings(context, replica, chunk)
        return True
    mended: list[int] = []
    if filled is Filled.SHORT:  # before ChunkLost: a new copy would hide the short file
        try:
            mended = mend_tree(context, replica)
        except OSError as error:
            context.tracker.refused(error, context.clock.monotonic(), need_bytes=0)
    if chunk not in mended:
        take_claims_back(context, replica, [chunk])
    if replica.is_closed:
        raise NotHeldError("the deployment is not open here")
    return False


def _read_back(context: Context, replica: ModelReplica, chunk: int, body: memoryview, *, passing: bool) -> Filled:
    position = 0
    for segment in replica.placement.segments(chunk):
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
    """The chunk is right, or known to be dropped."""
    times.times[chunk] = int(context.clock.wall())
    times.is_changed = True


class Scrubber:
    """Walks endlessly over all chunks of published models. Only one thread at a time calls ``step``."""

    def __init__(self, context: Context, published: Callable[[], Sequence[ModelReplica]]) -> None:
        self._context = context
        self._published = published
        self._lock = Lock()
        self._times: dict[DeploymentId, CheckTimes] = {}
        self.scrubbed_bytes = 0

    def add(self, replica: ModelReplica) -> None:
        times = load_times(self._context, replica)
        with self._lock:
            self._times.setdefault(replica.deployment, times)

    def discard(self, deployment: DeploymentId) -> None:
        with self._lock:
            self._times.pop(deployment, None)

    def step(self, max_bytes: int) -> int:
        """Read back the longest unchecked chunks, at least one. Returns the bytes read, 0 without published models."""
        done = 0
        while done < max_bytes or not done:
            chosen = self._choose()
            if chosen is None:
                break
            replica, times, chunk = chosen
            try:
                recheck(self._context, replica, chunk, passing=True)
            except (OSError, NotHeldError):
                break  # out of descriptors, or the model is being removed: later
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
        """Check one chunk. Returns the seconds that it takes at the set rate, None when there is nothing to read, or
        all of it was found right a moment ago.
        """
        chosen = self._choose()
        if chosen is None or self._is_new(chosen[1], chosen[2]):
            return None
        done = self.step(1)
        return done / self._context.settings.scrub_bytes_per_s if done else None

    def _is_new(self, times: CheckTimes, chunk: int) -> bool:
        """A time that is still to come was noted by a clock that was set back since: it says nothing."""
        return 0 <= int(self._context.clock.wall()) - times.times[chunk] < PASS_S_MIN

    def verify(self, replica: ModelReplica) -> Iterator[Checked]:
        """Check every wanted chunk that is here; wrong ones are dropped. Raises NotFoundError when the model is removed
        meanwhile."""
        times = self._times.get(replica.deployment)
        held = replica.held.snapshot()
        for chunk in replica.part.wanted:
            if chunk not in held:
                yield Checked(chunk, is_good=False, is_here=False)
                continue
            try:
                is_good = recheck(self._context, replica, chunk, passing=True)
            except NotHeldError:
                raise NotFoundError(f"{replica.manifest.label} was removed while it was verified") from None
            if times is not None:
                note_checked(self._context, times, chunk)
            yield Checked(chunk, is_good)

    def oldest_unchecked_age_s(self) -> int:
        """The oldest over all published models; 0 when there is none."""
        with self._lock:
            oldest = min((times.oldest_s for times in self._times.values() if times.times), default=None)
        return 0 if oldest is None else max(0, int(self._context.clock.wall()) - oldest)

    def save(self) -> None:
        for replica in self._published():
            times = self._times.get(replica.deployment)
            if times is not None:
                save_times(self._context, replica, times)
