"""The condition of the disk: whether it takes writes, how a refused write is named, and when to try again.

What lives here: the states, names for the kernel's refusals, the intervals between probes. What does not: the probe
itself (``maintenance`` writes it), and the consequences: the daemon stops fetching and goes on serving.

Any refused write sets the condition. From then on every ``put`` is refused at once, with the same code, before it
touches the disk. A probe (create, write, sync, remove) runs every second; the first that succeeds sets OK. A full disk
is OK again only when all that the open models need is free; otherwise a little freed space would start and stop every
fetch of the cluster. A failed sync doubles the interval, up to a minute, because a device that fails one write in a
thousand passes most probes.

Source: libtorrent ("upload mode" on ENOSPC and EROFS). Clients that latch the error instead stay at 99 % after space
was freed (qBittorrent 15584, kubo 5300).
"""

from __future__ import annotations

import errno
import resource
from collections.abc import Callable
from contextlib import suppress
from enum import Enum
from threading import Lock

from msgspec import Struct

from gossipd.core.ids import DeploymentId
from gossipd.core.units import show_bytes, show_count
from gossipd.runtime.ports import StoreWriteError
from gossipd.runtime.system_refusals import note_refusal
from gossipd.store.disk.disk import Disk, NotAFileError, Space
from gossipd.store.errors import NoSpaceError, StoreSilentError

PROBE_INTERVAL_S = 1.0  # a full disk must go on within 10 s of being freed
PROBE_INTERVAL_S_MAX = 60.0
PROBE_BYTES = 4096
_PLENTY_BYTES = 16 * 1024 * 1024  # more than a few chunks that came at once


class StoreHealth(Enum):
    """What the disk refuses, in the words of ``gossipd status``."""

    OK = "ok"
    FULL = "full"
    READ_ONLY = "read_only"
    FAILING = "failing"
    HANDLES = "handles"  # the process is out of file descriptors
    SILENT = "silent"  # a call does not end


class StoreCondition(Struct, frozen=True):
    """The state of the disk. ``need_bytes`` is what the open models still lack."""

    health: StoreHealth = StoreHealth.OK
    code: str = ""
    sentence: str = ""
    need_bytes: int = 0
    free_bytes: int = 0


FILE_SIZE = "E_STORE_FILE_SIZE"
_FILE_SIZE_WORDS = (
    "a file of the model is larger than this daemon may write: raise its limit (LimitFSIZE in the unit, ulimit -f), or "
    "put the store on a file system that takes such files"
)
_NAMES = {
    errno.ENOSPC: (StoreHealth.FULL, "E_NO_SPACE", "the disk is full"),
    errno.EDQUOT: (StoreHealth.FULL, "E_NO_SPACE", "the disk quota is used up"),
    errno.EROFS: (StoreHealth.READ_ONLY, "E_STORE_READ_ONLY", "the file system has become read-only"),
    errno.EACCES: (StoreHealth.READ_ONLY, "E_STORE_ACCESS", "writing is not permitted"),
    errno.EPERM: (StoreHealth.READ_ONLY, "E_STORE_ACCESS", "writing is not permitted"),
    errno.EFBIG: (StoreHealth.FAILING, FILE_SIZE, _FILE_SIZE_WORDS),
    errno.EMFILE: (StoreHealth.HANDLES, "E_STORE_HANDLES", "the process is out of file descriptors"),
    errno.ENFILE: (StoreHealth.HANDLES, "E_STORE_HANDLES", "the system is out of file descriptors"),
}
_OTHER = (StoreHealth.FAILING, "E_STORE_IO", "the disk failed")
SILENT_CURE = (
    "see the kernel's log, the device, or the server of a network file system; all goes on by itself when it answers"
)


def silent_words(kind: str) -> str:
    """Of a disk whose calls of this kind do not end."""
    return f"the disk does not answer {kind}: {SILENT_CURE}"


def fault_of_path(error: OSError) -> tuple[str, str] | None:
    """The code and the sentence, with its cure, of an error that says nothing about the disk: somebody has put
    something else in the place of a file or directory of ours. None for the disk's own."""
    path = error.filename or "a path"
    if error.errno == errno.ELOOP:
        return "E_PATH_SYMLINK", f"{path} is a symlink; remove it"
    if isinstance(error, NotAFileError):
        return "E_PATH_KIND", f"{path} is {error.strerror}; move it away"
    if error.errno == errno.ENOTDIR:
        return "E_PATH_KIND", f"{path} is no directory, or lies under what is none; move that away"
    return None


def fault_of_model(error: OSError, largest_bytes: int) -> tuple[str, str] | None:
    """The same of an error that concerns one model, which waits while the others go on. ``largest_bytes``: of its
    files."""
    if error.errno != errno.EFBIG:
        return None
    limit_bytes, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
    limit = "the file system's limit" if limit_bytes == resource.RLIM_INFINITY else f"at most {show_bytes(limit_bytes)}"
    return FILE_SIZE, f"{_FILE_SIZE_WORDS} (the largest has {show_bytes(largest_bytes)}; {limit})"


