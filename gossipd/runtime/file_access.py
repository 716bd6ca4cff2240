"""Who may open what the daemon makes for other users: a mode and a group.

What lives here: groups and users by name, and setting mode and group of a directory. What does not: which directories
and sockets have readers (``config.status_sections``), and who could exchange them (``directory_safety``).
"""

from __future__ import annotations

import grp
import os
import pwd
import stat
from pathlib import Path

UNCHANGED = -1


def group_number(name: str) -> int:
    """The number of the group ``name``, which may be a number itself; ``UNCHANGED`` for an empty name.

    Raises ValueError for a name that this host does not know, and for a group that this process may not give away.
    """
    if not name:
        return UNCHANGED
    try:
        number = int(name) if name.isascii() and name.isdecimal() else grp.getgrnam(name).gr_gid
    except KeyError:
        raise ValueError(f"names group {name!r}, which this host does not have") from None
    if os.geteuid() != 0 and number not in (os.getegid(), *os.getgroups()):
        raise ValueError(f"names group {name!r}, of which this daemon's user is not a member; usermod -aG adds it")
    return number


def user_number(name: str) -> int | None:
    """The number of the user ``name``, which may be a number itself; None for a name that this host does not know."""
    if name.isascii() and name.isdecimal():
        return int(name)
    try:
        return pwd.getpwnam(name).pw_uid
    except KeyError:
        return None


def grant(path: Path, mode: int, group: int) -> None:
    """Give ``path``, a directory, ``mode`` and ``group``. Nothing is written where both are so. Raises OSError."""
    status = path.stat()
    if group not in (UNCHANGED, status.st_gid):
        os.chown(path, UNCHANGED, group)
    if stat.S_IMODE(status.st_mode) & 0o777 != mode:
        path.chmod(mode)
