"""The pool of receive buffers: it bounds the memory of a daemon, whatever the model and the number of peers.

What lives here: leases of reusable memory, and reservations for others (obstore). What does not: the content.

How it works. Buffers are anonymous private mappings (page aligned, returned to the system when dropped) in classes of
powers of two, and of an eighth more: so much longer is the longest chunk with borders at tensors. A request takes a
free buffer of its class; else a new one while the total stays within ``pool_bytes``; else free buffers of other classes
are dropped; else the caller waits. Waiters are served in order of arrival, so that small requests do not starve a large
one, but for reservations, which are bounded by those who make them and go first; each waits for its own condition, so
that memory that comes back wakes no thread that it is not for. The view of a released lease raises when it is touched:
a use after release never sees another chunk's bytes.

Freed reservations may stay resident, because glibc keeps memory in its arenas. So the pool remembers how much that can
be, and trims the heap before new buffers would exceed the bound. Memory kept by one arena is of no use to another, so a
daemon has only two arenas (``limit_arenas``).

Rejected: a fixed mmap threshold (mallopt(3)), because each read then faults in all its pages; one bytearray per chunk,
because glibc raises that threshold when large blocks are freed and keeps the memory; a slab cut into chunks, because
models differ in chunk size.
"""

from __future__ import annotations

import ctypes
import mmap
import threading
import time
from collections import deque
from collections.abc import Callable

from msgspec import Struct

from gossipd.core.errors import LocalError

# Half the smallest default chunk (256 KiB): smaller buffers would only add classes.
CLASS_BYTES_MIN = 128 * 1024
_ARENAS_MAX = 2  # with one arena all threads would wait for it
_M_ARENA_MAX = -8  # malloc.h, glibc
# The heap may keep a quarter of the pool beyond it; with less, reading and fetching at once would trim all the time.
_HEAP_SHARE = 4
_ROOM_SHARE = 4  # for reservations, where a holder of a buffer waits for them: as much as streams may have


class PoolExhaustedError(LocalError):
    """No buffer became free in time. Fault: this host (``pool_bytes`` is the limit). State: unchanged. Retry: later."""

    code = "E_POOL"


class PoolStatistics(Struct, frozen=True):
    """A snapshot. ``waited_s``: summed over all callers; ``waiting``: callers that wait now."""

    pool_bytes: int
    allocated_bytes: int
    leased_bytes: int
    waited_s: float
    waiting: int


class _Waiter(Struct, eq=False):
    """A caller in the line, the bytes that it waits for, and those that it leaves to reservations."""

    size: int
    spare: int
    changed: threading.Condition


class Lease:
    """Memory for one chunk. ``view`` has exactly the requested length and is the holder's until ``release``."""

    __slots__ = ("_buffer", "_pool", "_size", "view")

    def __init__(self, pool: BufferPool, size: int, buffer: mmap.mmap | None, nbytes: int) -> None:
        self._pool = pool
        self._size = size
        self._buffer = buffer
        self.view = memoryview(b"") if buffer is None else memoryview(buffer)[:nbytes]

    def release(self) -> None:
        """Give the memory back; a second call does nothing."""
        size, self._size = self._size, 0
        if size:
            self.view.release()
            buffer, self._buffer = self._buffer, None
            self._pool._take_back(size, buffer)

    def __enter__(self) -> Lease:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


