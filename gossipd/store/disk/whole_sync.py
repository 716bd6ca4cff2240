"""Syncing the whole file system, when a window wrote to more files than are kept open.

The kernel reports a failed write to only one caller of syncfs(2). So failures are counted here: every window that had
writes before a failure must drop them, even if its own sync succeeds.
"""

from __future__ import annotations

from threading import Lock

from gossipd.store.disk.disk import Disk


class WholeSync:
    """Shared by all models of a store. Thread-safe."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._lock = Lock()
        self.failures = 0
        """Failures so far. If the count has grown since a write began, that write may be lost."""

    def run(self) -> None:
        """Raises OSError."""
        with self._lock:  # a second caller must not return before the first has counted its failure
            try:
                self._disk.sync_everything()
            except OSError:
                self.failures += 1
                raise
