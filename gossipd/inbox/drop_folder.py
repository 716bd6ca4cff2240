"""The folder into which manifests are dropped: what may be read from it, and how a file leaves it.

What lives here: one scan, one careful read, one move with a ``.reason`` beside it; all blocking, called from a worker
thread. What does not: when to scan and what a manifest means (``inbox``).

Rules, each with a test:

* Only a regular file is read: opened without following links and without blocking, its owner and size judged by the
  open descriptor, read once into memory. What was read is what is judged; a file that changed meanwhile is read later.
* A file is left alone until nothing has changed for ``quiet_s``, and while anybody has it open for writing. The kernel
  answers that by refusing a read lease (fcntl(2), F_SETLEASE); file systems without leases leave only the quiet time.
* Names that copying tools use on the way (``.x``, ``x~``, ``x.part``, ``x.tmp``, ...) are not ours yet.
* Everything that was judged leaves: to ``accepted/`` or to ``rejected/`` with the reason in plain words. A file that
  was renamed over between reading and moving is a new file and comes back.
* A name is any bytes. It is kept as it is, only shorter where its reason would not fit beside it; what is said of it is
  always text (``Drop.shown``).

Rejected: moving a file away before reading it (whoever is still writing then writes to a name that is gone), and
trusting the modification time alone (``cp -p`` and rsync set it).
"""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import stat
from dataclasses import dataclass
from pathlib import Path

from gossipd.core.errors import LocalError

ACCEPTED, REJECTED, REASON_SUFFIX = "accepted", "rejected", ".reason"
_UNFINISHED_SUFFIXES = ("~", ".part", ".partial", ".tmp", ".temp", ".swp", ".crdownload", ".filepart", REASON_SUFFIX)
_COPIES_MAX = 10_000  # names tried when one is taken; more of the same name is somebody's loop
# What limits.h allows, less ".9999" and ".reason": a name may need both where it goes.
_NAME_BYTES_MAX = 255 - len(f".{_COPIES_MAX - 1}{REASON_SUFFIX}")


class DropError(LocalError):
    """What lies in the inbox is no manifest file. ``code`` is ``E_WATCH_...``.

    Fault: whoever dropped it. State: nothing was deployed, the thing is moved to ``rejected/``. Retry: with a file.
    """

    code = "E_WATCH_TYPE"


class UnfinishedError(Exception):
    """The file is still being written, or is gone: look again later. Not an error of anybody's."""


@dataclass(frozen=True, slots=True)
class Print:
    """Tells one content of one file from the next, short of reading it."""

    device: int
    inode: int
    size: int
    modified_ns: int

    @classmethod
    def of(cls, status: os.stat_result) -> Print:
        return cls(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)


@dataclass(frozen=True, slots=True)
class Drop:
    """Something lying in the inbox."""

    name: str
    print: Print
    modified_s: float

    @property
    def shown(self) -> str:
        """The name for people: bytes that are no UTF-8 are spelled out, so that any file and any log takes it."""
        return os.fsencode(self.name).decode(errors="backslashreplace")


