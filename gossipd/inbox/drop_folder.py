"""The inbox's directory: which files in it may be read, and how a file leaves it.

What lives here: one scan, one careful read, one move with a ``.reason`` beside the file; all blocking, for a worker
thread. What does not: when to scan, and what a manifest means (``inbox``); how many moved files stay
(``settled_files``).

Rules, each with a test:

* Only a regular file is read: opened without following links and without blocking, judged by its descriptor's owner and
  size, and read once into memory. Exactly these bytes are judged; a file that changed meanwhile is read later.
* A file waits until nothing has changed for ``quiet_s``, and while any process has it open for writing. The kernel
  reports that by refusing a read lease (fcntl(2), F_SETLEASE); on file systems without leases only the quiet time
  counts.
* Temporary names of copying tools (``.x``, ``x~``, ``x.part``, ``x.tmp``, ...) are ignored.
* Every judged file leaves: to ``accepted/``, or to ``rejected/`` with the reason in plain words. A file that another
  one replaced between reading and moving comes back as a new file. One that was accepted and cannot be moved is
  deleted: the daemon keeps the manifest, and the next start would take the file for a new drop.
* A name may be any bytes. It is kept, and only shortened where its reason would not fit beside it; people see it as
  one line of text (``Drop.shown``).
* Nothing is created, renamed or opened but by descriptors of directories that no other user may write to, links not
  followed (``directory_safety``): else a link put there makes the daemon write over its own files.

Rejected: moving a file away before reading it, because its writer would lose it; trusting the modification time alone,
because ``cp -p`` and rsync set it.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import signal
import stat
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from gossipd.core.errors import ExitCode, LocalError
from gossipd.inbox.settled_files import (
    REASON_SUFFIX,
    UNFINISHED_REASON_SUFFIX,
    UNFINISHED_SUFFIXES,
    SettledFiles,
    free_name,
)
from gossipd.runtime.directory_safety import open_directory, why_exchangeable

ACCEPTED, REJECTED = "accepted", "rejected"
HOST_TROUBLES = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EIO)  # nobody's choice: try again
_SHOWN_CHARS_MAX, _REASON_CHARS_MAX = 200, 4000

_CURES = {
    errno.ENOENT: "; make it (mode 0750), or change store.inbox",
    errno.ENOTDIR: ", or a link to one, which is not followed; move it away, or change store.inbox",
}


class DropError(LocalError):
    """The file in the inbox is no manifest file. ``code`` is ``E_WATCH_...``. Fault: the user who dropped it. State:
    nothing was deployed; it is moved to ``rejected/``. Retry: with a manifest. The exit code is that of a start that
    ``E_WATCH_DIRECTORY`` ends: the inbox itself cannot be used as one.
    """

    code = "E_WATCH_TYPE"
    exit_code = ExitCode.USAGE


class UnfinishedError(Exception):
    """The file is still being written, or is gone: look again later. Nobody's fault."""


class Print(Struct, frozen=True):
    """Identifies one content of one file without reading it."""

    device: int
    inode: int
    size: int
    modified_ns: int

    @classmethod
    def of(cls, status: os.stat_result) -> Print:
        return cls(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)


class Drop(Struct, frozen=True):
    """A file in the inbox."""

    name: str
    print: Print
    modified_s: float

    @property
    def shown(self) -> str:
        """The name for people: whatever is not printable text is escaped, so that any file and any log takes it, and no
        reader takes it for more than a name.
        """
        return _plain(os.fsencode(self.name).decode(errors="backslashreplace"), _SHOWN_CHARS_MAX)