def room_words(error: OSError, space: Space, need_bytes: int) -> str:
    """The end of a sentence about a disk that is full: of what."""
    if error.errno == errno.EDQUOT:
        return ": what is free on the file system is not this user's; raise the quota, or delete files"
    if space.free_files == 0:
        return ": no inode is left, so no file can be made; delete files, or make the file system with more inodes"
    if space.free_bytes > need_bytes + _PLENTY_BYTES:
        free = f"{space.free_bytes} bytes are free"
        return f", though {free}: a quota on the directory is used up, or the file system's own books are full"
    need = f"need {need_bytes} bytes, " if need_bytes else ""
    return f": {need}{space.free_bytes} are free"


class ConditionTracker:
    """Owner of the condition. Thread-safe; ``on_change`` is called without its lock."""

    def __init__(self, disk: Disk, *, on_change: Callable[[StoreCondition], None]) -> None:
        self._disk = disk
        self._on_change = on_change
        self._lock = Lock()
        self.condition = StoreCondition()
        self._seen = Space(0, 0)
        self._waiting: dict[DeploymentId, int] = {}
        self._interval_s = PROBE_INTERVAL_S
        self.probe_at: float | None = None
        """When the next probe is due; None while all is well."""
        self._space()

    def check(self) -> None:
        """Raises StoreWriteError while writes are refused."""
        condition = self.condition
        if condition.health is not StoreHealth.OK:
            raise StoreWriteError(condition.sentence, code=condition.code)

    def refused(self, error: OSError, now: float, *, need_bytes: int, path: str = "") -> StoreWriteError:
        """The kernel refused a write: set the condition. Returns the error to raise."""
        note_refusal(error)
        health, code, words = _NAMES.get(error.errno or 0, _OTHER)
        space = self._space()
        if error.errno == errno.ENOSPC and space.free_files == 0:
            code = "E_NO_INODES"
        detail = f" ({error.strerror or error}{', ' + path if path else ''})"
        if (fault := fault_of_path(error)) is not None:  # in the way of the store's own books
            code, words, detail = *fault, ""
        if health is StoreHealth.FULL:
            detail += room_words(error, space, need_bytes)
        self._set(StoreCondition(health, code, words + detail, need_bytes, space.free_bytes), now)
        return StoreWriteError(words + detail, code=code)

    def silent(self, kind: str, now: float) -> None:
        """Calls of a kind do not end. Until the disk answers a probe writes are refused at once, so that no more
        threads wait."""
        free_bytes = self._seen.free_bytes
        condition = StoreCondition(StoreHealth.SILENT, StoreSilentError.code, silent_words(kind), free_bytes=free_bytes)
        self._set(condition, now)

    def sync_failed(self, error: OSError, now: float, *, chunk_count: int) -> None:
        """A sync failed: its chunks are lost, and the next probe waits longer."""
        with self._lock:
            self._interval_s = min(self._interval_s * 2, PROBE_INTERVAL_S_MAX)
        health, code, words = _NAMES.get(error.errno or 0, _OTHER)
        sentence = f"{words} ({error.strerror or error} at a sync); fetched again: {show_count(chunk_count, 'chunk')}"
        self._set(StoreCondition(health, code, sentence, 0, self._space().free_bytes), now)

    def sync_succeeded(self) -> None:
        """A window is durable: probe at the shortest interval again."""
        self._interval_s = PROBE_INTERVAL_S

    def no_space(self, error: NoSpaceError, deployment: DeploymentId, now: float) -> None:
        """A model was refused before its first byte. Other models go on; ``fitting`` says when it would fit."""
        with self._lock:
            self._waiting[deployment] = error.need_bytes
            if self.probe_at is None:
                self.probe_at = now + PROBE_INTERVAL_S

    def forget(self, deployment: DeploymentId) -> None:
        """The model fits, or is no longer wanted."""
        with self._lock:
            self._waiting.pop(deployment, None)

    def fitting(self, free_bytes: int) -> list[DeploymentId]:
        """Refused models that would fit now; each is returned once."""
        with self._lock:
            found = [deployment for deployment, need in self._waiting.items() if need <= free_bytes]
            for deployment in found:
                del self._waiting[deployment]
        return found

    def probed(self, error: OSError | None, now: float, *, need_bytes: int, free_bytes: int) -> None:
        """The outcome of a probe. ``need_bytes``: what the open models still need and have not reserved."""
        if error is not None:
            self.refused(error, now, need_bytes=need_bytes)
            return
        if self.condition.health is StoreHealth.FULL and free_bytes < need_bytes:
            words = f"the disk is full: need {need_bytes} bytes, {free_bytes} are free"
            self._set(StoreCondition(StoreHealth.FULL, "E_NO_SPACE", words, need_bytes, free_bytes), now)
            return
        self._set(StoreCondition(), now)

    def _set(self, condition: StoreCondition, now: float) -> None:
        with self._lock:
            before, self.condition = self.condition, condition
            waits = condition.health is not StoreHealth.OK or self._waiting
            self.probe_at = now + self._interval_s if waits else None
        if (before.health, before.code) != (condition.health, condition.code):
            self._on_change(condition)

    def free_bytes(self) -> int:
        """Free bytes of the file system at the last look; 0 when the kernel did not say. Waits for nothing."""
        return self._seen.free_bytes

    def space(self) -> Space:
        """The space of the file system now. Raises OSError: the kernel does not say."""
        try:
            self._seen = self._disk.space()
        except OSError:
            self._seen = Space(0, 0)
            raise
        return self._seen

    def _space(self) -> Space:
        with suppress(OSError):
            self.space()
        return self._seen
