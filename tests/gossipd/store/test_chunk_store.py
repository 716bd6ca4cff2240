"""The public part of the store, on a real directory."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from random import Random
from threading import Barrier, Thread

import pytest

from gossipd.core.errors import ExitCode, GossipdError, NotFoundError
from gossipd.core.events import ChunkLost, ChunkStored
from gossipd.core.ids import COPIED, LOCAL, SOURCE
from gossipd.manifest.equal_chunks import equal_chunks
from gossipd.runtime.ports import DigestMismatchError, NotHeldError
from gossipd.store.chunk_store import ChunkStore
from gossipd.store.disk.disk import Space
from gossipd.store.disk.posix_disk import PosixDisk
from gossipd.store.errors import (
    CaseFoldedError,
    NoSpaceError,
    StoreFormatError,
    StoreLockedError,
    StoreModeError,
    StorePathError,
    VersionTakenError,
)
from gossipd.store.notices import ModelEvicted, StoreEvent
from gossipd.store.settings import PageCache, StoreSettings, StoreSettingsError
from tests.gossipd.store.small_models import CHUNK, Model, build, small

ONE = small(version=1)


class Opened:
    """A store on ``root`` with the events it has told."""

    def __init__(self, root: Path, *, settings: StoreSettings | None = None, background: bool = False) -> None:
        self.root = root
        self.events: list[StoreEvent] = []
        self.store = ChunkStore(root, settings=settings, on_event=self.events.append, background=background)

    def put(self, model: Model, *chunks: int) -> None:
        for chunk in chunks:
            self.store.put(model.manifest.id, chunk, model.chunks[chunk], SOURCE, 0.5)

    def deliver(self, model: Model) -> None:
        held = self.store.open(model.manifest)
        self.put(model, *(chunk for chunk in range(len(model.chunks)) if chunk not in held))
        self.store.finish(model.manifest.id)

    def again(self) -> Opened:
        """Closed and opened again, as by a restart."""
        self.store.close()
        return Opened(self.root)


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Opened]:
    one = Opened(tmp_path)
    yield one
    one.store.close()


def _tree(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def test_a_model_arrives_byte_for_byte_and_current_leads_to_it(opened: Opened) -> None:
    opened.deliver(ONE)
    assert _tree(opened.root / "m" / "1") == ONE.files
    assert os.readlink(opened.root / "m" / "current") == "1"
    assert opened.store.versions("m") == [1]
    assert opened.store.current("m") == 1
    assert list((opened.root / ".incoming").iterdir()) == []


def test_nobody_sees_a_model_before_it_is_whole(opened: Opened) -> None:
    opened.store.open(ONE.manifest)
    opened.put(ONE, 0, 1, 2, 3, 4)
    assert sorted(path.name for path in opened.root.iterdir() if not path.name.startswith(".")) == []
    with pytest.raises(Exception, match="not durable yet") as caught:
        opened.store.finish(ONE.manifest.id)
    assert getattr(caught.value, "code", "") == "E_NOT_WHOLE"


def test_modes_are_those_of_plain_files_and_programs(opened: Opened) -> None:
    opened.deliver(build({"run.sh": b"x", "sub/y": b"y"}, mode=0o711, name="org/tools"))
    opened.deliver(build({"secret": b"x"}, mode=0o600, name="plain"))
    assert (opened.root / "org/tools/1/run.sh").stat().st_mode & 0o7777 == 0o755
    assert (opened.root / "plain/1/secret").stat().st_mode & 0o7777 == 0o644


def test_wrong_bytes_are_counted_and_never_written(opened: Opened) -> None:
    opened.store.open(ONE.manifest)
    wrong = bytearray(ONE.chunks[0])
    wrong[17] ^= 1
    with pytest.raises(DigestMismatchError):
        opened.store.put(ONE.manifest.id, 0, memoryview(wrong), SOURCE, 0.0)
    incoming = opened.root / ".incoming" / ONE.manifest.id.hex()
    assert (incoming / "shards/one.bin").read_bytes().count(0) == len(ONE.files["shards/one.bin"])
    figures = opened.store.statistics().models[ONE.manifest.id]
    assert (figures.mismatch_count, figures.mismatch_bytes) == (1, len(wrong))
    assert opened.events == []


def test_a_chunk_stored_event_names_the_supplier_and_the_length(opened: Opened) -> None:
    opened.store.open(ONE.manifest)
    opened.put(ONE, 2)
    assert opened.events == [ChunkStored(ONE.manifest.id, 2, SOURCE, 100, 0.5)]


def test_many_threads_delivering_the_same_chunks_write_each_once(tmp_path: Path) -> None:
    model = build({f"f{number}": Random(number).randbytes(3 * CHUNK + number) for number in range(5)})
    opened = Opened(tmp_path, background=True, settings=StoreSettings(window_s=0.01))
    opened.store.open(model.manifest)
    gate = Barrier(8)

    def deliver() -> None:
        gate.wait()
        opened.put(model, *range(len(model.chunks)))

    threads = [Thread(target=deliver) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    opened.store.finish(model.manifest.id)
    assert _tree(tmp_path / "m" / "1") == model.files
    stored = [event.chunk for event in opened.events if isinstance(event, ChunkStored)]
    assert sorted(stored) == list(range(len(model.chunks)))
    figures = opened.store.statistics().models[model.manifest.id]
    assert figures.duplicate_bytes == 7 * sum(len(body) for body in model.chunks)
    opened.store.close()


def test_reading_goes_on_through_publishing(tmp_path: Path) -> None:
    opened = Opened(tmp_path)
    opened.store.open(ONE.manifest)
    opened.put(ONE, *range(6))
    before = opened.store.open_chunk(ONE.manifest.id, 1)
    opened.store.finish(ONE.manifest.id)
    after = opened.store.open_chunk(ONE.manifest.id, 1)
    for chunk in (before, after):
        assert os.pread(chunk.spans[0].descriptor, chunk.length, chunk.spans[0].offset) == ONE.chunks[1]
        chunk.close()
        chunk.close()
    opened.store.close()


def test_a_chunk_of_many_small_files_is_sent_from_one_descriptor(opened: Opened) -> None:
    model = build({f"{number:03}.txt": bytes([number]) * (number + 1) for number in range(100)})
    opened.deliver(model)
    chunk = opened.store.open_chunk(model.manifest.id, 0)
    assert len(chunk.spans) == 1
    assert os.pread(chunk.spans[0].descriptor, chunk.length, 0) == model.chunks[0]
    chunk.close()


def test_a_chunk_of_more_files_than_may_be_open_is_written_all_the_same(tmp_path: Path) -> None:
    opened = Opened(tmp_path, settings=StoreSettings(open_files_max=8))
    model = build({f"{number:03}.txt": bytes([number]) * (number + 1) for number in range(100)})
    opened.deliver(model)
    assert _tree(tmp_path / "m" / "1") == model.files
    assert opened.store.statistics().open_files <= 8 + 4
    opened.store.close()


def test_shared_chunks_are_copied_from_the_version_before_and_told_as_local(opened: Opened) -> None:
    opened.deliver(ONE)
    two = small(version=2, config=b"{}")
    opened.events.clear()
    held = opened.store.open(two.manifest)
    assert set(held) == {0, 1, 2, 3, 4}
    assert {(event.chunk, event.supplier) for event in opened.events if isinstance(event, ChunkStored)} == {
        (chunk, LOCAL) for chunk in range(5)
    }
    assert opened.store.statistics().models[two.manifest.id].local_bytes == 3 * CHUNK + 101
    opened.put(two, 5)
    opened.store.finish(two.manifest.id)
    assert _tree(opened.root / "m" / "2") == two.files


def with_equal_files() -> Model:
    """Chunks 0, 1 and 2, 3 are equal, and 4 is neither."""
    body = bytes(range(256)) * (2 * CHUNK // 256 - 1)
    return build({"a.bin": body, "b.bin": body, "c.bin": b"other" * 100})


def suppliers(opened: Opened) -> dict[int, object]:
    return {event.chunk: event.supplier for event in opened.events if isinstance(event, ChunkStored)}


def test_a_chunk_is_copied_to_the_equal_ones_of_its_model_once_it_is_written(opened: Opened) -> None:
    model = with_equal_files()
    groups = set(equal_chunks(model.manifest).values())
    assert groups, "equal files have equal chunks"
    opened.store.open(model.manifest)
    opened.put(model, *(group[0] for group in groups))
    assert suppliers(opened) == {
        chunk: SOURCE if chunk == group[0] else COPIED for group in groups for chunk in group
    }  # fmt: skip
    opened.deliver(model)
    assert _tree(opened.root / "m" / "1") == model.files


def test_equal_chunks_of_any_length_are_copied_between_files_with_other_borders(opened: Opened) -> None:
    tensor = bytes(range(256)) * (CHUNK // 256) + b"the rest of a tensor" * 1000
    one, two = b"h" * 100 + tensor + b"x" * 7000, b"H" * 301 + tensor + b"y" * 500
    cuts = ((100, len(tensor), 7000), (301, len(tensor), 500), None)
    model = build({"a.bin": one, "b.bin": two, "c.bin": tensor}, cuts=cuts)
    groups = set(equal_chunks(model.manifest).values())
    lengths = sorted(model.manifest.chunk_length(group[0]) for group in groups)
    assert lengths == [len(tensor) - CHUNK, CHUNK], "both chunks of the tensor, one of them short"
    assert {len(group) for group in groups} == {3}, "in files with cuts and in one without"
    opened.store.open(model.manifest)
    opened.put(model, *(group[0] for group in groups))
    assert suppliers(opened) == {
        chunk: SOURCE if chunk == group[0] else COPIED for group in groups for chunk in group
    }  # fmt: skip
    opened.deliver(model)
    assert _tree(opened.root / "m" / "1") == model.files


def test_a_start_copies_to_equal_chunks_what_a_kill_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened, model = Opened(tmp_path), with_equal_files()
    opened.store.open(model.manifest)
    [group, *_] = set(equal_chunks(model.manifest).values())
    monkeypatch.setattr("gossipd.store.chunk_store.copy_equal", lambda *_: None)
    opened.put(model, group[0])
    assert len(opened.store.held(model.manifest.id)) == 1
    again = opened.again()
    assert set(group) <= set(again.store.open(model.manifest))
    again.store.close()


def test_a_disk_that_does_not_copy_costs_no_chunk(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    model = with_equal_files()
    [group, *_] = set(equal_chunks(model.manifest).values())
    opened.store.open(model.manifest)

    def refuses(*_: object) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as full:
        full.setattr(PosixDisk, "copy_some", refuses)
        opened.put(model, group[0])
    assert set(suppliers(opened)) == {group[0]}
    opened.store.upkeep.step()


def test_a_rotten_chunk_is_not_taken_over_by_the_next_version(opened: Opened) -> None:
    opened.deliver(ONE)
    with (opened.root / "m/1/two.bin").open("r+b") as file:
        file.write(b"rotten")
    held = opened.store.open(small(version=2, config=b"{}").manifest)
    assert set(held) == {0, 1, 2, 4}


def test_a_restart_after_closing_believes_everything_and_hashes_nothing(opened: Opened) -> None:
    opened.store.open(ONE.manifest)
    opened.put(ONE, 1, 5)
    again = opened.again()
    assert set(again.store.open(ONE.manifest)) == {1, 5}
    assert again.store.statistics().models[ONE.manifest.id].rehashed_count == 0
    opened.store = again.store


def test_models_are_listed_with_their_manifests_before_any_is_opened(opened: Opened) -> None:
    opened.deliver(ONE)
    two = small(version=2, name="org/other")
    opened.store.open(two.manifest)
    again = opened.again()
    found = {(model.name, model.version, model.is_published) for model in again.store.models()}
    assert found == {("m", 1, True), ("org/other", 2, False)}
    assert again.store.manifest_bytes(two.manifest.id) == two.manifest.envelope
    opened.store = again.store


def test_the_second_store_on_a_directory_is_refused(opened: Opened) -> None:
    with pytest.raises(StoreLockedError) as caught:
        Opened(opened.root)
    assert caught.value.code == "E_STORE_LOCKED"


def test_a_directory_that_others_may_write_to_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o775)
    with pytest.raises(StoreModeError, match="chmod go-w"):
        Opened(tmp_path)


@pytest.mark.parametrize("name", [".lock", ".store"])
def test_a_file_of_the_store_that_is_another_users_is_told_with_path_and_cure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    def closed(self: PosixDisk, path: str, **how: object) -> int:
        if path == name:
            raise PermissionError(errno.EACCES, "Permission denied", path)
        return real(self, path, **how)  # type: ignore[arg-type]

    tmp_path.chmod(0o700)
    (tmp_path / ".store").touch()
    real = PosixDisk.open
    monkeypatch.setattr(PosixDisk, "open", closed)
    with pytest.raises(StoreModeError) as caught:
        Opened(tmp_path)
    assert caught.value.exit_code is ExitCode.USAGE
    assert f"{tmp_path}/{name} is closed to user " in str(caught.value)
    assert "chown -R " in str(caught.value)


@pytest.mark.parametrize(
    ("marker", "code"),
    [
        ("gossipd-store 2\n", "E_STORE_VERSION"),
        ("somebody else's\n", "E_STORE_FORMAT"),
        ("gossipd-store 1\x0b", "E_STORE_FORMAT"),
        ("gossipd-store 1", "E_STORE_FORMAT"),
    ],
)
def test_a_store_of_another_format_is_refused_and_left_alone(tmp_path: Path, marker: str, code: str) -> None:
    (tmp_path / ".store").write_text(marker)
    with pytest.raises(StoreFormatError) as caught:
        Opened(tmp_path)
    assert caught.value.code == code
    assert ("remove it: the next start writes it again" in str(caught.value)) == (code == "E_STORE_FORMAT")
    assert (tmp_path / ".store").read_text() == marker


@pytest.mark.parametrize("kind", ["directory", "link", "longer"])
def test_a_marker_that_is_none_is_no_fault_of_the_disk(tmp_path: Path, kind: str) -> None:
    marker = tmp_path / ".store"
    if kind == "directory":
        marker.mkdir()
    elif kind == "link":
        marker.symlink_to("elsewhere")
    else:
        marker.write_text("x" * 5000)
    with pytest.raises(StoreFormatError, match=r"remove it: the next start writes it again") as caught:
        Opened(tmp_path)
    assert caught.value.exit_code is ExitCode.VERIFICATION


def _beside(root: Path, path: str) -> Path:
    """Where something was moved to."""
    return (root / path).rename(root.parent / "beside")


@pytest.mark.parametrize(
    ("path", "kind", "code"),
    [
        ("m", "file", "E_VERSION_TAKEN"), ("m/1", "file", "E_VERSION_TAKEN"), ("m", "link", "E_PATH_SYMLINK"),
        ("m/1", "link", "E_PATH_SYMLINK"), ("m/current", "directory", "E_VERSION_TAKEN"),
    ],
)  # fmt: skip
def test_what_stands_in_a_models_place_is_named_and_stops_only_that_model(
    tmp_path: Path, path: str, kind: str, code: str
) -> None:
    (tmp_path / "store").mkdir()
    opened = Opened(tmp_path / "store")
    opened.deliver(ONE)
    opened.store.close()
    aside = _beside(opened.root, path)
    if kind == "file":
        (opened.root / path).write_text("x")
    elif kind == "link":
        (opened.root / path).symlink_to(aside)
    else:
        (opened.root / path).mkdir()
    again = Opened(opened.root)
    assert [model.name for model in again.store.models()] == ["m"]
    with pytest.raises(GossipdError, match=path) as caught:
        again.deliver(ONE)
    assert caught.value.code == code
    assert not again.store.condition().code, "it says nothing about the disk"
    again.deliver(small(name="other"))
    again.store.close()


@pytest.mark.parametrize("kind", ["pipe", "directory", "link"])
@pytest.mark.parametrize("path", ["journal", "manifest", "m/1/shards/one.bin", "m/1/shards", "books"])
def test_what_is_no_file_stops_only_its_model_with_the_cure(tmp_path: Path, path: str, kind: str) -> None:
    (tmp_path / "store").mkdir()
    opened = Opened(tmp_path / "store")
    opened.deliver(ONE)
    opened.store.close()
    books = opened.root / ".manifests" / ONE.manifest.id.hex()
    at = {"journal": books / path, "manifest": books / path, "books": books}.get(path, opened.root / path)
    if kind == "directory" and at.is_dir():
        return
    aside = tmp_path / "aside"
    if at.exists():
        at.rename(aside)
    if kind == "link":
        at.symlink_to(aside)
    else:
        os.mkfifo(at) if kind == "pipe" else at.mkdir()
    again = Opened(opened.root)
    again.store.models()
    with pytest.raises(StorePathError, match=rf"{at.name}.* is .*(move (it|that) away|remove it)$") as caught:
        again.store.open(ONE.manifest)  # which the deployment tells as final, and the log with this sentence
    assert caught.value.code == ("E_PATH_SYMLINK" if kind == "link" else "E_PATH_KIND")
    assert not again.store.condition().code, "it says nothing about the disk"
    again.deliver(small(name="other"))
    at.rmdir() if kind == "directory" else at.unlink()
    if aside.exists():
        aside.rename(at)
    assert len(again.store.open(ONE.manifest)) == len(ONE.chunks)
    again.store.close()


@pytest.mark.parametrize("kind", ["pipe", "directory"])
def test_what_is_no_file_among_the_stores_own_is_named(tmp_path: Path, kind: str) -> None:
    os.mkfifo(tmp_path / ".lock") if kind == "pipe" else (tmp_path / ".lock").mkdir()
    with pytest.raises(
        StorePathError, match=rf"^{tmp_path}/\.lock is a .* where a file belongs; move it away$"
    ) as caught:
        Opened(tmp_path)
    assert (caught.value.code, caught.value.exit_code) == ("E_PATH_KIND", ExitCode.USAGE)


def _in_the_way(path: Path, kind: str) -> None:
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "link":
        path.symlink_to("elsewhere")
    else:
        path.mkdir()
        (path / "mine").write_text("x")


@pytest.mark.parametrize("kind", ["pipe", "directory", "link"])
@pytest.mark.parametrize("name", ["journal.part", "manifest.part", "m/.current.part", ".store.part"])
def test_what_stands_where_unfinished_files_do_is_moved_aside(tmp_path: Path, name: str, kind: str) -> None:
    (tmp_path / "store").mkdir()
    opened = Opened(tmp_path / "store")
    opened.deliver(ONE)
    opened.store.close()
    books = opened.root / ".manifests" / ONE.manifest.id.hex()
    at = books / name if name in ("journal.part", "manifest.part") else opened.root / name
    _in_the_way(at, kind)
    for lost in (books / "manifest", opened.root / "m/current", opened.root / ".store"):
        lost.unlink()  # each is written again by a start
    again = Opened(opened.root)
    assert len(again.store.open(ONE.manifest)) == len(ONE.chunks), "a good journal is believed"
    again.store.finish(ONE.manifest.id)
    assert again.store.is_published(ONE.manifest.id)
    assert not again.store.condition().code, "it says nothing about the disk"
    again.store.close()
    aside = at.with_name(f"{at.name}.aside-1")
    if name != "m/.current.part" or kind == "directory":  # there another start's link may stand
        assert not at.exists() and {"pipe": aside.is_fifo(), "link": aside.is_symlink()}.get(kind, aside.is_dir())
    if kind == "directory":
        assert (aside / "mine").read_text() == "x", "nothing of it is lost"


def test_what_stands_where_the_disk_is_probed_does_not_hold_it_up(tmp_path: Path) -> None:
    opened = Opened(tmp_path)
    (tmp_path / ".probe").mkdir()
    opened.store._context.tracker.refused(OSError(errno.EIO, "bad sector"), 0.0, need_bytes=0)
    opened.store.upkeep.step()
    assert not opened.store.condition().code
    assert [path.name for path in tmp_path.glob(".probe*")] == [".probe.aside-1"]


def test_a_tree_whose_books_were_lost_is_taken_back_by_the_cure_of_its_refusal(opened: Opened) -> None:
    opened.deliver(ONE)
    opened.store.close()
    shutil.rmtree(opened.root / ".manifests")
    opened.store = Opened(opened.root).store
    with pytest.raises(VersionTakenError, match=r"^m/1 exists .*, to \.incoming/\w+: it is hashed") as caught:
        opened.store.open(ONE.manifest)
    place = str(caught.value).partition(" were lost, to ")[2].partition(":")[0]
    (opened.root / "m" / "1").rename(opened.root / place)
    assert len(opened.store.open(ONE.manifest)) == len(ONE.chunks)
    opened.store.finish(ONE.manifest.id)
    assert opened.store.is_published(ONE.manifest.id)


def test_a_manifest_that_is_gone_from_the_store_is_no_other_model_in_its_place(opened: Opened) -> None:
    opened.deliver(ONE)
    opened.store.close()
    path = opened.root / ".manifests" / ONE.manifest.id.hex() / "manifest"
    path.unlink()
    opened.store = Opened(opened.root).store
    assert len(opened.store.open(ONE.manifest)) == len(ONE.chunks)
    assert path.read_bytes() == ONE.manifest.envelope


@pytest.mark.parametrize("left", ["", "half", "signature", "more"])
def test_a_manifest_that_has_rotted_in_the_store_is_written_again(opened: Opened, left: str) -> None:
    opened.deliver(ONE)
    opened.store.close()
    path, right = opened.root / ".manifests" / ONE.manifest.id.hex() / "manifest", ONE.manifest.envelope
    rotted = bytes(byte ^ (at == 60) for at, byte in enumerate(right))
    path.write_bytes({"": b"", "half": right[:50], "signature": rotted, "more": right + b"x"}[left])
    opened.store = Opened(opened.root).store
    assert len(opened.store.open(ONE.manifest)) == len(ONE.chunks)
    assert path.read_bytes() == right


@pytest.mark.parametrize("left", [b"", b"\0" * 16], ids=["empty", "zeroed"])
def test_a_marker_that_a_power_failure_left_is_written_again(tmp_path: Path, left: bytes) -> None:
    (tmp_path / ".store").write_bytes(left)
    Opened(tmp_path)
    assert (tmp_path / ".store").read_text() == "gossipd-store 1\n"


def test_a_symlink_planted_in_the_tree_is_never_followed(
    opened: Opened, tmp_path_factory: pytest.TempPathFactory
) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    opened.store.open(ONE.manifest)
    opened.store.close()
    shards = opened.root / ".incoming" / ONE.manifest.id.hex() / "shards"
    (shards / "one.bin").unlink()
    shards.rmdir()
    shards.symlink_to(elsewhere)
    again = Opened(opened.root)
    with pytest.raises(Exception, match="symlink") as caught:
        again.store.open(ONE.manifest)
    assert getattr(caught.value, "code", "") == "E_PATH_SYMLINK"
    assert list(elsewhere.iterdir()) == []
    assert not again.store.condition().code, "a planted link says nothing about the disk"
    opened.store = again.store


def test_a_foreign_directory_in_a_versions_place_is_not_touched(opened: Opened) -> None:
    (opened.root / "m" / "1").mkdir(parents=True)
    (opened.root / "m" / "1" / "notes").write_text("mine")
    with pytest.raises(VersionTakenError):
        opened.store.open(ONE.manifest)
    assert (opened.root / "m/1/notes").read_text() == "mine"


@pytest.mark.parametrize("folds", [True, False])
def test_names_that_differ_only_in_case_need_a_disk_that_tells_them_apart(
    opened: Opened, monkeypatch: pytest.MonkeyPatch, folds: bool
) -> None:
    model = build({"Weights.bin": b"one", "weights.bin": b"other"}, case_matters=True)
    kind = PosixDisk.kind
    if folds:  # as a file system does for every name
        monkeypatch.setattr(PosixDisk, "kind", lambda disk, path: kind(disk, path.lower()))
        with pytest.raises(CaseFoldedError, match="differ only in case") as refused:
            opened.store.open(model.manifest)
        assert refused.value.exit_code is ExitCode.DISK
        assert not list((opened.root / ".incoming").iterdir()), "nothing was made"
        return
    opened.deliver(model)
    assert _tree(opened.root / "m/1") == model.files


def test_a_model_that_does_not_fit_is_refused_before_anything_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = Opened(tmp_path, settings=StoreSettings(reserve_bytes=1 << 50))
    model = build({"f": b"x"})
    short = Space(free_bytes=100, total_bytes=2000)  # the reserve is at most a twentieth
    monkeypatch.setattr(PosixDisk, "space", lambda _disk: short)
    with pytest.raises(NoSpaceError) as refused:
        opened.store.open(model.manifest)
    assert (refused.value.need_bytes, refused.value.free_bytes) == (101, 100)
    assert list((tmp_path / ".incoming").iterdir()) == []
    monkeypatch.setattr(PosixDisk, "space", lambda _disk: Space(101, 2000))
    opened.store.open(model.manifest)
    opened.store.abandon(model.manifest.id)
    opened.store.close()


def test_what_is_not_open_is_not_held(opened: Opened) -> None:
    opened.store.open(ONE.manifest)
    opened.store.abandon(ONE.manifest.id)
    with pytest.raises(NotHeldError):
        opened.put(ONE, 0)
    assert list((opened.root / ".manifests").iterdir()) == []
    assert list((opened.root / ".trash").iterdir()) == []


def test_removing_leaves_nothing_and_current_goes_to_the_version_before(opened: Opened) -> None:
    opened.deliver(ONE)
    two = small(version=2, seed=2)
    opened.deliver(two)
    assert opened.store.current("m") == 2
    assert opened.store.remove("m", 2) == two.manifest.id
    assert opened.store.current("m") == 1
    opened.store.remove("m", 1)
    assert not (opened.root / "m").exists()
    with pytest.raises(NotFoundError):
        opened.store.remove("m", 1)
    opened.deliver(ONE)
    assert _tree(opened.root / "m" / "1") == ONE.files


def test_old_versions_are_deleted_beyond_keep_versions_but_never_the_current_one(opened: Opened) -> None:
    for version in (1, 2):
        opened.deliver(small(version=version, seed=version))
    assert opened.store.rollback("m") == 1
    opened.events.clear()
    opened.deliver(small(version=3, seed=3))
    assert opened.store.versions("m") == [1, 3], "a roll back of the third leads to the first again"
    assert [(event.name, event.version) for event in opened.events if isinstance(event, ModelEvicted)] == [("m", 2)]


def test_a_rollback_holds_until_a_newer_version_is_complete(opened: Opened) -> None:
    for version in (1, 3):
        opened.deliver(small(version=version, seed=version))
    opened.store.rollback("m")
    opened.deliver(small(version=2, seed=2, name="m"))
    assert opened.store.current("m") == 1, "a late older version ends no rollback"
    again = opened.again()
    again.store.open(small(version=3, seed=3).manifest)
    assert again.store.current("m") == 1, "a restart ends no rollback"
    again.deliver(small(version=4, seed=4))
    assert again.store.current("m") == 4
    opened.store = again.store


def test_a_rollback_that_has_ended_does_not_come_back_when_the_newer_version_is_removed(tmp_path: Path) -> None:
    opened = Opened(tmp_path, settings=StoreSettings(keep_versions=3))
    for version in (1, 3):
        opened.deliver(small(version=version, seed=version))
    opened.store.rollback("m")
    opened.deliver(small(version=4, seed=4))
    opened.store.remove("m", 4)
    assert opened.store.current("m") == 3
    opened.store.close()


def test_rolling_back_the_only_version_is_refused(opened: Opened) -> None:
    opened.deliver(ONE)
    with pytest.raises(NotFoundError, match="m has no complete version before its current one"):
        opened.store.rollback("m")


def test_dropping_the_page_cache_changes_no_byte(tmp_path: Path) -> None:
    opened = Opened(tmp_path, settings=StoreSettings(page_cache=PageCache.DROP))
    opened.deliver(ONE)
    assert _tree(tmp_path / "m" / "1") == ONE.files
    opened.store.close()


def test_settings_outside_their_range_are_named() -> None:
    with pytest.raises(StoreSettingsError, match=r"store.keep_versions is 0, must be from 1 to 1000"):
        StoreSettings(keep_versions=0).validate()


def test_a_model_of_more_files_than_fit_takes_none_of_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = Opened(tmp_path)
    many, one = build({f"{number}.bin": b"x" for number in range(40)}, name="many"), build({"f": b"x"}, name="one")
    before = sorted(tmp_path.rglob("*"))
    monkeypatch.setattr(PosixDisk, "space", lambda _disk: Space(1 << 40, 1 << 41, free_files=20))
    with pytest.raises(
        NoSpaceError, match=r"needs 4\d files and directories, and the file system takes 20 more"
    ) as caught:
        opened.store.open(many.manifest)
    assert (caught.value.code, sorted(tmp_path.rglob("*"))) == ("E_NO_INODES", before)
    assert opened.store.open(one.manifest) is not None, "another one fits"
    monkeypatch.setattr(PosixDisk, "space", lambda _disk: Space(1 << 40, 1 << 41, free_files=None))
    opened.store.open(many.manifest)
    opened.store.close()


def test_no_space_says_what_is_needed_and_what_is_free(tmp_path: Path) -> None:
    error = NoSpaceError("x", need_bytes=2, free_bytes=1)
    assert (error.code, error.need_bytes, error.free_bytes) == ("E_NO_SPACE", 2, 1)


def test_a_lost_chunk_is_told_once(opened: Opened) -> None:
    opened.deliver(ONE)
    with (opened.root / "m/1/two.bin").open("r+b") as file:
        file.write(b"rotten")
    assert not opened.store.recheck(ONE.manifest.id, 3)
    assert not opened.store.recheck(ONE.manifest.id, 3)
    assert [event for event in opened.events if isinstance(event, ChunkLost)] == [ChunkLost(ONE.manifest.id, 3)]
