"""The real disk: the only module of the store that renames and syncs.

What lives here: ``PosixDisk``, the ``Disk`` port. What does not: when to sync (``windows``, ``publishing``).

Promises: after ``sync_data`` the bytes and size of a file survive a power cut; after ``sync_directory`` the names in
the directory do; readers see a rename at once and whole, and it is durable when both directories are synced. No promise
covers a drive that lies about its cache, nor bits that rot later (``scrub`` looks for those). A failed sync is final:
the kernel may have marked the pages clean, so a later successful sync proves nothing (Rebello and others, USENIX ATC
2020). Callers therefore drop the chunks concerned.

A scrub reads with RWF_DONTCACHE (Linux 6.14), which drops pages that were not cached before; otherwise it would push
the working set of the host's job out of memory. Older kernels do ordinary reads.
"""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gossipd.runtime.ports import StoreWriteError
from gossipd.store.disk import syscalls
from gossipd.store.disk.disk import FileKind, NotAFileError, Space, parent
from gossipd.store.errors import StoreModeError, StorePathError

_RWF_DONTCACHE = 0x80
_SET_SIGNAL = 10  # F_SETSIG of fcntl.h
_COPY_BYTES_MAX = 1 << 30  # the kernel's own limit is just under 2 GiB
_FALLBACK_BYTES = 1 << 20
_CANNOT_COPY = (errno.ENOSYS, errno.EXDEV, errno.EINVAL, errno.EOPNOTSUPP)


def make_root(path: Path, *, mode: int) -> None:
    """Make a directory and its parents, with durable names up to the mount point. Raises StorePathError,
    StoreModeError when we may not, StoreWriteError when it cannot be made, OSError. Skipped: parents that we may not
    read, and file systems that are read-only or cannot sync a directory.
    """
    try:
        path.mkdir(mode=mode, parents=True)
        path.chmod(mode)  # the umask took bits away
    except FileExistsError:
        if not path.is_dir():
            raise StorePathError(f"{path} is not a directory; move it away, or name another in the settings") from None
    except PermissionError as error:
        why = f"user {os.geteuid()} may not make {error.filename or path}; make it, or chown"
        raise StoreModeError(f"{path} cannot be made: {why}") from None
    except NotADirectoryError:
        raise StorePathError(f"{path} cannot be made: it lies under a file", code="E_PATH_KIND") from None
    except OSError as error:
        raise StoreWriteError(f"{path} cannot be made: {error.strerror}") from error
    directory = path.absolute()
    while not os.path.ismount(directory):
        directory = directory.parent
        try:
            descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except PermissionError:
            return
        try:
            os.fsync(descriptor)
        except OSError as error:
            if error.errno not in (errno.EINVAL, errno.EROFS, errno.EOPNOTSUPP):
                raise
        finally:
            os.close(descriptor)


