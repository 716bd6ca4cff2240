"""Open files of all models: leased, counted, and a bounded number of idle ones.

What lives here: descriptors and their users. What does not: when a file is synced (``windows``).

A handle that is given back stays open for the next lease; above ``idle_max`` idle handles the one that is idle longest
is closed. A window keeps its lease on every file with unsynced writes, so that the sync uses the descriptor that wrote:
the kernel is certain to report a failed write-back there. ``detach`` makes later leases open the path again, after
somebody replaced or removed the file; current leases stay valid. Reading and writing have separate handles, because a
file system that has become read-only can still be read.
"""

from __future__ import annotations

import errno
from collections import OrderedDict
from threading import Lock
from typing import TypeAlias

from msgspec import Struct

from gossipd.core.ids import DeploymentId
from gossipd.runtime.system_refusals import note_refusal
from gossipd.store.disk.disk import Disk

Key: TypeAlias = tuple[DeploymentId, int, bool]


class Handle(Struct, eq=False):
    """One open file; ``Handles`` counts its users."""

    key: Key
    descriptor: int
    users: int = 1
    detached: bool = False


class Handles:
    """All open data files of a store. Thread-safe."""

    def __init__(self, disk: Disk, *, idle_max: int) -> None:
        self._disk = disk
        self._idle_max = idle_max
        self._lock = Lock()
        self._open: dict[Key, Handle] = {}
        self._idle: OrderedDict[Key, Handle] = OrderedDict()

    def lease(self, deployment: DeploymentId, file_index: int, path: str, *, write: bool = False) -> Handle:
        """A handle of the file at ``path``, opened if needed. Raises OSError."""
        key = (deployment, file_index, write)
        with self._lock:
            handle = self._open.get(key)
            if handle is not None:
                handle.users += 1
                self._idle.pop(key, None)
                return handle
        opened = Handle(key, self._open_file(path, write))
        with self._lock:
            handle = self._open.setdefault(key, opened)
            if handle is opened:
                return opened
            handle.users += 1  # another thread was faster
            self._idle.pop(key, None)
        self._disk.close(opened.descriptor)
        return handle

    def again(self, handle: Handle) -> Handle:
        """Add a user to a handle that is leased already."""
        with self._lock:
            handle.users += 1
        return handle

    def give_back(self, handle: Handle) -> None:
        """End a lease; the descriptor may be closed from now on."""
        surplus: list[Handle] = []
        with self._lock:
            handle.users -= 1
            if handle.users:
                return
            if handle.detached:
                surplus.append(handle)
            else:
                self._idle[handle.key] = handle
                while len(self._idle) > self._idle_max:
                    surplus.append(self._forget(next(iter(self._idle.values()))))
        self._close(surplus)

    def detach(self, deployment: DeploymentId, file_index: int | None = None) -> None:
        """Make later leases of this file, or of all files of the model, open the path again."""
        surplus: list[Handle] = []
        with self._lock:
            for key, handle in list(self._open.items()):
                if key[0] == deployment and file_index in (None, key[1]):
                    del self._open[key]
                    handle.detached = True
                    if self._idle.pop(key, None) is not None:
                        surplus.append(handle)
        self._close(surplus)

    def close_idle(self) -> None:
        """Close all idle handles: when the process is out of descriptors, and at the end."""
        with self._lock:
            surplus = [self._forget(handle) for handle in list(self._idle.values())]
        self._close(surplus)

    @property
    def count(self) -> int:
        return len(self._open)

    def _open_file(self, path: str, write: bool) -> int:
        try:
            return self._disk.open(path, write=write)
        except OSError as error:
            if error.errno not in (errno.EMFILE, errno.ENFILE):
                raise
            note_refusal(error)
        self.close_idle()
        return self._disk.open(path, write=write)

    def _forget(self, handle: Handle) -> Handle:
        del self._idle[handle.key], self._open[handle.key]
        return handle

    def _close(self, handles: list[Handle]) -> None:
        for handle in handles:
            self._disk.close(handle.descriptor)
