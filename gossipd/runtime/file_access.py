"""Who may open what the daemon makes: other users by a mode and a group, and the daemon itself.

What lives here: groups and users by name, setting mode and group of a directory, and why a user may not open a file.
What does not: which directories and sockets have readers (``config.status_sections``), which files the daemon needs
(``config.places``), and who could exchange them (``directory_safety``).
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


def user_name(number: int) -> str:
    """For people, and for chown; the number itself where this host has no name for it."""
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return str(number)


def why_closed(path: Path, user: int, need: int, *, root: Path) -> str | None:
    """Why ``user`` may not open a file or directory, with the cure; None when it may, when nothing or a link is there,
    and for root. Writing is not asked of a read-only file system. What its group may, a user who is not this process's
    may too: which groups and lists would let it in is not looked up. Raises OSError.

    Args:
        need: as of ``os.access``.
        root: the directory of the daemon's that ``path`` is, or lies in.
    """
    try:
        status = path.lstat()
    except FileNotFoundError:
        return None
    if user == 0 or stat.S_ISLNK(status.st_mode):
        return None
    if os.statvfs(path.parent).f_flag & os.ST_RDONLY:
        need &= ~os.W_OK
    if user == os.geteuid():
        may = os.access(path, need, effective_ids=True)  # root checks a configuration as its owner
    elif user == status.st_uid:
        may = status.st_mode >> 6 & need == need
    else:
        may = (status.st_mode >> 3 | status.st_mode) & need == need
    if may:
        return None
    name, mode = user_name(user), f"mode {stat.S_IMODE(status.st_mode):o}"
    if user == status.st_uid:
        return f"is closed to its own user {name} ({mode}); chmod u+rwX it"
    return f"belongs to user {user_name(status.st_uid)} and is closed to user {name} ({mode}); chown -R {name} {root}"


def refusal_words(error: PermissionError, path: Path, need: int, *, root: Path) -> str:
    """The sentence about a call that the kernel did not permit this process."""
    user = os.geteuid()
    try:
        found = ((one, why_closed(one, user, need, root=root)) for one in (path, path.parent))
        told = next((f"{one} {reason}" for one, reason in found if reason is not None), "")
    except OSError:  # the way there is closed, too
        told = ""
    name = user_name(user)
    return told or f"{path} is closed to user {name} ({error.strerror}); chown -R {name} {root}, and chmod u+rwX it"


def grant(path: Path, mode: int, group: int) -> None:
    """Give ``path``, a directory, ``mode`` and ``group``. Nothing is written where both are so. Raises OSError."""
    status = path.stat()
    if group not in (UNCHANGED, status.st_gid):
        os.chown(path, UNCHANGED, group)
    if stat.S_IMODE(status.st_mode) & 0o777 != mode:
        path.chmod(mode)
