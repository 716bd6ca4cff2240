"""Directories in which the daemon creates or renames files: whether other users could turn it elsewhere.

What lives here: the questions, asked of owners and modes. What does not: which directories are asked about.

Who may write to a directory may put a link in the place of anything in it. So a file is created or renamed relative to
a descriptor that was opened without following a link, and whose owner and mode were looked at (``open_directory``); a
path that is opened by name is asked about first (``why_exchangeable``).
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Collection
from pathlib import Path

_OTHERS = stat.S_IWGRP | stat.S_IWOTH
_ABSENT = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)


def open_directory(name: str | Path, *, within: int | None = None) -> int:
    """A descriptor of a directory that only we, or root, may write to.

    Args:
        within: the descriptor of the directory that ``name`` is relative to.
    Raises:
        PermissionError: others own it or may write to it; ``strerror`` says which, and the cure.
        OSError: it is a link (ENOTDIR), no directory, or absent.
    """
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(name, flags, dir_fd=within)
    reason = _why_foreign(os.fstat(descriptor))
    if reason is not None:
        os.close(descriptor)
        raise PermissionError(0, reason)
    return descriptor


def why_unusable(path: Path) -> str | None:
    """Why what stands at ``path`` is no directory for the daemon to work in; None when it is, or when it is absent and
    can be made. Raises OSError.
    """
    try:
        status = path.lstat()
    except FileNotFoundError:
        return None
    if stat.S_ISLNK(status.st_mode) and not path.exists():
        return "is a link that leads nowhere; make what it leads to, or remove it"
    return None if path.is_dir() else "is no directory; move it away"


def why_foreign(path: Path, *, owners: Collection[int] = ()) -> str | None:
    """Why others could put files into the directory at ``path``; None when they cannot. ``owners``: users who may own
    it beside root and this process's. Raises OSError.
    """
    return _why_foreign(path.stat(), owners)


def why_exchangeable(path: Path) -> str | None:
    """How other users could put something else at ``path``; None when they cannot.

    They may not write to the directory that holds it. Of the directories above, also behind links, none may be
    writable by everybody, but for those in which only owners rename (sticky, as ``/tmp``). Raises OSError.
    """
    holder = path.absolute().parent
    real_holder = os.path.realpath(holder)
    for directory in _all_above(holder):
        try:
            mode = os.stat(directory).st_mode
        except OSError as error:
            if error.errno not in _ABSENT:
                raise
            continue
        if not stat.S_ISDIR(mode):
            continue
        forbidden = _OTHERS if directory == real_holder else stat.S_IWOTH
        if mode & forbidden and not mode & stat.S_ISVTX:
            return f"can be exchanged by other users: {directory} has mode {stat.S_IMODE(mode):o}; chmod go-w it"
    return None


def _all_above(holder: Path) -> list[str]:
    """Every directory on the way to ``holder``, and to it, whether it exists or not; links resolved."""
    found: dict[str, None] = {}
    for named in (holder, *holder.parents):
        real = os.path.realpath(named)
        while real not in found:
            found[real] = None
            real = os.path.dirname(real)
    return list(found)


def _why_foreign(status: os.stat_result, owners: Collection[int] = ()) -> str | None:
    if status.st_uid not in (os.geteuid(), 0, *owners):
        return f"belongs to user {status.st_uid}, not to the one the daemon runs as; chown it"
    if status.st_mode & _OTHERS:
        return f"is writable by other users (mode {stat.S_IMODE(status.st_mode):o}); use 0750"
    return None
