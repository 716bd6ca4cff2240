"""Syncing the file system as a whole, where more was written than is kept open.

syncfs(2) tells of a write that failed once, to whoever asks first. So a failure is counted here, and everybody who
wrote something before it must take his bytes as lost, whatever his own sync says.
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
        """How often it has failed. One more than when a write began: that write may be lost."""

    def run(self) -> None:
        """Raises OSError."""
        with self._lock:  # whoever comes second must not return before the first has counted its failure
            try:
                self._disk.sync_everything()
            except OSError:
                self.failures += 1
                raise
