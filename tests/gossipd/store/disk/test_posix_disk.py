"""The real disk, by itself: nothing leads outside, nothing is cut short in silence, renames replace only when told."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import mmap
import os
import signal
import socket
import stat
import subprocess
from collections.abc import Iterator
from contextlib import chdir
from pathlib import Path
from threading import Thread

import pytest

from gossipd.core.errors import ExitCode, GossipdError
from gossipd.store.disk import syscalls
from gossipd.store.disk.disk import FileKind, NotAFileError, read_file, write_new_file
from gossipd.store.disk.posix_disk import PosixDisk, make_root


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[PosixDisk]:
    (tmp_path / "root").mkdir()
    one = PosixDisk(tmp_path / "root")
    yield one
    one.shut()


@pytest.fixture(params=["openat2", "walk"])
def opener(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once with the kernel's call, once as on a kernel without it."""
    if request.param == "walk":
        monkeypatch.setattr(syscalls, "_openat2", lambda *arguments: None)


@pytest.mark.usefixtures("opener")
@pytest.mark.parametrize(
    ("path", "number"),
    [
        ("../outside", errno.EXDEV),
        ("/etc/passwd", errno.EXDEV),
        ("a/../../outside", errno.EXDEV),
        ("link/file", errno.ELOOP),
        ("link", errno.ELOOP),
        ("file\0.txt", errno.EINVAL),
        ("missing", errno.ENOENT),
    ],
)
def test_nothing_is_opened_outside_or_through_a_link(disk: PosixDisk, tmp_path: Path, path: str, number: int) -> None:
    (tmp_path / "outside").write_text("secret")
    (tmp_path / "root" / "a").mkdir()
    (tmp_path / "root" / "file").write_text("shorter name")
    (tmp_path / "root" / "link").symlink_to(tmp_path)
    with pytest.raises(OSError) as caught:
        disk.open(path)
    assert caught.value.errno == number


def _plant(path: Path, kind: str) -> None:
    """Something that is no file."""
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as one, chdir(path.parent):
            one.bind(path.name)
    elif kind == "device":
        os.mknod(path, stat.S_IFCHR | 0o600, os.makedev(1, 3))
    else:
        path.mkdir()


@pytest.mark.usefixtures("opener")
@pytest.mark.parametrize("how", [{}, {"write": True}, {"write": True, "create": True}], ids=["read", "write", "create"])
@pytest.mark.parametrize("kind", ["pipe", "socket", "device", "directory"])
def test_what_is_no_file_is_refused_without_a_wait(
    disk: PosixDisk, tmp_path: Path, kind: str, how: dict[str, bool]
) -> None:
    if kind == "device" and os.geteuid():
        pytest.skip("only root makes devices")
    disk.make_directory("a")
    _plant(tmp_path / "root" / "a" / "f", kind)
    with pytest.raises(NotAFileError, match=kind) as caught:
        disk.open("a/f", **how)
    assert caught.value.filename == "a/f"