class DropFolder:
    """One inbox directory. Every answer is read from the disk, but for how many moved files stay."""

    def __init__(self, directory: Path, *, bytes_max: int) -> None:
        self.directory = directory
        self._bytes_max = bytes_max
        self._settled = {folder: SettledFiles(file_bytes_max=bytes_max) for folder in (ACCEPTED, REJECTED)}

    def check(self) -> None:
        """Raises DropError ``E_WATCH_DIRECTORY`` when other users could put files here (see CVE-2025-59349)."""
        with self._open():
            pass

    def scan(self, limit: int) -> tuple[list[Drop], int]:
        """At most ``limit`` possible drops, oldest first, and how many more there are."""
        drops = []
        with self._open() as inbox, os.scandir(inbox) as entries:
            for entry in entries:
                if entry.name in (ACCEPTED, REJECTED) or entry.name.startswith("."):
                    continue
                if entry.name.endswith(UNFINISHED_SUFFIXES):
                    continue
                try:
                    status = entry.stat(follow_symlinks=False)
                except FileNotFoundError:
                    continue  # removed between the listing and the look
                drops.append(Drop(entry.name, Print.of(status), status.st_mtime))
        drops.sort(key=lambda drop: (drop.print.modified_ns, drop.name))
        return drops[:limit], max(0, len(drops) - limit)

    def read(self, drop: Drop) -> bytes:
        """Read the whole file, once.

        Raises:
            DropError: it can never be a manifest file.
            UnfinishedError: it changed, is open for writing, or is gone.
            OSError: a fault of this host (no descriptors, failing disk); try again later.
        """
        with self._open() as inbox:
            descriptor = self._open_file(inbox, drop)
        try:
            if Print.of(os.fstat(descriptor)) != drop.print or _is_open_for_writing(descriptor):
                raise UnfinishedError
            content = _read_all(descriptor, drop.print.size)
            if len(content) != drop.print.size or Print.of(os.fstat(descriptor)) != drop.print:
                raise UnfinishedError
            return content
        finally:
            os.close(descriptor)

    def settle(self, drop: Drop, *, folder: str) -> str | None:
        """Move ``drop`` into ``folder`` (ACCEPTED or REJECTED). Returns its name there, shortened or numbered if
        needed; None when it is gone or was replaced by a new file. Raises DropError ``E_WATCH_DIRECTORY``, and OSError
        when the disk refuses; calling again is safe.
        """
        with self._open() as inbox, self._open(folder, inbox) as target:
            self._settled[folder].make_room(target, drop.print.size)
            name = free_name(target, drop.name)
            try:
                os.rename(drop.name, name, src_dir_fd=inbox, dst_dir_fd=target)
            except FileNotFoundError:
                return None
            if Print.of(os.stat(name, dir_fd=target, follow_symlinks=False)) != drop.print:
                _put_back(target, name, inbox, drop.name)
                return None
        return name

    def delete(self, drop: Drop) -> None:
        """Delete ``drop`` from the inbox, unless it is gone or was replaced by a new file. Raises OSError."""
        with self._open() as inbox, contextlib.suppress(FileNotFoundError):
            if Print.of(os.stat(drop.name, dir_fd=inbox, follow_symlinks=False)) == drop.print:
                os.unlink(drop.name, dir_fd=inbox)

    def write_reason(self, name: str, reason: str) -> None:
        """Write in plain words, beside ``name`` in ``rejected/``, why it is there."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        path = name + REASON_SUFFIX
        unfinished = path + UNFINISHED_REASON_SUFFIX
        with self._open() as inbox, self._open(REJECTED, inbox) as rejected:
            try:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(unfinished, dir_fd=rejected)  # of an attempt that was cut short
                descriptor = os.open(unfinished, flags, 0o640, dir_fd=rejected)
                with os.fdopen(descriptor, "w", encoding="ascii") as file:
                    file.write(_plain(reason, _REASON_CHARS_MAX, ascii_only=True) + "\n")
                # Whole at once for those who wait for it, and over the reason of a file that was taken away.
                os.rename(unfinished, path, src_dir_fd=rejected, dst_dir_fd=rejected)
            except IsADirectoryError as error:
                at = self.directory / REJECTED / (error.filename2 or error.filename)
                raise DropError(f"{at} is a directory; move it away", code="E_WATCH_DIRECTORY") from None

    @contextlib.contextmanager
    def _open(self, folder: str = "", within: int | None = None) -> Iterator[int]:
        """The inbox, or a folder in it, which is made if need be. Raises DropError ``E_WATCH_DIRECTORY``."""
        path = self.directory / folder
        if within is not None:
            with contextlib.suppress(FileExistsError):
                os.mkdir(folder, 0o750, dir_fd=within)
        try:
            reason = why_exchangeable(path) if within is None else None
            if reason is not None:
                raise PermissionError(0, reason)
            descriptor = open_directory(folder or path, within=within)
        except OSError as error:
            if error.errno in HOST_TROUBLES:
                raise
            words = f"the inbox {path}: {error.strerror}{_CURES.get(error.errno or 0, '')}"
            raise DropError(words, code="E_WATCH_DIRECTORY") from None
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    def _open_file(self, inbox: int, drop: Drop) -> int:
        owners = (os.geteuid(), 0, os.fstat(inbox).st_uid)
        try:
            self._judge(drop, os.stat(drop.name, dir_fd=inbox, follow_symlinks=False), owners)
            flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            descriptor = os.open(drop.name, flags, dir_fd=inbox)
        except PermissionError as error:
            raise DropError(f"the daemon may not read {drop.shown}", code="E_WATCH_PERMISSION") from error
        except FileNotFoundError as error:
            raise UnfinishedError from error
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise UnfinishedError from error  # just replaced by a link; the next look names it
            raise
        try:
            self._judge(drop, os.fstat(descriptor), owners)
        except DropError:
            os.close(descriptor)
            raise
        return descriptor

    def _judge(self, drop: Drop, status: os.stat_result, owners: tuple[int, ...]) -> None:
        name = drop.shown
        kind = stat.S_IFMT(status.st_mode)
        if kind != stat.S_IFREG:
            word = _KINDS.get(kind, "not a file")
            raise DropError(f"{name} is {word}; drop a regular file", code="E_WATCH_TYPE")
        if status.st_uid not in owners:
            raise DropError(
                f"{name} belongs to user {status.st_uid}, not to the owner of the inbox", code="E_WATCH_OWNER"
            )
        if not status.st_mode & 0o444:
            raise DropError(f"{name} has no read permission (mode 0)", code="E_WATCH_PERMISSION")
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
    """True while a process may still write; False also where the file system has no leases."""
    try:
        # A writer that opens the file during our lease makes the kernel signal us. SIGURG is ignored by default; SIGIO,
        # the usual signal, would end the process.
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


def _plain(text: str, chars_max: int, *, ascii_only: bool = False) -> str:
    """One line of printable text, cut: line breaks and whatever moves a cursor are escaped."""
    cut = text if len(text) <= chars_max else text[:chars_max] + "..."
    keep = str.isascii if ascii_only else str.isprintable
    return "".join(one if one.isprintable() and keep(one) else one.encode("unicode_escape").decode() for one in cut)


def _put_back(folder: int, moved: str, inbox: int, name: str) -> None:
    """Return a file that had replaced the judged one; a still newer file at its place wins."""
    try:
        os.link(moved, name, src_dir_fd=folder, dst_dir_fd=inbox, follow_symlinks=False)
    except FileExistsError:
        pass
    except PermissionError:
        os.rename(moved, name, src_dir_fd=folder, dst_dir_fd=inbox)  # a directory cannot be linked
        return
    os.unlink(moved, dir_fd=folder)
