"""Which file systems can hold a store, and of which the kernel tells every change.

What lives here: asking the kernel, and the lists of file systems. What does not: where the store is, and whether
the operator insists (``config.places``).

A memory file system loses the models with the power, and also the record of trusted versions that keeps old manifests
out. On a network file system a sync may end in a server's memory, locks may be local to each host, and all hosts load
the link that gossipd relieves. Without symbolic links there is no ``current``. Everything else is accepted: a list of
good file systems would refuse every new one.
"""

from __future__ import annotations

import os
from pathlib import Path

from gossipd.store.disk.syscalls import file_system_magic

_MEMORY = "is in memory: a reboot would lose the models and which versions are trusted"
_NETWORK = "is on the network: a sync there does not make anything durable on this host"
_LINKLESS = "has no symbolic links, which NAME/current is"

# Numbers from include/uapi/linux/magic.h, else from the file system's own super.c (statfs(2) lists those too).
_UNFIT = {
    0x01021994: ("tmpfs", _MEMORY),
    0x858458F6: ("ramfs", _MEMORY),
    0x6969: ("NFS", _NETWORK),
    0x517B: ("SMB", _NETWORK),
    0xFF534D42: ("CIFS", _NETWORK),
    0xFE534D42: ("SMB2", _NETWORK),
    0x01021997: ("9p", _NETWORK),
    0x5346414F: ("AFS", _NETWORK),
    0x00C36400: ("CephFS", _NETWORK),
    0x0BD00BD0: ("Lustre", _NETWORK),
    0x4D44: ("FAT", _LINKLESS),
    0x2011BAB0: ("exFAT", _LINKLESS),
}
# ext, XFS, Btrfs, ZFS, F2FS, bcachefs, overlayfs, tmpfs. No other host changes what is on them.
_LOCAL = frozenset({0xEF53, 0x58465342, 0x9123683E, 0x2FC12FC1, 0xF2F52010, 0xCA451A4E, 0x794C7630, 0x01021994})


def unfit(magic: int) -> str | None:
    """Why this kind of file system cannot hold a store, as words that follow a path; None when it can."""
    found = _UNFIT.get(magic)
    return None if found is None else f"lies on {found[0]}, which {found[1]}"


def why_unfit(path: Path) -> str | None:
    """``unfit`` for the place where ``path`` is or would be made. Raises OSError when the kernel does not say."""
    return unfit(_magic(path))


def tells_changes(path: Path) -> bool:
    """Whether the kernel tells a watcher of ``path``, or of where it would be made, all that changes there. False also
    when the kernel does not say."""
    try:
        return _magic(path) in _LOCAL
    except OSError:
        return False


def _magic(path: Path) -> int:
    there = next(place for place in (path, *path.parents) if place.exists())
    descriptor = os.open(there, os.O_PATH | os.O_CLOEXEC)
    try:
        return file_system_magic(descriptor)
    finally:
        os.close(descriptor)
