"""A disk in memory that knows what a power cut would leave: the other body of the store's ``Disk`` port.

Every file and directory has two states, as the kernel sees it and as the device has it. Writes reach the device
when the file is synced; names when their directory is, a rename as a whole when the directory it leads to is.
``killed`` is the disk after the process died: everything the kernel had. ``cut`` is the disk after the power failed:
what was synced, and of the rest whatever ``keep`` draws, write by write, some of them torn. That is harsher than a
journaling file system, which keeps some order.

``before`` is called before each call that changes anything, with its name and number, and may raise: an OSError is
what the store sees, a ``Crash`` ends the run. Not thread-safe: the store's own threads are not started on it.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import TypeAlias

from gossipd.store.disk.disk import FileKind, Space

BLOCK = 4096


class Crash(BaseException):
    """The process is gone. Not an Exception: nothing in the store may catch it."""


@dataclass(eq=False)
class File:
    """Bytes as the kernel has them; ``device`` as of the last sync, ``pending`` what came since."""

    data: bytearray = field(default_factory=bytearray)
    device: bytearray = field(default_factory=bytearray)
    pending: list[tuple[int, bytes | None]] = field(default_factory=list)
    written: set[int] = field(default_factory=set)
    device_written: set[int] = field(default_factory=set)
    cached: set[int] = field(default_factory=set)
    """Blocks that were read or written and not dropped since then; none of those the file had at a start."""
    mode: int = 0o644

    def put(self, offset: int, body: bytes | None) -> None:
        """Write, or set the length when ``body`` is None; in the kernel now, on the device later."""
        _apply(self.data, self.written, offset, body)
        self.pending.append((offset, body))

    def sync(self) -> None:
        """Only what is pending goes to the device: pages that a failed sync marked clean never do."""
        for offset, body in self.pending:
            _apply(self.device, self.device_written, offset, body)
        self.pending.clear()


@dataclass(eq=False)
class Directory:
    """Names as the kernel has them, and as the device has."""

    names: dict[str, Node] = field(default_factory=dict)
    device: dict[str, Node] = field(default_factory=dict)


@dataclass(eq=False)
class Link:
    text: str


Node: TypeAlias = File | Directory | Link
Change: TypeAlias = tuple[Directory, str, "Node | None"]


class MemoryDisk:
    """Implements ``Disk``."""

    def __init__(self, *, total_bytes: int = 1 << 40) -> None:
        self.root = Directory()
        self.calls: list[str] = []
        self.before: Callable[[str, int], None] = lambda name, number: None
        self.total_bytes = total_bytes
        self.used_bytes = 0  # by others
        self.lock_owner: int | None = None
        self.held: set[str] = set()  # directories that somebody holds
        self.open_elsewhere: set[str] = set()  # files that another process has open
        self.last_reads: dict[str, float] = {}  # files, and when others read them last
        self.can_allocate = True
        self.file_bytes_max = 1 << 62
        self.tells_cached = True
        self.write_backs = 0
        self._pending: list[list[Change]] = []
        self._open: dict[int, tuple[Node, bool]] = {}
        self._next = 100

    # ---- crashes ----------------------------------------------------------------------------------

    def killed(self) -> MemoryDisk:
        """The disk as the next process finds it: nothing is lost, nobody holds the lock."""
        self.before = lambda name, number: None
        self._open.clear()
        self.lock_owner = None
        self.calls = []
        return self

    def cut(self, keep: Callable[[], bool], random: Random) -> MemoryDisk:
        """The disk after a power failure: ``keep`` says for each unsynced write or rename whether it had got there."""
        for changes in self._pending:
            if keep():
                for directory, name, node in changes:
                    _set_name(directory.device, name, node)
        after = MemoryDisk(total_bytes=self.total_bytes)
        after.root = _as_on_device(self.root, keep, random, {})
        return after

    # ---- files ------------------------------------------------------------------------------------

    def open(self, path: str, *, write: bool = False, create: bool = False, mode: int = 0o644) -> int:
        directory, name = self._parent(path)
        node = directory.names.get(name)
        if node is None:
            if not create:
                raise FileNotFoundError(errno.ENOENT, "no such file", path)
            self._call("create", path)
            node = File(mode=mode)
            self._change([(directory, name, node)])
        elif write:
            self._call("open", path)
        if isinstance(node, Link):
            raise OSError(errno.ELOOP, "symbolic link", path)
        if isinstance(node, Directory):
            raise IsADirectoryError(errno.EISDIR, "is a directory", path)
        return self._descriptor(node, write)

    def close(self, descriptor: int) -> None:
        node, _ = self._open.pop(descriptor, (None, False))
        if self.lock_owner == descriptor:
            self.lock_owner = None
        assert node is not None or not self._open, "closed twice"

    def lock(self, path: str) -> int:
        descriptor = self.open(path, create=True)
        if self.lock_owner is not None:
            raise BlockingIOError(errno.EAGAIN, "locked")
        self.lock_owner = descriptor
        return descriptor

    def lock_directory(self, path: str) -> int | None:
        return None if path in self.held else self._descriptor(self._directory(path), False)

    def is_open_elsewhere(self, descriptor: int) -> bool:
        node, _ = self._open[descriptor]
        return any(self.file(path) is node for path in self.open_elsewhere)

    def last_read_s(self, descriptor: int) -> float:
        node, _ = self._open[descriptor]
        return next((at for path, at in self.last_reads.items() if self.file(path) is node), 0.0)

    def write_some(self, descriptor: int, data: memoryview, offset: int) -> int:
        self._call("write", "")
        if offset + len(data) > self.file_bytes_max:
            raise OSError(errno.EFBIG, "File too large")
        file = self._file(descriptor, write=True)
        file.put(offset, bytes(data))
        file.cached.update(_blocks(offset, len(data)))
        return len(data)

    def read_some(self, descriptor: int, into: memoryview, offset: int, *, passing: bool = False) -> int:
        file = self._file(descriptor)
        data = file.data[offset : offset + len(into)]
        into[: len(data)] = data
        if not passing:
            file.cached.update(_blocks(offset, len(data)))
        return len(data)

    def copy_some(self, source: int, source_offset: int, target: int, target_offset: int, length: int) -> int:
        self._call("copy", "")
        body = bytes(self._file(source).data[source_offset : source_offset + length])
        file = self._file(target, write=True)
        file.put(target_offset, body)
        file.cached.update(_blocks(target_offset, len(body)))
        return len(body)

    def allocate(self, descriptor: int, length: int) -> bool:
        self._call("allocate", "")
        if self.can_allocate:
            self._file(descriptor, write=True).put(length, None)
        return self.can_allocate

    def punch(self, descriptor: int, offset: int, length: int) -> bool:
        self._call("punch", "")
        self._file(descriptor, write=True).put(offset, bytes(length))
        return True

    def truncate(self, descriptor: int, length: int) -> None:
        self._call("truncate", "")
        self._file(descriptor, write=True).put(length, None)

    def set_mode(self, descriptor: int, mode: int) -> None:
        self._call("set_mode", "")
        self._file(descriptor).mode = mode

    def size(self, descriptor: int) -> int:
        return len(self._file(descriptor).data)

    def allocated(self, descriptor: int) -> int:
        return len(self._file(descriptor).data)

    def has_data(self, descriptor: int, offset: int) -> bool:
        return offset // BLOCK in self._file(descriptor).written

    def is_unwritten(self, descriptor: int) -> bool:
        return not self._file(descriptor).written

    def forget(self, descriptor: int, offset: int, length: int) -> None:
        """Clean pages are dropped: what is read next is what the device has."""
        file = self._file(descriptor)
        if not file.pending:
            file.data = bytearray(file.device)
            file.cached.difference_update(_blocks(offset, length or len(file.data)))

    def cached(self, descriptor: int, offset: int, length: int) -> int | None:
        if not self.tells_cached:
            return None
        return min(length, BLOCK * len(self._file(descriptor).cached & set(_blocks(offset, length))))

    def start_write_back(self, descriptor: int) -> None:
        self.write_backs += 1

    def sync_data(self, descriptor: int) -> None:
        self._sync("sync_data", descriptor)

    def sync_file(self, descriptor: int) -> None:
        self._sync("sync_file", descriptor)

    def sync_everything(self) -> None:
        self._call("sync_everything", "")
        for file in _files(self.root):
            file.sync()

    def _sync(self, name: str, descriptor: int) -> None:
        file = self._file(descriptor)
        try:
            self._call(name, "")
        except OSError:
            file.pending.clear()  # as Linux does: the pages stay, marked clean, and the next sync succeeds
            raise
        file.sync()

    # ---- names ------------------------------------------------------------------------------------

    def sync_directory(self, path: str) -> None:
        self._call("sync_directory", path)
        directory = self._directory(path)
        left = []
        for changes in self._pending:
            if changes[-1][0] is directory:
                for changed, name, node in changes:
                    _set_name(changed.device, name, node)
            else:
                left.append(changes)
        self._pending = left

    def rename(self, source: str, target: str, *, replace: bool = False) -> None:
        source_directory, source_name = self._parent(source)
        target_directory, target_name = self._parent(target)
        if source_name not in source_directory.names:
            raise FileNotFoundError(errno.ENOENT, "no such file", source)
        if target_name in target_directory.names and not replace:
            raise FileExistsError(errno.EEXIST, "exists", target)
        self._call("rename", target)
        node = source_directory.names[source_name]
        self._change([(source_directory, source_name, None), (target_directory, target_name, node)])

    def make_link(self, text: str, path: str) -> None:
        directory, name = self._parent(path)
        if name in directory.names:
            raise FileExistsError(errno.EEXIST, "exists", path)
        self._call("make_link", path)
        self._change([(directory, name, Link(text))])

    def read_link(self, path: str) -> str:
        directory, name = self._parent(path)
        node = directory.names[name]
        assert isinstance(node, Link)
        return node.text

    def make_directory(self, path: str) -> None:
        directory, name = self._parent(path)
        if name in directory.names:
            if not isinstance(directory.names[name], Directory):
                raise FileExistsError(errno.EEXIST, "exists", path)
            return
        self._call("make_directory", path)
        self._change([(directory, name, Directory())])

    def remove_file(self, path: str) -> None:
        directory, name = self._parent(path)
        if name not in directory.names:
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        self._call("remove_file", path)
        self._change([(directory, name, None)])

    def remove_directory(self, path: str) -> None:
        if self._directory(path).names:
            raise OSError(errno.ENOTEMPTY, "not empty", path)
        directory, name = self._parent(path)
        self._call("remove_directory", path)
        self._change([(directory, name, None)])

    def names(self, path: str) -> list[str]:
        return list(self._directory(path).names)

    def kind(self, path: str) -> FileKind | None:
        try:
            directory, name = self._parent(path)
        except (FileNotFoundError, NotADirectoryError):
            return None
        node = directory.names.get(name)
        kinds: dict[type[object], FileKind] = {File: FileKind.FILE, Directory: FileKind.DIRECTORY, Link: FileKind.LINK}
        return kinds[type(node)] if node is not None else None

    def names_mark(self, path: str) -> int | None:
        try:
            directory = self._directory(path)
        except (FileNotFoundError, NotADirectoryError):
            return None
        return hash(tuple(sorted((name, id(node)) for name, node in directory.names.items())))

    def space(self) -> Space:
        used = sum(len(file.data) for file in _files(self.root))
        return Space(max(0, self.total_bytes - self.used_bytes - used), self.total_bytes)

    def memory_file(self) -> int:
        return self._descriptor(File(), True)

    # ---- for tests --------------------------------------------------------------------------------

    def content(self, path: str) -> bytes:
        """Of a file, as the kernel sees it."""
        directory, name = self._parent(path)
        node = directory.names[name]
        assert isinstance(node, File)
        return bytes(node.data)

    def file(self, path: str) -> File:
        directory, name = self._parent(path)
        node = directory.names[name]
        assert isinstance(node, File)
        return node

    @property
    def unsynced_names(self) -> int:
        """Changes of names that are not on the device: ``cut`` asks about these first, then about bytes."""
        return len(self._pending)

    @property
    def open_count(self) -> int:
        return len(self._open)

    def _call(self, name: str, path: str) -> None:
        self.before(name, len(self.calls))
        self.calls.append(f"{name} {path}".strip())

    def _change(self, changes: list[Change]) -> None:
        for directory, name, node in changes:
            _set_name(directory.names, name, node)
        self._pending.append(changes)

    def _descriptor(self, node: Node, write: bool) -> int:
        self._next += 1
        self._open[self._next] = (node, write)
        return self._next

    def _file(self, descriptor: int, *, write: bool = False) -> File:
        node, is_writable = self._open[descriptor]
        if write and not is_writable:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        assert isinstance(node, File)
        return node

    def _directory(self, path: str) -> Directory:
        node: Node = self.root
        for component in [part for part in path.split("/") if part]:
            if isinstance(node, Link):
                raise OSError(errno.ELOOP, "symbolic link", path)
            if not isinstance(node, Directory) or component not in node.names:
                raise FileNotFoundError(errno.ENOENT, "no such directory", path)
            node = node.names[component]
        if not isinstance(node, Directory):
            raise OSError(errno.ELOOP if isinstance(node, Link) else errno.ENOTDIR, "not a directory", path)
        return node

    def _parent(self, path: str) -> tuple[Directory, str]:
        at, _, name = path.rpartition("/")
        return self._directory(at), name


def _blocks(offset: int, length: int) -> range:
    return range(offset // BLOCK, -(-(offset + length) // BLOCK))


def _set_name(names: dict[str, Node], name: str, node: Node | None) -> None:
    if node is None:
        names.pop(name, None)
    else:
        names[name] = node


def _apply(data: bytearray, written: set[int], offset: int, body: bytes | None) -> None:
    if body is None:
        if offset < len(data):
            del data[offset:]
            written -= {block for block in written if block * BLOCK >= offset}
        else:
            data.extend(bytes(offset - len(data)))
        return
    if len(data) < offset + len(body):
        data.extend(bytes(offset + len(body) - len(data)))
    data[offset : offset + len(body)] = body
    written.update(range(offset // BLOCK, (offset + len(body) - 1) // BLOCK + 1))


def _files(directory: Directory) -> list[File]:
    found = []
    for node in directory.names.values():
        if isinstance(node, File):
            found.append(node)
        elif isinstance(node, Directory):
            found += _files(node)
    return found


def _as_on_device(directory: Directory, keep: Callable[[], bool], random: Random, seen: dict[int, Node]) -> Directory:
    after = Directory()
    for name, node in directory.device.items():
        if isinstance(node, Link):
            after.names[name] = node
        elif isinstance(node, Directory):
            after.names[name] = _as_on_device(node, keep, random, seen)
        else:
            after.names[name] = seen.setdefault(id(node), _file_on_device(node, keep, random))
    after.device = dict(after.names)
    return after


def _file_on_device(file: File, keep: Callable[[], bool], random: Random) -> File:
    data, written = bytearray(file.device), set(file.device_written)
    for offset, body in file.pending:
        if not keep():
            continue
        if body is not None and random.random() < 0.25:
            body = body[: random.randrange(len(body) + 1)]  # torn
            if not body:
                continue
        _apply(data, written, offset, body)
    return File(data=data, device=bytearray(data), written=written, device_written=set(written), mode=file.mode)
