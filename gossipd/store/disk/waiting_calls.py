"""Whether a disk's calls end: one that hangs refuses nothing, so nothing else tells of it.

What lives here: the disk that counts them. What does not: what a disk that does not answer has for consequences
(``condition``), and when it is looked at (``daemon.store_calls``).

Calls of one kind are looked at together: where writes wait and none has ended for so many looks, a second apart, writes
do not end. One that waits beside others that end is behind them on a slow disk. It counts looks and no time: a process
that was stopped, or a machine that slept, must not accuse its disk.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from msgspec import Struct

from gossipd.store.disk.disk import Disk

LOOKS_MAX = 30  # devices and network file systems try again by themselves for some ten seconds
_LOOKS_MAX_OF = {
    "sync_everything": 600,  # a tenth of the memory may be other programs' dirty pages
    "sync_data": 120, "sync_file": 120, "sync_directory": 120, "start_write_back": 120,
    "allocate": 120, "punch": 120, "truncate": 120, "remove_file": 120,  # of files of any size
}  # fmt: skip
READ, _WRITE = "a read", "a write"
_SLOW_LOOKS = 3  # longer than a stall takes to be told
_KINDS = {
    **dict.fromkeys(("write_some", "allocate", "punch", "truncate"), _WRITE),
    **dict.fromkeys(("sync_everything", "sync_data", "sync_file", "sync_directory", "start_write_back"), "a sync"),
    "read_some": READ, "remove_file": "a removal", "remove_directory": "a removal", "rename": "a rename",
}  # fmt: skip
_OTHER_KIND = "a look-up"
_OF_TWO_PLACES = "copy_some"  # not counted: it may wait for the directory of a job, on another file system


class _Kind(Struct):
    """The calls of one kind: those that wait, by identity, with how many looks may pass without an end."""

    waiting: dict[int, int]
    has_ended: bool = False  # one of them, since the last look
    looks: int = 0  # in a row at which some waited and none had ended

    @property
    def is_late(self) -> bool:
        return bool(self.waiting) and self.looks >= max(list(self.waiting.values()), default=LOOKS_MAX)


class WaitingCalls:
    """A ``Disk``. Thread-safe."""

    def __init__(self, disk: Disk) -> None:
        """``look`` is to be called every second."""
        self._disk = disk
        self._kinds = {kind: _Kind({}) for kind in (*dict.fromkeys(_KINDS.values()), _OTHER_KIND)}

    def __getattr__(self, name: str) -> Callable[..., Any]:
        """Of the disk; found once for each of its methods."""
        if name == _OF_TWO_PLACES:
            return cast(Callable[..., Any], getattr(self._disk, name))
        kind, looks_max = self._kinds[_KINDS.get(name, _OTHER_KIND)], _LOOKS_MAX_OF.get(name)

        def call(*given: Any, **named: Any) -> Any:
            one = object()
            kind.waiting[id(one)] = looks_max or LOOKS_MAX
            try:
                return getattr(self._disk, name)(*given, **named)
            finally:
                del kind.waiting[id(one)]
                kind.has_ended = True

        setattr(self, name, call)
        return call

    def look(self) -> str:
        """Count a look. Returns a kind of calls, in words, that do not end since this one; empty: none."""
        found = ""
        for name, kind in self._kinds.items():
            was_late = kind.is_late
            kind.looks = kind.looks + 1 if kind.waiting and not kind.has_ended else 0
            kind.has_ended = False
            if kind.is_late and not was_late:
                found = name
        return found

    def is_slow(self) -> bool:
        """Whether writes wait of which none has ended for some looks."""
        return self._kinds[_WRITE].looks >= _SLOW_LOOKS

    def late(self) -> str:
        """A kind of calls that do not end, in words; empty: none."""
        return next((name for name, kind in self._kinds.items() if kind.is_late), "")
