"""On which file systems a store can keep its word.

What lives here: asking the kernel, and the list of those that cannot. What does not: where the store is to be, and
whether an operator insists (``config.places``).

A store on a memory file system is gone with the power, and with it which versions this host has trusted, which is
how old manifests are kept out. On a network file system a sync may reach a server's memory only, locks may be each
host's own, and all hosts would load the very link that gossipd is there to relieve. Without symbolic links there is
no ``current``. What is not listed is taken: a list of the good ones would refuse every new file system.
"""

from __future__ import annotations

import os
from pathlib import Path

from gossipd.store.disk.syscalls import file_system_magic

_MEMORY = "is in memory: a reboot would lose the models and which versions are trusted"
_NETWORK = "is on the network: a sync there does not make anything durable on this host"
_LINKLESS = "has no symbolic links, which NAME/current is"

# include/uapi/linux/magic.h and, for those that keep it to themselves, their own super.c (statfs(2) lists them too).
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


def unfit(magic: int) -> str | None:
    """Why a file system of this number cannot hold a store, in words that follow a path; None when it can."""
    found = _UNFIT.get(magic)
    return None if found is None else f"lies on {found[0]}, which {found[1]}"


def why_unfit(path: Path) -> str | None:
    """``unfit`` of where ``path`` is, or would be made. Raises OSError when not even that can be asked."""
    there = next(place for place in (path, *path.parents) if place.exists())
    descriptor = os.open(there, os.O_PATH | os.O_CLOEXEC)
    try:
        return unfit(file_system_magic(descriptor))
    finally:
        os.close(descriptor)