class BufferPool:
    """At most ``pool_bytes`` in leases, reservations and free buffers together. Thread-safe. ``pool_bytes``: the bound,
    also for a single request. ``trim_heap``: returns free memory of the process's heap to the system.
    """

    def __init__(self, pool_bytes: int, *, trim_heap: Callable[[], None] | None = None) -> None:
        assert pool_bytes >= CLASS_BYTES_MIN, "a pool holds at least one buffer"
        self._pool_bytes = pool_bytes
        self._trim_heap = trim_heap or _trim_heap
        self._reserved_bytes = 0
        self._heap_bytes = 0  # the most that was reserved at once since the last trim
        self._lock = threading.RLock()  # entered without a condition, whose way in is two more calls of Python
        self._free: dict[int, list[mmap.mmap]] = {}
        self._free_bytes = 0
        self._leased_bytes = 0
        self._queue: deque[_Waiter] = deque()
        self._waited_s = 0.0

    def acquire(
        self, nbytes: int, timeout_s: float | None = None, *, gave_up: Callable[[], bool] | None = None,
        leaves_room: bool = False,
    ) -> Lease:  # fmt: skip
        """A buffer of ``nbytes``; waits until there is room. ``timeout_s``: how long to wait, in seconds; None for
        ever. ``gave_up``: called before waiting and after every ``wake``; true ends the wait. ``leaves_room``: the
        holder needs reservations before it can release, so a quarter of the pool must stay for them. Raises
        PoolExhaustedError: no room in time, or ``gave_up``.
        """
        size = self._class_of(nbytes)
        with self._lock:
            spare = min(self._pool_bytes // _ROOM_SHARE, self._pool_bytes - size) if leaves_room else 0
            self._wait_for_room(size, timeout_s, gave_up, spare=spare)
            free = self._free.get(size)
            buffer = free.pop() if free else None
            if buffer is not None:
                self._free_bytes -= size
            self._shrink_free()
            is_over = buffer is None and self._heap_is_over()
        if is_over:
            self._trim_heap()
        if buffer is None:
            buffer = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        return Lease(self, size, buffer, nbytes)

    def reserve(self, nbytes: int, *, gave_up: Callable[[], bool] | None = None) -> Lease:
        """Room for memory that others allocate; the lease's view is empty. It passes those who wait for buffers: their
        holders may wait for it. Raises as ``acquire``."""
        assert 0 < nbytes <= self._pool_bytes, f"{nbytes} bytes do not fit a pool of {self._pool_bytes}"
        with self._lock:
            self._wait_for_room(nbytes, None, gave_up, is_first=True)
            self._reserved_bytes += nbytes
            self._heap_bytes = max(self._heap_bytes, self._reserved_bytes)
            self._shrink_free()
        return Lease(self, nbytes, None, 0)

    def wake(self) -> None:
        """Make every waiter call its ``gave_up`` again."""
        with self._lock:
            for waiter in self._queue:
                waiter.changed.notify()

    def statistics(self) -> PoolStatistics:
        with self._lock:
            return PoolStatistics(
                pool_bytes=self._pool_bytes,
                allocated_bytes=self._leased_bytes + self._free_bytes,
                leased_bytes=self._leased_bytes,
                waited_s=self._waited_s,
                waiting=len(self._queue),
            )

    def _class_of(self, nbytes: int) -> int:
        assert 0 < nbytes <= self._pool_bytes, f"{nbytes} bytes do not fit a pool of {self._pool_bytes}"
        size = 1 << (nbytes - 1).bit_length()
        if nbytes <= size // 2 + size // 16:
            size = size // 2 + size // 16
        return min(max(CLASS_BYTES_MIN, size), self._pool_bytes)

    def _wait_for_room(
        self, size: int, timeout_s: float | None, gave_up: Callable[[], bool] | None, *, spare: int = 0,
        is_first: bool = False,
    ) -> None:  # fmt: skip
        try:
            if (self._queue and not is_first) or not self._has_room(size, spare):
                self._wait_in_line(_Waiter(size, spare, threading.Condition(self._lock)), timeout_s, gave_up, is_first)
            self._leased_bytes += size
        finally:
            self._wake_first()  # the next of the line, also where this caller has given up

    def _has_room(self, size: int, spare: int) -> bool:
        """``spare``: must be left for reservations, those that there are among them."""
        buffers = self._leased_bytes - self._reserved_bytes
        return buffers + size + max(spare, self._reserved_bytes) <= self._pool_bytes

    def _wait_in_line(
        self, waiter: _Waiter, timeout_s: float | None, gave_up: Callable[[], bool] | None, is_first: bool
    ) -> None:  # fmt: skip
        if is_first:
            self._queue.appendleft(waiter)
        else:
            self._queue.append(waiter)
        started = time.monotonic()
        try:
            while self._queue[0] is not waiter or not self._has_room(waiter.size, waiter.spare):
                left = None if timeout_s is None else started + timeout_s - time.monotonic()
                if (left is not None and left <= 0) or (gave_up is not None and gave_up()):
                    raise PoolExhaustedError(
                        f"no buffer of {waiter.size} bytes became free; pool_bytes is {self._pool_bytes}, and is in use"
                    )
                waiter.changed.wait(left)
        finally:
            self._queue.remove(waiter)
            self._waited_s += time.monotonic() - started

    def _wake_first(self) -> None:
        """Wake the first of the line if there is room for it."""
        if self._queue and self._has_room(self._queue[0].size, self._queue[0].spare):
            self._queue[0].changed.notify()

    def _shrink_free(self) -> None:
        """Drop free buffers, largest first, until all fits. ``close`` would raise while somebody holds a slice."""
        if self._leased_bytes + self._free_bytes <= self._pool_bytes:
            return
        for size in sorted(self._free, reverse=True):
            buffers = self._free[size]
            while buffers and self._leased_bytes + self._free_bytes > self._pool_bytes:
                buffers.pop()
                self._free_bytes -= size

    def _heap_is_over(self) -> bool:
        """Whether the heap keeps too much freed memory; true once, as the caller trims it."""
        kept_bytes = self._heap_bytes - self._reserved_bytes
        most_bytes = self._pool_bytes + self._pool_bytes // _HEAP_SHARE
        if kept_bytes == 0 or self._leased_bytes + self._free_bytes + kept_bytes <= most_bytes:
            return False
        self._heap_bytes = self._reserved_bytes
        return True

    def _take_back(self, size: int, buffer: mmap.mmap | None) -> None:
        with self._lock:
            self._leased_bytes -= size
            if buffer is None:
                self._reserved_bytes -= size
            else:
                self._free.setdefault(size, []).append(buffer)
                self._free_bytes += size
            self._wake_first()


def _trim_heap() -> None:
    """malloc_trim(3) of all arenas, without the GIL. Other C libraries keep nothing back."""
    if (trim := getattr(ctypes.CDLL(None), "malloc_trim", None)) is not None:
        trim(0)


def limit_arenas() -> None:
    """mallopt(3): all threads allocate from two arenas. Call it before there are threads; glibc only."""
    if (set_option := getattr(ctypes.CDLL(None), "mallopt", None)) is not None:
        set_option(_M_ARENA_MAX, _ARENAS_MAX)
