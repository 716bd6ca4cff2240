"""Kernel calls that Python does not offer, through ctypes: openat2, renameat2, fallocate, syncfs, sync_file_range,
cachestat, mincore.

What lives here: the calls, and replacements on kernels that lack them. What does not: rules about paths.

``openat2`` with RESOLVE_BENEATH and RESOLVE_NO_SYMLINKS makes the kernel refuse paths that leave the directory or go
through a link. Checking a path before opening it is a race that ``os.path`` cannot win; CPython declined to add the
call (python/cpython issue 141878). Without openat2 (before Linux 5.6, or behind a seccomp filter) every component is
opened in turn with O_NOFOLLOW, which is as safe and slower. ctypes silently cuts a name at a NUL byte, so NUL is
refused first.

Rejected: ``os.posix_fallocate``, because glibc writes zeros over the whole file where the file system cannot reserve.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import mmap
import os

_OPENAT2, _CACHESTAT = 437, 451  # the same numbers on every architecture
_RESOLVE = 0x02 | 0x04 | 0x08  # NO_MAGICLINKS, NO_SYMLINKS, BENEATH
_RENAME_NOREPLACE = 1
_SYNC_FILE_RANGE_WRITE = 2
_FICLONE = 0x40049409  # linux/fs.h
_RACE_RETRIES = 16  # EAGAIN: a rename happened meanwhile; openat2(2) asks for a retry
_MISSING = (errno.ENOSYS, errno.EPERM)  # EPERM: a seccomp filter or a forbidden file; the walk tells which
_UNSUPPORTED = (errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL)
_MINCORE_BYTES = 1 << 30  # mapped at a time

_KEEP_SIZE, _PUNCH_HOLE = 1, 2  # FALLOC_FL_..., linux/falloc.h
_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long
_libc.renameat2.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint)
_libc.sync_file_range.argtypes = (ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = (
    ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_int64
)  # fmt: skip
_libc.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
_libc.mincore.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p)
_libc.fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)


class _OpenHow(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


class _Kernel:
    """Calls that this kernel was found to lack."""

    lacks_openat2 = False


def open_beneath(directory: int, path: str, flags: int, mode: int = 0) -> int:
    """Open ``path`` below ``directory`` without following links. Raises OSError: ELOOP for a link, EXDEV outside."""
    if "\0" in path:
        raise OSError(errno.EINVAL, "path contains a NUL byte")
    flags |= os.O_CLOEXEC
    if not _Kernel.lacks_openat2:
        found = _openat2(directory, path, flags, mode)
        if found is not None:
            return found
    return walk_beneath(directory, path, flags, mode)


def _openat2(directory: int, path: str, flags: int, mode: int) -> int | None:
    how = _OpenHow(flags, mode if flags & os.O_CREAT else 0, _RESOLVE)
    name = os.fsencode(path or ".")
    number = errno.EAGAIN
    for _ in range(_RACE_RETRIES):
        descriptor: int = _libc.syscall(
            ctypes.c_long(_OPENAT2), ctypes.c_int(directory), ctypes.c_char_p(name), ctypes.byref(how),
            ctypes.c_size_t(ctypes.sizeof(how)),
        )  # fmt: skip
        if descriptor >= 0:
            return descriptor
        number = ctypes.get_errno()
        if number in _MISSING:
            _Kernel.lacks_openat2 = number == errno.ENOSYS
            return None
        if number not in (errno.EAGAIN, errno.EINTR):
            break
    raise OSError(number, os.strerror(number), path)


def walk_beneath(directory: int, path: str, flags: int, mode: int = 0) -> int:
    """``open_beneath`` one component at a time, for kernels without openat2."""
    components = [component for component in path.split("/") if component] or ["."]
    if ".." in components or path.startswith("/"):
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), path)
    here = directory
    try:
        for component in components[:-1]:
            deeper = _open_nofollow(here, component, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC, 0, path)
            if here != directory:
                os.close(here)
            here = deeper
        return _open_nofollow(here, components[-1], flags, mode, path)
    finally:
        if here != directory:
            os.close(here)


def _open_nofollow(directory: int, name: str, flags: int, mode: int, path: str) -> int:
    try:
        return os.open(name, flags | os.O_NOFOLLOW, mode, dir_fd=directory)
    except NotADirectoryError:
        # With O_DIRECTORY the kernel reports ENOTDIR for a link too, where openat2 reports ELOOP.
        if not os.path.islink(f"/proc/self/fd/{directory}/{name}"):
            raise
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path) from None


def rename_new(source_directory: int, source: str, target_directory: int, target: str) -> None:
    """Rename; FileExistsError if the target exists. Some network file systems need a check followed by a rename."""
    names = os.fsencode(source), os.fsencode(target)
    if not _libc.renameat2(source_directory, names[0], target_directory, names[1], _RENAME_NOREPLACE):
        return
    number = ctypes.get_errno()
    if number not in _UNSUPPORTED:
        raise OSError(number, os.strerror(number), source, None, target)
    try:
        os.stat(target, dir_fd=target_directory, follow_symlinks=False)
    except FileNotFoundError:
        os.rename(source, target, src_dir_fd=source_directory, dst_dir_fd=target_directory)
        return
    raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), source, None, target)


def sync_file_system(descriptor: int) -> None:
    """Write back the whole file system. Raises on failures since the descriptor was opened (Linux 5.8)."""
    if _libc.syncfs(descriptor):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def start_write_back(descriptor: int) -> None:
    """Start writing all dirty pages of a file, without waiting. Errors stay for the sync that follows: without the two
    WAIT flags the kernel does not consume them (``ksys_sync_file_range`` in fs/sync.c).
    """
    _libc.sync_file_range(descriptor, 0, 0, _SYNC_FILE_RANGE_WRITE)


def allocate(descriptor: int, length: int) -> bool:
    """Reserve blocks for ``length`` bytes without writing; False where the file system cannot."""
    return _fallocate(descriptor, 0, 0, length)


def punch(descriptor: int, offset: int, length: int) -> bool:
    """Give the blocks of a range back, without a change of size; False where the file system cannot."""
    return _fallocate(descriptor, _PUNCH_HOLE | _KEEP_SIZE, offset, length)


def _fallocate(descriptor: int, mode: int, offset: int, length: int) -> bool:
    while _libc.fallocate(descriptor, mode, offset, length):
        number = ctypes.get_errno()
        if number in _UNSUPPORTED:
            return False
        if number != errno.EINTR:
            raise OSError(number, os.strerror(number))
    return True


def can_share_blocks(source: int, target: int) -> bool:
    """Whether the file system lets an empty file ``target`` share the blocks of ``source``; it does so then."""
    try:
        fcntl.ioctl(target, _FICLONE, source)
    except OSError:
        return False
    return True


class _StatFs(ctypes.Structure):
    # Only the first field is read; the whole has 120 bytes on 64 bits (statfs(2)).
    _fields_ = (("kind", ctypes.c_long), ("rest", ctypes.c_byte * 248))


def file_system_magic(descriptor: int) -> int:
    """The kind of the file system, as in linux/magic.h; ``os.statvfs`` leaves it out. Raises OSError."""
    found = _StatFs()
    if _libc.fstatfs(descriptor, ctypes.byref(found)):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return int(found.kind) & 0xFFFFFFFF


def cached_bytes(descriptor: int, offset: int, length: int) -> int | None:
    """Bytes of a range of a file that lie in pages of the page cache; None where the kernel does not tell. Of a file
    that is ours or that we may write to; of another, mincore says that all is there. cachestat is of Linux 6.5."""
    if length <= 0:
        return 0
    pages = _cachestat(descriptor, offset, length)
    if pages is None:
        pages = _mincore(descriptor, offset, length)
    return None if pages is None else min(length, pages * mmap.PAGESIZE)


def _cachestat(descriptor: int, offset: int, length: int) -> int | None:
    span, found = (ctypes.c_uint64 * 2)(offset, length), (ctypes.c_uint64 * 5)()
    failed: int = _libc.syscall(
        ctypes.c_long(_CACHESTAT), ctypes.c_uint(descriptor), ctypes.byref(span), ctypes.byref(found), ctypes.c_uint(0)
    )
    return None if failed else int(found[0])


def _mincore(descriptor: int, offset: int, length: int) -> int | None:
    """What of the range is in memory, by a mapping that is never touched, a part at a time."""
    begin, end = offset - offset % mmap.PAGESIZE, min(offset + length, os.fstat(descriptor).st_size)
    total = 0
    for at in range(begin, end, _MINCORE_BYTES):
        size = min(_MINCORE_BYTES, end - at)
        address = _libc.mmap(None, size, mmap.PROT_READ, mmap.MAP_SHARED, descriptor, at)
        if address in (None, ctypes.c_void_p(-1).value):
            return None
        told = ctypes.create_string_buffer(-(-size // mmap.PAGESIZE))
        failed = _libc.mincore(address, size, told)
        _libc.munmap(address, size)
        if failed:
            return None
        total += sum(byte & 1 for byte in told.raw)
    return total
