"""A disk in memory that falls ill on request: refuses, fails, rots.

What lives here: ailments. What does not: what a crash leaves (``MemoryDisk``), when an ailment begins (``faults``).
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from random import Random

from gossipd.store.disk.disk import Space
from tests.gossipd.store.memory_disk import File, MemoryDisk

_WRITES = frozenset({"write", "copy", "allocate", "truncate", "create", "make_directory"})
_SYNCS = frozenset({"sync_data", "sync_file", "sync_directory", "sync_everything"})
_TOTAL_BYTES = 1 << 30


class SickDisk(MemoryDisk):
    """``ailments`` maps the kind of a fault to how likely a call meets it; ``struck`` hears of each that did."""

    def __init__(self, random: Random, struck: Callable[[str], None]) -> None:
        super().__init__(total_bytes=_TOTAL_BYTES)
        self._random = random
        self._struck = struck
        self.ailments: dict[str, float] = {}
        self.read_failures = 0
        self.before = self._ail

    def killed(self) -> SickDisk:
        """After a kill of the process."""
        super().killed()
        self.before = self._ail
        return self

    def after_power_cut(self) -> SickDisk:
        """What the device has, and of the rest each write or rename with an even chance."""
        after = SickDisk(self._random, self._struck)
        after.root = self.cut(lambda: self._random.random() < 0.5, self._random).root
        after.ailments = self.ailments
        after.can_allocate = self.can_allocate
        after.read_failures = self.read_failures
        return after

    def read_some(self, descriptor: int, into: memoryview, offset: int, *, passing: bool = False) -> int:
        """See Disk."""
        if "read_eio" in self.ailments and self._meets("read_eio"):
            self.read_failures += 1
            raise OSError(errno.EIO, "simulated: bad sector")
        return super().read_some(descriptor, into, offset, passing=passing)

    def space(self) -> Space:
        """See Disk."""
        return Space(0, _TOTAL_BYTES) if "disk_full" in self.ailments else Space(_TOTAL_BYTES, _TOTAL_BYTES)

    def rot(self, path: str, offset: int) -> bool:
        """Flip a bit at rest, in the cache and on the device; False when there is no such byte."""
        try:
            file = self.file(path)
        except (KeyError, OSError):
            return False
        if offset >= len(file.data) or offset >= len(file.device):
            return False
        file.data[offset] ^= 1
        file.device[offset] ^= 1
        return True

    def look(self, path: str) -> File | None:
        """The file, for the oracle."""
        try:
            return self.file(path)
        except (KeyError, OSError):
            return None

    def _call(self, name: str, path: str) -> None:
        self.before(name, 0)  # no list of calls: a minute of fifty hosts makes many

    def _ail(self, name: str, number: int) -> None:
        if not self.ailments:
            return
        if name in _WRITES:
            if "disk_full" in self.ailments and self._meets("disk_full"):
                raise OSError(errno.ENOSPC, "simulated: no space left on device")
            if "write_eio" in self.ailments and self._meets("write_eio"):
                raise OSError(errno.EIO, "simulated: write failed")
        elif name in _SYNCS and "sync_eio" in self.ailments and self._meets("sync_eio"):
            raise OSError(errno.EIO, "simulated: sync failed")

    def _meets(self, kind: str) -> bool:
        share = self.ailments[kind]
        if share < 1 and self._random.random() >= share:
            return False
        self._struck(kind)
        return True
