"""Publishing from a disk: every chunk right, however it is read, and nothing half old and half new."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from threading import Event

import pytest

from gossipd.manifest.chunk_layout import EXTENT_BYTES_MAX, Layout, Segment
from gossipd.publish import file_reading as files_module
from gossipd.publish.errors import PublishError, TreeChangedError
from gossipd.publish.extents import FileExtent, runs
from gossipd.publish.file_reading import LocalFiles, WholeFiles, open_found
from gossipd.publish.hashing import hash_chunks
from gossipd.publish.selection import Selection
from gossipd.publish.tree import find_files
from tests.gossipd.publish.trees import CHUNK, Unwatched, check_against, make_tree, published

MIB = 1024 * 1024


def ignore(count: int) -> None:
    """Nobody watches."""


def test_every_chunk_of_every_file_is_hashed_right(tmp_path: Path) -> None:
    tree = make_tree(tmp_path / "tree")
    _, manifest = published(tree, tmp_path / "out")
    check_against(manifest, tree)


@pytest.mark.parametrize("chunk_bytes", [CHUNK, 4 * CHUNK, 32 * MIB])
def test_mapped_and_read_files_hash_alike(tmp_path: Path, chunk_bytes: int) -> None:
    tree = make_tree(tmp_path, {"a": 17 * MIB + 5, "b": 3 * CHUNK, "c": 100})
    found = find_files(tree, Selection())
    layout = Layout([file.size for file in found], chunk_bytes)
    mapped = hash_chunks(layout, LocalFiles(found), ignore)
    assert mapped == hash_chunks(layout, LocalFiles(found, mapped=False), ignore)


def test_whole_files_are_hashed_along_with_their_chunks(tmp_path: Path) -> None:
    tree = make_tree(tmp_path, {"a": 17 * MIB + 5, "b": 3 * CHUNK, "c": 100, "d": CHUNK - 1, "e": CHUNK - 1, "f": 0})
    found = find_files(tree, Selection())
    layout, reader = Layout([file.size for file in found], CHUNK), WholeFiles(found)
    assert hash_chunks(layout, reader, ignore, by_file=True) == hash_chunks(layout, LocalFiles(found), ignore)
    assert reader.whole_digests() == {file.path: sha256((tree / file.path).read_bytes()).digest() for file in found}


def test_a_file_that_is_open_for_writing_elsewhere_is_read_and_not_mapped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = make_tree(tmp_path / "tree")
    leases: list[bool] = []
    real = files_module._lease

    def noting(descriptor: int) -> bool:
        leases.append(real(descriptor))
        return leases[-1]

    monkeypatch.setattr(files_module, "_lease", noting)
    published(tree, tmp_path / "out")
    assert all(leases)
    leases.clear()
    with (tree / "model-00001-of-00002.safetensors").open("r+b"):
        _, manifest = published(tree, tmp_path / "out")
    assert not all(leases)
    check_against(manifest, tree)


def test_nobody_can_cut_a_file_while_it_is_mapped(tmp_path: Path) -> None:
    """Without the lease a truncation would kill the process with SIGBUS."""
    path = tmp_path / "a"
    path.write_bytes(bytes(4 * CHUNK))
    descriptor = os.open(path, os.O_RDONLY)
    assert files_module._lease(descriptor)
    truncate = f"import os; os.open({str(path)!r}, os.O_WRONLY | os.O_TRUNC | os.O_NONBLOCK)"
    refused = subprocess.run([sys.executable, "-c", truncate], capture_output=True, text=True)
    assert "BlockingIOError" in refused.stderr
    os.close(descriptor)
    assert subprocess.run([sys.executable, "-c", truncate], capture_output=True).returncode == 0


class _Meddling(LocalFiles):
    """Does something to the tree after the n-th run."""

    def __init__(self, found: object, meddle: object, *, mapped: bool) -> None:
        super().__init__(found, mapped=mapped)  # type: ignore[arg-type]
        self.threads = 1
        self._meddle = meddle

    def hash_extent(self, run: FileExtent) -> bytes:
        digests = super().hash_extent(run)
        self._meddle()  # type: ignore[operator]
        return digests


@pytest.mark.parametrize("mapped", [True, False])
@pytest.mark.parametrize("what", ["written", "cut", "replaced", "removed"])
def test_a_file_that_changes_between_two_runs_is_refused(tmp_path: Path, what: str, mapped: bool) -> None:
    path = make_tree(tmp_path, {"model.bin": 2 * EXTENT_BYTES_MAX}) / "model.bin"
    found = find_files(tmp_path, Selection())

    def meddle() -> None:
        if what == "written":
            with path.open("r+b") as file:
                file.write(b"new")
        elif what == "cut":
            os.truncate(path, EXTENT_BYTES_MAX)
        elif what == "replaced":
            copy = tmp_path / "copy"
            copy.write_bytes(path.read_bytes())
            copy.replace(path)
        else:
            path.unlink()

    reader = _Meddling(found, meddle, mapped=mapped)
    with pytest.raises(TreeChangedError, match=r"model\.bin.*changed while it was hashed"):
        hash_chunks(Layout([2 * EXTENT_BYTES_MAX], CHUNK), reader, ignore)


def test_a_file_cut_during_a_read_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = make_tree(tmp_path, {"model.bin": 20 * CHUNK}) / "model.bin"
    found = find_files(tmp_path, Selection())
    real = os.preadv

    def cutting(descriptor: int, buffers: list[memoryview], offset: int) -> int:
        os.truncate(path, 10 * CHUNK)
        return real(descriptor, buffers, offset)

    monkeypatch.setattr(os, "preadv", cutting)
    with pytest.raises(TreeChangedError):
        LocalFiles(found, mapped=False).hash_extent(next(runs(Layout([20 * CHUNK], CHUNK))))


def test_a_file_written_to_during_a_read_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = make_tree(tmp_path, {"model.bin": 20 * CHUNK}) / "model.bin"
    found = find_files(tmp_path, Selection())
    real = os.preadv

    def writing(descriptor: int, buffers: list[memoryview], offset: int) -> int:
        with path.open("r+b") as file:
            file.write(b"new")
        return real(descriptor, buffers, offset)

    monkeypatch.setattr(os, "preadv", writing)
    with pytest.raises(TreeChangedError):
        LocalFiles(found, mapped=False).hash_extent(next(runs(Layout([20 * CHUNK], CHUNK))))


def test_a_file_cut_just_before_the_lease_is_not_mapped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = make_tree(tmp_path, {"model.bin": 20 * CHUNK}) / "model.bin"
    found = find_files(tmp_path, Selection())
    real = files_module._lease

    def late(descriptor: int) -> bool:
        os.truncate(path, CHUNK)
        return real(descriptor)

    monkeypatch.setattr(files_module, "_lease", late)
    with pytest.raises(TreeChangedError):
        LocalFiles(found).hash_extent(next(runs(Layout([20 * CHUNK], CHUNK))))


class _FailsSecond:
    """The second run fails while the first is under way; the others cost nothing."""

    threads = 2

    def read_piece(self, index: int, offset: int, length: int) -> bytes:
        raise AssertionError("hashing reads extents")

    def __init__(self) -> None:
        self.done = 0
        self._failing = Event()

    def hash_extent(self, run: FileExtent) -> bytes:
        if run.first_chunk == 1:
            self._failing.set()
            raise PublishError("broken")
        self._failing.wait()
        self.done += 1
        return bytes(32 * run.count)


def test_the_first_error_stops_every_thread() -> None:
    reader = _FailsSecond()
    layout = Layout([2**44], 64 * MIB)  # enough runs that a thread which goes on is seen
    with pytest.raises(PublishError, match="broken"):
        hash_chunks(layout, reader, ignore)
    assert reader.done < layout.chunk_count - 1


def test_short_reads_are_finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree = make_tree(tmp_path / "tree")
    found = find_files(tree, Selection())
    layout = Layout([file.size for file in found], CHUNK)
    whole = hash_chunks(layout, LocalFiles(found, mapped=False), ignore)
    real = os.preadv
    monkeypatch.setattr(os, "preadv", lambda fd, buffers, offset: real(fd, [buffers[0][:1000]], offset))
    assert hash_chunks(layout, LocalFiles(found, mapped=False), ignore) == whole


def test_a_file_that_cannot_be_read_stops_everything_and_is_named(tmp_path: Path) -> None:
    found = find_files(make_tree(tmp_path, {"a": 3 * CHUNK, "b/c": 3 * CHUNK}), Selection())
    (tmp_path / "b" / "c").unlink()
    (tmp_path / "b").rmdir()
    (tmp_path / "b").write_text("in the way")
    with pytest.raises(PublishError, match="b/c") as caught:
        hash_chunks(Layout([3 * CHUNK] * 2, CHUNK), LocalFiles(found), ignore)
    assert caught.value.code == "E_SOURCE_READ"


def test_a_file_that_is_there_twice_is_hashed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree = make_tree(tmp_path / "tree", {"a": 17 * MIB + 5, "small": 100})
    (tree / "b").symlink_to("a")
    (tree / "c").hardlink_to(tree / "a")
    asked: list[tuple[int, int]] = []
    real = LocalFiles._hash_adjacent

    def noting(files: LocalFiles, segment: Segment, lengths: Sequence[int]) -> bytes:
        asked.append((segment.offset, segment.length))
        return real(files, segment, lengths)

    monkeypatch.setattr(LocalFiles, "_hash_adjacent", noting)
    _, manifest = published(tree, tmp_path / "out")
    check_against(manifest, tree)
    assert len(asked) == len(set(asked))


@pytest.mark.parametrize("what", ["file", "directory"])
def test_a_link_that_appears_after_the_walk_leads_nowhere(tmp_path: Path, what: str) -> None:
    make_tree(tmp_path / "secret", {"a": 3 * CHUNK})
    tree = make_tree(tmp_path / "tree", {"d/a": 3 * CHUNK})
    found = find_files(tree, Selection())
    if what == "file":
        (tree / "d" / "a").unlink()
        (tree / "d" / "a").symlink_to(tmp_path / "secret" / "a")
    else:
        (tree / "d").rename(tmp_path / "moved")
        (tree / "d").symlink_to(tmp_path / "secret")
    with pytest.raises(OSError, match="symbolic links"):
        os.close(open_found(found[0]))
    with pytest.raises(TreeChangedError, match="d/a"):
        hash_chunks(Layout([3 * CHUNK], CHUNK), LocalFiles(found), ignore)


def test_a_snapshot_whose_link_is_exchanged_meanwhile_is_refused(tmp_path: Path) -> None:
    root = tmp_path / "models--org--name"
    make_tree(root / "blobs", {"b0": 3 * CHUNK, "b1": 3 * CHUNK})
    snapshot = root / "snapshots" / "rev"
    snapshot.mkdir(parents=True)
    (snapshot / "a").symlink_to("../../blobs/b0")
    found = find_files(snapshot, Selection())
    (snapshot / "a").unlink()
    (snapshot / "a").symlink_to("../../blobs/b1")
    hash_chunks(Layout([3 * CHUNK], CHUNK), LocalFiles(found), ignore)  # what was found, not what is there now
    assert find_files(snapshot, Selection()) != found, "which ends publishing"


def test_runs_cover_every_chunk_once_and_stay_small() -> None:
    layout = Layout([40 * MIB + 1, 5, 16 * MIB, MIB, MIB - 1, 100], MIB)
    chunks: list[int] = []
    for run in runs(layout):
        assert run.length <= EXTENT_BYTES_MAX
        assert run.length == sum(layout.chunk_length(run.first_chunk + at) for at in range(run.count))
        assert run.length == sum(segment.length for segment in run.segments)
        assert run.count == 1 or len(run.segments) == 1
        chunks += range(run.first_chunk, run.first_chunk + run.count)
    assert chunks == list(range(layout.chunk_count))


def test_progress_ends_at_exactly_everything(tmp_path: Path) -> None:
    found = find_files(make_tree(tmp_path), Selection())
    layout = Layout([file.size for file in found], CHUNK)
    watcher = Unwatched()
    hash_chunks(layout, LocalFiles(found), watcher.hashed)
    assert watcher.bytes_hashed == layout.bytes_total
