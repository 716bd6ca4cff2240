"""Which calls of a disk have not ended: one that hangs refuses nothing, so nothing else tells of it.

What lives here: the disk that counts them. What does not: what a call that waits too long has for consequences
(``condition``), and when it is looked at (``daemon.store_calls``).

A call's age is the number of looks, a second apart, that have found it waiting, and no time: a process that was
stopped, or a machine that slept, must not accuse its disk.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec import Struct

from gossipd.store.disk.disk import Disk

LOOKS_MAX = 30  # devices and network file systems try again by themselves for some ten seconds
_LOOKS_MAX_OF = {
    "sync_everything": 600,  # a tenth of the memory may be other programs' dirty pages
    "copy_some": 300,  # up to 1 GiB
    "sync_data": 120, "sync_file": 120, "sync_directory": 120, "start_write_back": 120,
    "allocate": 120, "punch": 120, "truncate": 120, "remove_file": 120,  # of files of any size
}  # fmt: skip


_WORDS = {
    **dict.fromkeys(("write_some", "copy_some", "allocate", "punch", "truncate"), "a write"),
    **dict.fromkeys(("sync_everything", "sync_data", "sync_file", "sync_directory", "start_write_back"), "a sync"),
    "read_some": "a read", "remove_file": "a removal", "remove_directory": "a removal", "rename": "a rename",
}  # fmt: skip


class _Waiting(Struct):
    name: str
    looks: int = 0


class WaitingCalls:
    """A ``Disk``. Thread-safe."""

    def __init__(self, disk: Disk) -> None:
        """``look`` is to be called every second."""
        self._disk = disk
        self._waiting: dict[int, _Waiting] = {}  # by identity

    def __getattr__(self, name: str) -> Callable[..., Any]:
        """Of the disk; found once for each of its methods."""

        def call(*given: Any, **named: Any) -> Any:
            one = _Waiting(name)
            self._waiting[id(one)] = one
            try:
                return getattr(self._disk, name)(*given, **named)
            finally:
                del self._waiting[id(one)]

        setattr(self, name, call)
        return call

    def look(self) -> str:
        """Count a look. Returns, in words, a call that has waited too long since this one; empty: none. Each is told
        once, so that one that hangs for ever beside others that end does not count again and again."""
        found = ""
        for one in list(self._waiting.values()):
            one.looks += 1
            if one.looks == _looks_max(one.name):
                found = _words(one.name)
        return found

    def overdue(self) -> str:
        """The same of a call that has waited too long and waits still."""
        late = (_words(one.name) for one in list(self._waiting.values()) if one.looks >= _looks_max(one.name))
        return next(late, "")


def _looks_max(name: str) -> int:
    return _LOOKS_MAX_OF.get(name, LOOKS_MAX)


def _words(name: str) -> str:
    return _WORDS.get(name, "a look-up")