class DropFolder:
    """One inbox directory. Stateless: everything it says is what the disk says now."""

    def __init__(self, directory: Path, *, bytes_max: int) -> None:
        self.directory = directory
        self._bytes_max = bytes_max

    def check(self) -> None:
        """Raises DropError ``E_WATCH_DIRECTORY`` when strangers could put files here (CVE-2025-59349's lesson)."""
        try:
            status = os.lstat(self.directory)
        except OSError as error:
            words = f"the inbox {self.directory}: {error.strerror}; make it (mode 0750), or change store.inbox"
            raise DropError(words, code="E_WATCH_DIRECTORY") from None
        if not stat.S_ISDIR(status.st_mode):
            raise DropError(f"the inbox {self.directory} is not a directory", code="E_WATCH_DIRECTORY")
        if status.st_uid not in (os.geteuid(), 0):
            raise DropError(
                f"the inbox {self.directory} belongs to user {status.st_uid}, not to the one the daemon runs as",
                code="E_WATCH_DIRECTORY",
            )
        if status.st_mode & 0o002:
            raise DropError(
                f"the inbox {self.directory} may be written by everybody (mode {status.st_mode & 0o777:o}); use 0750",
                code="E_WATCH_DIRECTORY",
            )

    def scan(self, limit: int) -> tuple[list[Drop], int]:
        """At most ``limit`` things that could be drops, oldest first, and how many more there are."""
        drops = []
        with os.scandir(self.directory) as entries:
            for entry in entries:
                if entry.name in (ACCEPTED, REJECTED) or entry.name.startswith("."):
                    continue
                if entry.name.endswith(_UNFINISHED_SUFFIXES):
                    continue
                try:
                    status = entry.stat(follow_symlinks=False)
                except FileNotFoundError:
                    continue  # gone between the listing and the look
                drops.append(Drop(entry.name, Print.of(status), status.st_mtime))
        drops.sort(key=lambda drop: (drop.print.modified_ns, drop.name))
        return drops[:limit], max(0, len(drops) - limit)

    def read(self, drop: Drop) -> bytes:
        """The whole file, once.

        Raises:
            DropError: it can never be a manifest file.
            UnfinishedError: it changed, is still open somewhere for writing, or is gone.
            OSError: of this host's making (no handles, failing disk); try again later.
        """
        try:
            status = os.lstat(self.directory / drop.name)
        except FileNotFoundError as error:
            raise UnfinishedError from error
        self._judge(drop, status)
        try:
            descriptor = os.open(self.directory / drop.name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except PermissionError as error:
            raise DropError(f"{drop.shown} may not be read by the daemon", code="E_WATCH_PERMISSION") from error
        except FileNotFoundError as error:
            raise UnfinishedError from error
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise UnfinishedError from error  # swapped for a link just now; the next look names it
            raise
        try:
            self._judge(drop, os.fstat(descriptor))
            if Print.of(os.fstat(descriptor)) != drop.print or _is_open_for_writing(descriptor):
                raise UnfinishedError
            content = _read_all(descriptor, drop.print.size)
            if len(content) != drop.print.size or Print.of(os.fstat(descriptor)) != drop.print:
                raise UnfinishedError
            return content
        finally:
            os.close(descriptor)

    def settle(self, drop: Drop, *, folder: str) -> str | None:
        """Move ``drop`` into ``folder`` (ACCEPTED or REJECTED).

        Returns: the name it has there, shorter or with a number where it must be; None when it is gone or is a new
        file by now. Raises OSError when the disk refuses; calling again is safe.
        """
        target = self.directory / folder
        target.mkdir(mode=0o750, exist_ok=True)
        source = self.directory / drop.name
        name = _free_name(target, drop.name)
        try:
            source.rename(target / name)
        except FileNotFoundError:
            return None
        if Print.of(os.lstat(target / name)) != drop.print:
            _put_back(target / name, source)
            return None
        return name

    def write_reason(self, name: str, reason: str) -> None:
        """Say in plain words, beside ``name`` in ``rejected/``, why it is there."""
        path = self.directory / REJECTED / f"{name}{REASON_SUFFIX}"
        path.write_text(reason + "\n", encoding="utf-8", errors="backslashreplace")  # it may quote anything

    def _judge(self, drop: Drop, status: os.stat_result) -> None:
        name = drop.shown
        kind = stat.S_IFMT(status.st_mode)
        if kind != stat.S_IFREG:
            word = _KINDS.get(kind, "not a file")
            raise DropError(f"{name} is {word}; drop a regular file", code="E_WATCH_TYPE")
        if status.st_uid not in (os.geteuid(), 0, os.lstat(self.directory).st_uid):
            raise DropError(f"{name} belongs to user {status.st_uid}, who does not own the inbox", code="E_WATCH_OWNER")
        if not status.st_mode & 0o444:
            raise DropError(f"{name} may not be read by anybody (mode 0)", code="E_WATCH_PERMISSION")
        if status.st_size > self._bytes_max:
            raise DropError(f"{name} has {status.st_size} bytes, at most {self._bytes_max}", code="E_WATCH_SIZE")


_KINDS = {
    stat.S_IFDIR: "a directory",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFLNK: "a symbolic link",
    stat.S_IFBLK: "a device",
    stat.S_IFCHR: "a device",
}


def _is_open_for_writing(descriptor: int) -> bool:
    """True when some process may still write; False also where the file system knows no leases."""
    try:
        # A writer that comes while we hold the lease makes the kernel signal us: SIGURG does nothing by default,
        # the SIGIO it would be otherwise ends the process.
        fcntl.fcntl(descriptor, fcntl.F_SETSIG, signal.SIGURG)
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_RDLCK)
    except OSError as error:
        return error.errno == errno.EAGAIN
    fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    return False


def _read_all(descriptor: int, size: int) -> bytes:
    parts = []
    left = size + 1  # one more than expected, to notice growth
    while left > 0 and (part := os.read(descriptor, min(left, 1 << 20))):
        parts.append(part)
        left -= len(part)
    return b"".join(parts)


def _free_name(folder: Path, name: str) -> str:
    while len(os.fsencode(name)) > _NAME_BYTES_MAX:
        name = name[:-1]  # whole characters
    for count in range(_COPIES_MAX):
        candidate = name if count == 0 else f"{name}.{count}"
        if not os.path.lexists(folder / candidate):
            return candidate
    raise OSError(errno.EEXIST, f"{folder} holds {_COPIES_MAX} files of one name")


def _put_back(moved: Path, source: Path) -> None:
    """Return a file that was renamed over the judged one; if a still newer one is there, that one counts."""
    try:
        os.link(moved, source, follow_symlinks=False)
    except FileExistsError:
        pass
    except PermissionError:
        moved.rename(source)  # a directory cannot be linked
        return
    moved.unlink()