def test_a_file_under_a_lease_is_opened_when_that_ends(disk: PosixDisk, tmp_path: Path) -> None:
    """As by a thread that serves the file while another asks who has it open."""
    (tmp_path / "root" / "f").write_bytes(b"x")
    asking = disk.open("f")
    fcntl.fcntl(asking, 10, signal.SIGURG)
    fcntl.fcntl(asking, fcntl.F_SETLEASE, fcntl.F_WRLCK)
    opened: list[int] = []
    serving = Thread(target=lambda: opened.append(disk.open("f")))
    serving.start()
    serving.join(0.2)
    fcntl.fcntl(asking, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    serving.join(30)
    assert len(opened) == 1
    for descriptor in (asking, *opened):
        disk.close(descriptor)


@pytest.mark.usefixtures("opener")
def test_a_file_is_made_and_read_below_the_root(disk: PosixDisk) -> None:
    disk.make_directory("a")
    disk.make_directory("a/b")
    disk.make_directory("a/b")
    write_new_file(disk, "a/b/c", b"body")
    assert read_file(disk, "a/b/c", bytes_max=4) == b"body"
    assert disk.names("a/b") == ["c"]
    assert disk.kind("a/b/c") is FileKind.FILE
    assert disk.kind("a/x/c") is None


def test_a_refused_look_names_the_whole_path(disk: PosixDisk) -> None:
    disk.make_directory("m")
    path = f"m/{'x' * 300}"
    with pytest.raises(OSError, match="name too long") as caught:
        disk.kind(path)
    assert caught.value.filename == path


def test_a_file_larger_than_allowed_is_not_read(disk: PosixDisk) -> None:
    write_new_file(disk, "big", b"12345")
    with pytest.raises(OSError) as caught:
        read_file(disk, "big", bytes_max=4)
    assert caught.value.errno == errno.EFBIG


def test_a_rename_replaces_only_when_told(disk: PosixDisk) -> None:
    write_new_file(disk, "one", b"1")
    write_new_file(disk, "two", b"2")
    with pytest.raises(FileExistsError):
        disk.rename("one", "two")
    assert read_file(disk, "two", bytes_max=9) == b"2"
    disk.rename("one", "two", replace=True)
    assert read_file(disk, "two", bytes_max=9) == b"1"


def test_a_rename_onto_what_exists_is_refused_where_the_kernel_cannot_say_it(
    disk: PosixDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Without:
        def renameat2(self, *arguments: object) -> int:
            return -1

    monkeypatch.setattr(syscalls, "_libc", Without())
    monkeypatch.setattr(ctypes, "get_errno", lambda: errno.EINVAL)
    monkeypatch.setattr(syscalls, "_openat2", lambda *arguments: None)
    for name in ("one", "two"):
        os.close(disk.open(name, write=True, create=True))
    with pytest.raises(FileExistsError):
        disk.rename("one", "two")
    disk.rename("one", "three")
    assert sorted(disk.names("")) == ["three", "two"]


def test_space_is_reserved_without_writing_and_holes_are_known(disk: PosixDisk) -> None:
    descriptor = disk.open("f", write=True, create=True)
    if disk.allocate(descriptor, 1 << 20):
        assert disk.allocated(descriptor) >= 1 << 20
    disk.truncate(descriptor, 1 << 20)
    assert disk.is_unwritten(descriptor)
    disk.write_some(descriptor, memoryview(b"x" * 4096), 65536)
    assert not disk.is_unwritten(descriptor)
    assert disk.has_data(descriptor, 65536)
    disk.sync_data(descriptor)
    disk.forget(descriptor, 0, 0)
    body = bytearray(4096)
    assert disk.read_some(descriptor, memoryview(body), 65536, passing=True) == 4096
    assert body == b"x" * 4096
    disk.close(descriptor)


def test_copying_falls_back_to_reading_and_writing(disk: PosixDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    write_new_file(disk, "from", b"0123456789")
    source, target = disk.open("from"), disk.open("to", write=True, create=True)

    def refuse(*arguments: object) -> int:
        raise OSError(errno.EXDEV, "other file system")

    assert disk.copy_some(source, 2, target, 0, 3) == 3
    monkeypatch.setattr(os, "copy_file_range", refuse)
    assert disk.copy_some(source, 5, target, 3, 3) == 3
    disk.close(source)
    disk.close(target)
    assert read_file(disk, "to", bytes_max=9) == b"234567"


@pytest.mark.parametrize("number", [errno.EINVAL, errno.EROFS, errno.EOPNOTSUPP], ids=errno.errorcode.get)
def test_a_directory_above_the_store_that_cannot_be_synced_does_not_keep_it_from_being_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def refuse(_descriptor: int) -> None:
        raise OSError(number, "injected")

    monkeypatch.setattr(os, "fsync", refuse)
    make_root(tmp_path / "a" / "b", mode=0o700)
    assert (tmp_path / "a" / "b").is_dir()


def test_names_that_lead_to_the_store_are_synced_up_to_where_it_is_mounted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, synced = os.fsync, []

    def watched(descriptor: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", watched)
    make_root(tmp_path / "a" / "b", mode=0o700)
    assert synced[:2] == [str(tmp_path / "a"), str(tmp_path)]
    assert os.path.ismount(synced[-1])
    synced.clear()
    make_root(Path("/proc"), mode=0o700)
    assert synced == [], "a mount point's own name is not on a disk"


def test_a_directory_is_locked_only_while_nobody_holds_it(disk: PosixDisk, tmp_path: Path) -> None:
    disk.make_directory("v")
    holder = os.open(tmp_path / "root" / "v", os.O_RDONLY)
    fcntl.flock(holder, fcntl.LOCK_SH)
    assert disk.lock_directory("v") is None
    os.close(holder)
    lock = disk.lock_directory("v")
    assert lock is not None
    disk.close(lock)


def test_a_file_is_open_elsewhere_while_anybody_has_it(disk: PosixDisk, tmp_path: Path) -> None:
    path = tmp_path / "root" / "f"
    path.write_bytes(b"x")
    ours = disk.open("f")
    assert not disk.is_open_elsewhere(ours)
    with path.open("rb") as read:
        process = subprocess.Popen(["sleep", "60"], stdin=read)
    try:
        assert disk.is_open_elsewhere(ours)
    finally:
        process.kill()
        process.wait()
    assert not disk.is_open_elsewhere(ours)
    assert disk.last_read_s(ours) == path.stat().st_atime
    disk.close(ours)


@pytest.mark.parametrize("call", ["cachestat", "mincore"])
def test_what_was_just_read_is_cached_by_either_call(
    disk: PosixDisk, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    if call == "mincore":
        monkeypatch.setattr(syscalls, "_cachestat", lambda *arguments: None)
        monkeypatch.setattr(syscalls, "_MINCORE_BYTES", 8192)  # several mappings, the last one not whole
    write_new_file(disk, "file", bytes(20_000))
    descriptor = disk.open("file")
    assert disk.read_some(descriptor, memoryview(bytearray(20_000)), 0) == 20_000
    assert [disk.cached(descriptor, 0, 20_000), disk.cached(descriptor, 5_000, 100)] == [20_000, 100]
    assert disk.cached(descriptor, 0, 0) == 0
    disk.close(descriptor)


def _by_mincore(descriptor: int) -> int:
    pages = syscalls._mincore(descriptor, 0, 1 << 20)
    assert pages is not None
    return pages * mmap.PAGESIZE


def test_pages_that_are_not_there_count_for_neither_call(disk: PosixDisk) -> None:
    descriptor = disk.open("file", write=True, create=True)
    disk.truncate(descriptor, 1 << 20)
    disk.write_some(descriptor, memoryview(b"x" * 4096), 65_536)
    assert disk.cached(descriptor, 0, 1 << 20) == _by_mincore(descriptor) < 1 << 20
    disk.close(descriptor)


def test_a_kernel_that_tells_neither_way_says_so(disk: PosixDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_cachestat", "_mincore"):
        monkeypatch.setattr(syscalls, name, lambda *arguments: None)
    descriptor = disk.open("file", write=True, create=True)
    assert disk.cached(descriptor, 0, 1) is None
    disk.close(descriptor)


@pytest.mark.parametrize(
    ("number", "code", "exit_code"),
    [
        (errno.EACCES, "E_STORE_MODE", ExitCode.USAGE), (errno.ENOTDIR, "E_PATH_KIND", ExitCode.USAGE),
        (errno.EROFS, "E_STORE_WRITE", ExitCode.DISK), (errno.ENOSPC, "E_STORE_WRITE", ExitCode.DISK),
    ],
)  # fmt: skip
def test_a_root_that_cannot_be_made_ends_with_the_code_of_its_cure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, code: str, exit_code: ExitCode
) -> None:
    def refuse(path: Path, **_: object) -> None:
        raise OSError(number, os.strerror(number), str(path))

    monkeypatch.setattr(Path, "mkdir", refuse)
    with pytest.raises(GossipdError, match=rf"^{tmp_path}/new cannot be made: ") as caught:
        make_root(tmp_path / "new", mode=0o700)
    assert (caught.value.code, getattr(caught.value, "code_of_exit", caught.value.exit_code)) == (code, exit_code)


def test_names_that_come_and_go_change_a_directory_s_mark(disk: PosixDisk, tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "tree" / "inner").mkdir(parents=True)
    (root / "tree" / "file").write_text("one")
    os.utime(root / "tree", ns=(1, 1))
    before = disk.names_mark("tree")
    (root / "tree" / "file").write_text("other bytes")
    (root / "tree" / "inner" / "deeper").touch()
    assert disk.names_mark("tree") == before, "its own names are the same"
    (root / "tree" / "file").rename(root / "tree" / "renamed")
    assert disk.names_mark("tree") != before
    assert disk.names_mark("missing") is None
    assert disk.names_mark("tree/renamed") is None


def test_a_hole_gives_its_blocks_back_and_reads_as_zeros(disk: PosixDisk) -> None:
    descriptor = disk.open("file", write=True, create=True)
    disk.write_some(descriptor, memoryview(bytes([1]) * (64 << 10)), 0)
    before = disk.allocated(descriptor)
    if disk.punch(descriptor, 8 << 10, 32 << 10):
        assert disk.allocated(descriptor) == before - (32 << 10)
        body = bytearray(64 << 10)
        disk.read_some(descriptor, memoryview(body), 0)
        assert bytes(body) == bytes([1]) * (8 << 10) + bytes(32 << 10) + bytes([1]) * (24 << 10)
    else:
        assert disk.allocated(descriptor) == before
    assert disk.size(descriptor) == 64 << 10
    disk.close(descriptor)