class PosixDisk:
    """A directory on a Linux file system."""

    def __init__(self, root: Path) -> None:
        """Raises StoreModeError when others may write to the directory, OSError when it does not exist."""
        self._root = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        status = os.fstat(self._root)
        self._can_pass = True
        if status.st_uid != os.geteuid():
            self.shut()
            raise StoreModeError(f"{root} belongs to user {status.st_uid}, not to {os.geteuid()}; chown it")
        if status.st_mode & 0o022:
            self.shut()
            raise StoreModeError(f"{root} has mode {stat.S_IMODE(status.st_mode):o}; chmod go-w it")

    def shut(self) -> None:
        """Close the directory; no method works afterwards."""
        os.close(self._root)

    def open(self, path: str, *, write: bool = False, create: bool = False, mode: int = 0o644) -> int:
        if not write and not create:
            try:  # what the daemon reads says nothing about the model's use
                return self._open_file(path, os.O_RDONLY | os.O_NOATIME)
            except PermissionError:
                pass  # another user's file
        flags = os.O_RDWR if write else os.O_RDONLY
        return self._open_file(path, flags | (os.O_CREAT if create else 0), mode)

    def _open_file(self, path: str, flags: int, mode: int = 0) -> int:
        try:  # O_NONBLOCK: a pipe in the file's place would keep us waiting for its other end
            descriptor = syscalls.open_beneath(self._root, path, flags | os.O_NONBLOCK | os.O_NOCTTY, mode)
        except BlockingIOError:  # a lease, which only files have, as by ``is_open_elsewhere``: it ends at once
            descriptor = syscalls.open_beneath(self._root, path, flags, mode)
        except OSError as error:
            if error.errno not in (errno.ENXIO, errno.EISDIR):  # a socket; a directory, to be written
                raise
            found = self.kind(path)
            if found in (None, FileKind.FILE):
                raise  # the device under the file system is gone
            raise _not_a_file(found is FileKind.DIRECTORY, path) from None
        found_mode = os.fstat(descriptor).st_mode
        if not stat.S_ISREG(found_mode):
            os.close(descriptor)
            raise _not_a_file(stat.S_ISDIR(found_mode), path)
        return descriptor

    def close(self, descriptor: int) -> None:
        os.close(descriptor)

    def lock(self, path: str) -> int:
        try:
            descriptor = self.open(path, write=True, create=True, mode=0o600)
        except OSError as error:
            if error.errno != errno.EROFS:
                raise
            descriptor = self.open(path)  # one daemon may serve from a read-only store
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(descriptor)
            raise
        return descriptor

    def lock_directory(self, path: str) -> int | None:
        descriptor = syscalls.open_beneath(self._root, path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(descriptor)
            if isinstance(error, BlockingIOError):
                return None
            raise
        return descriptor

    def is_open_elsewhere(self, descriptor: int) -> bool:
        """A write lease is granted only to a file's one opener: the kernel counts those of all users. Should another
        open it in this moment, it waits for the lease's end, and the signal is one that does nothing."""
        try:
            fcntl.fcntl(descriptor, _SET_SIGNAL, signal.SIGURG)
            fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        except OSError:
            return True  # EAGAIN; or no leases here
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_UNLCK)
        return False

    def last_read_s(self, descriptor: int) -> float:
        return os.fstat(descriptor).st_atime

    def write_some(self, descriptor: int, data: memoryview, offset: int) -> int:
        return os.pwrite(descriptor, data, offset)

    def read_some(self, descriptor: int, into: memoryview, offset: int, *, passing: bool = False) -> int:
        if passing and self._can_pass:
            try:
                return os.preadv(descriptor, [into], offset, _RWF_DONTCACHE)
            except OSError as error:
                if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL):
                    raise
                self._can_pass = False
        return os.preadv(descriptor, [into], offset)

    def copy_some(self, source: int, source_offset: int, target: int, target_offset: int, length: int) -> int:
        try:
            return os.copy_file_range(source, target, min(length, _COPY_BYTES_MAX), source_offset, target_offset)
        except OSError as error:
            if error.errno not in _CANNOT_COPY:
                raise
        return os.pwrite(target, os.pread(source, min(length, _FALLBACK_BYTES), source_offset), target_offset)

    def allocate(self, descriptor: int, length: int) -> bool:
        return syscalls.allocate(descriptor, length)

    def punch(self, descriptor: int, offset: int, length: int) -> bool:
        return syscalls.punch(descriptor, offset, length)

    def truncate(self, descriptor: int, length: int) -> None:
        os.ftruncate(descriptor, length)

    def set_mode(self, descriptor: int, mode: int) -> None:
        if stat.S_IMODE(os.fstat(descriptor).st_mode) != mode:  # fchmod makes work for the sync
            os.fchmod(descriptor, mode)

    def size(self, descriptor: int) -> int:
        return os.fstat(descriptor).st_size

    def allocated(self, descriptor: int) -> int:
        return os.fstat(descriptor).st_blocks * 512

    def has_data(self, descriptor: int, offset: int) -> bool:
        try:
            return os.lseek(descriptor, offset, os.SEEK_DATA) == offset
        except OSError as error:
            return error.errno != errno.ENXIO

    def is_unwritten(self, descriptor: int) -> bool:
        try:
            os.lseek(descriptor, 0, os.SEEK_DATA)
        except OSError as error:
            return error.errno == errno.ENXIO
        return False

    def forget(self, descriptor: int, offset: int, length: int) -> None:
        os.posix_fadvise(descriptor, offset, length, os.POSIX_FADV_DONTNEED)

    def cached(self, descriptor: int, offset: int, length: int) -> int | None:
        return syscalls.cached_bytes(descriptor, offset, length)

    def start_write_back(self, descriptor: int) -> None:
        syscalls.start_write_back(descriptor)

    def sync_data(self, descriptor: int) -> None:
        os.fdatasync(descriptor)

    def sync_file(self, descriptor: int) -> None:
        os.fsync(descriptor)

    def sync_everything(self) -> None:
        syscalls.sync_file_system(self._root)

    def sync_directory(self, path: str) -> None:
        descriptor = syscalls.open_beneath(self._root, path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def rename(self, source: str, target: str, *, replace: bool = False) -> None:
        with self._parent(source) as (source_at, source_name), self._parent(target) as (target_at, target_name):
            if replace:
                try:
                    os.rename(source_name, target_name, src_dir_fd=source_at, dst_dir_fd=target_at)
                except IsADirectoryError:
                    raise _not_a_file(True, target) from None
            else:
                syscalls.rename_new(source_at, source_name, target_at, target_name)

    def make_link(self, text: str, path: str) -> None:
        with self._parent(path) as (at, name):
            os.symlink(text, name, dir_fd=at)

    def read_link(self, path: str) -> str:
        with self._parent(path) as (at, name):
            return os.readlink(name, dir_fd=at)

    def make_directory(self, path: str) -> None:
        with self._parent(path) as (at, name):
            try:
                os.mkdir(name, 0o755, dir_fd=at)
                _set_directory_mode(name, at, 0o755)  # the umask took bits away, and jobs of other users read here
            except FileExistsError:
                if not stat.S_ISDIR(os.stat(name, dir_fd=at, follow_symlinks=False).st_mode):
                    raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path) from None

    def remove_file(self, path: str) -> None:
        with self._parent(path) as (at, name):
            try:
                os.unlink(name, dir_fd=at)
            except IsADirectoryError:
                raise _not_a_file(True, path) from None

    def remove_directory(self, path: str) -> None:
        with self._parent(path) as (at, name):
            os.rmdir(name, dir_fd=at)

    def names(self, path: str) -> list[str]:
        descriptor = syscalls.open_beneath(self._root, path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            return os.listdir(descriptor)
        finally:
            os.close(descriptor)

    def kind(self, path: str) -> FileKind | None:
        found = self._status(path)
        return None if found is None else _kind_of(found.st_mode)

    def names_mark(self, path: str) -> int | None:
        found = self._status(path)
        if found is None or not stat.S_ISDIR(found.st_mode):
            return None
        return hash((found.st_ino, found.st_mtime_ns))

    def _status(self, path: str) -> os.stat_result | None:
        """Of the path itself, not of what a link leads to; None where nothing is."""
        try:
            with self._parent(path) as (at, name):
                return os.stat(name, dir_fd=at, follow_symlinks=False)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            error.filename = path  # the kernel was given the last component alone
            raise

    def space(self) -> Space:
        status = os.fstatvfs(self._root)
        free_files = status.f_favail if status.f_files else None
        return Space(status.f_bavail * status.f_frsize, status.f_blocks * status.f_frsize, free_files)

    def memory_file(self) -> int:
        return os.memfd_create("gossipd-chunk", os.MFD_CLOEXEC)

    @contextmanager
    def _parent(self, path: str) -> Iterator[tuple[int, str]]:
        """The directory of ``path``, opened beneath the root, and the last component."""
        if "\0" in path:
            raise OSError(errno.EINVAL, "path contains a NUL byte")
        descriptor = syscalls.open_beneath(self._root, parent(path), os.O_PATH | os.O_DIRECTORY)
        try:
            yield descriptor, path.rpartition("/")[2]
        finally:
            os.close(descriptor)


def _kind_of(mode: int) -> FileKind:
    if stat.S_ISREG(mode):
        return FileKind.FILE
    if stat.S_ISDIR(mode):
        return FileKind.DIRECTORY
    return FileKind.LINK if stat.S_ISLNK(mode) else FileKind.OTHER


def _not_a_file(is_directory: bool, path: str) -> NotAFileError:
    what = "a directory" if is_directory else "a pipe, socket or device"
    return NotAFileError(errno.EINVAL, f"{what} where a file belongs", path)


def _set_directory_mode(name: str, at: int, mode: int) -> None:
    descriptor = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=at)
    try:
        if stat.S_IMODE(os.fstat(descriptor).st_mode) != mode:
            os.fchmod(descriptor, mode)
    finally:
        os.close(descriptor)
