"""Parts of a model in the store: what users can read, what peers are served, and changes from one part to another."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
import safetensors
import safetensors.numpy

from gossipd.core.errors import NotFoundError
from gossipd.core.events import ChunkLost
from gossipd.core.ids import SOURCE
from gossipd.manifest.errors import ManifestError
from gossipd.manifest.manifest import Manifest
from gossipd.parts.part import choose_part
from gossipd.parts.want import EVERYTHING, Want, WantError, parse_want
from gossipd.store.chunk_store import ChunkStore
from gossipd.store.errors import NotWholeError
from gossipd.store.settings import StoreSettings
from tests.gossipd.parts.models_of_tensors import CHUNK, expert_model, manifest_of, rows_of
from tests.gossipd.store.memory_disk import Crash, MemoryDisk
from tests.gossipd.store.set_clock import SetClock

FILES = expert_model(layers=2, experts=4, expert_bytes=150_000)
MANIFEST = manifest_of(FILES)
NAMES = [row.name for row in rows_of(FILES)]
FIRST, SECOND = parse_want(["ep:0/2"]), parse_want(["ep:1/2"])
SETTINGS = StoreSettings(reserve_bytes=0, keep_versions=2, scrub_bytes_per_s=0)


def chunk_of(manifest: Manifest, chunk: int, files: dict[str, bytes] = FILES) -> memoryview:
    bodies = list(files.values())
    parts = [bodies[s.file_index][s.offset : s.offset + s.length] for s in manifest.segments(chunk)]
    return memoryview(b"".join(parts))


def fill(store: ChunkStore, want: Want, manifest: Manifest = MANIFEST) -> set[int]:
    """Open a part and put all that it lacks, as peers would bring it. Returns what was put."""
    held = store.open(manifest, want)
    lacking = set(choose_part(manifest, want).wanted - held)
    for chunk in lacking:
        assert store.put(manifest.id, chunk, chunk_of(manifest, chunk), SOURCE, 0.0)
    return lacking


def readable(tree: Path) -> set[str]:
    """The tensors that the real library reads; each is equal to what was published."""
    found = set()
    for path in tree.rglob("*.safetensors"):
        signed = {name: entry["data"] for name, entry in safetensors.deserialize(FILES[path.name])}  # type: ignore[no-untyped-call]
        with safetensors.safe_open(path, "numpy") as reader:
            for name in reader.keys():  # noqa: SIM118 - no mapping
                if name in signed:
                    assert reader.get_tensor(name).tobytes() == bytes(signed[name])
                    found.add(name)
            for name in signed.keys() - found:
                with pytest.raises(safetensors.SafetensorError):
                    reader.get_tensor(name)
    return found


def of_rank(rank: int) -> set[str]:
    return {name for name in NAMES if ".experts." not in name or int(name.split(".experts.")[1][0]) // 2 == rank}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    tmp_path.chmod(0o755)
    return tmp_path


def opened(root: Path, heard: list[object] | None = None) -> ChunkStore:
    on_event = (lambda event: None) if heard is None else heard.append
    return ChunkStore(root, settings=SETTINGS, on_event=on_event, background=False)


def with_part(root: Path, *manifests: Manifest) -> ChunkStore:
    """A store with the first part of these, in place."""
    store = opened(root)
    for manifest in manifests or (MANIFEST,):
        fill(store, FIRST, manifest)
        store.finish(manifest.id)
    return store


def tree_of(root: Path, want: Want) -> Path:
    return root / f"acme/moe/1.part-{want.mark}"


def test_a_part_is_read_by_its_tensors_and_its_absent_ones_are_refused(root: Path) -> None:
    store = opened(root)
    put = fill(store, FIRST)
    assert len(put) < MANIFEST.chunk_count
    store.finish(MANIFEST.id)
    assert readable(tree_of(root, FIRST)) == of_rank(0)
    assert not (root / "acme/moe/1").exists() and (root / "acme/moe/current.part").resolve() == tree_of(root, FIRST)
    listed = (tree_of(root, FIRST) / "model.safetensors.index.json").read_text()
    assert all((name in listed) is (name in of_rank(0)) for name in NAMES)
    assert store.place(MANIFEST.id) == f"acme/moe/1.part-{FIRST.mark}" and store.versions("acme/moe") == []
    store.close()


def test_peers_are_served_the_signed_bytes_of_every_chunk_also_after_a_restart(root: Path) -> None:
    store = opened(root)
    put = fill(store, FIRST)
    store.finish(MANIFEST.id)
    for _ in range(2):
        for chunk in put:
            body = store.open_chunk(MANIFEST.id, chunk)
            served = b"".join(os.pread(span.descriptor, span.length, span.offset) for span in body.spans)
            body.close()
            assert served == chunk_of(MANIFEST, chunk)
        assert all(one.is_good for one in store.verify("acme/moe", 1) if one.chunk in put)
        store.close()
        store = opened(root)
        assert set(store.open(MANIFEST, FIRST)) == put and store.is_published(MANIFEST.id)
        assert store.statistics().models[MANIFEST.id].rehashed_count == 0
    store.close()


def test_a_part_that_grows_fetches_the_difference_and_has_a_new_place(root: Path) -> None:
    store = opened(root)
    before = fill(store, FIRST)
    store.finish(MANIFEST.id)
    grown = parse_want(["ep:0/2", "ep:1/2"])
    reading: Any = safetensors.safe_open(tree_of(root, FIRST) / "model-1.safetensors", "numpy")
    names = [name for name in reading.keys() if name in of_rank(0)]  # noqa: SIM118
    values = {name: reading.get_tensor(name).copy() for name in names}
    put = fill(store, SECOND)
    assert not put & before and len(put | before) == MANIFEST.chunk_count
    assert not tree_of(root, FIRST).exists() and not (root / "acme/moe/current.part").is_symlink()
    store.finish(MANIFEST.id)
    assert readable(tree_of(root, grown)) == set(NAMES)
    assert all(np.array_equal(reading.get_tensor(name), values[name]) for name in names)
    store.close()


def test_less_is_wanted_and_nothing_changes_until_space_is_asked_for(root: Path) -> None:
    store = opened(root)
    fill(store, EVERYTHING)
    store.finish(MANIFEST.id)
    held = store.open(MANIFEST, FIRST)
    assert held.is_full and store.is_published(MANIFEST.id) and (root / "acme/moe/current").resolve().name == "1"
    held = store.open(MANIFEST, FIRST, frees=True)
    assert held == choose_part(MANIFEST, FIRST).wanted and not (root / "acme/moe/current").is_symlink()
    store.finish(MANIFEST.id)
    assert readable(tree_of(root, FIRST)) == of_rank(0)
    put = fill(store, EVERYTHING)
    assert put == set(range(MANIFEST.chunk_count)) - set(held)
    store.finish(MANIFEST.id)
    for path, body in FILES.items():
        assert (root / "acme/moe/1" / path).read_bytes() == body
    assert not (root / "acme/moe/current.part").is_symlink()
    store.close()


def test_what_is_not_shown_yet_follows_the_want_at_once(root: Path) -> None:
    store = opened(root)
    store.open(MANIFEST)
    kept, left = choose_part(MANIFEST, FIRST).wanted, set()
    for chunk in range(0, MANIFEST.chunk_count, 2):
        store.put(MANIFEST.id, chunk, chunk_of(MANIFEST, chunk), SOURCE, 0.0)
        left |= {chunk} & set(kept)
    assert set(store.open(MANIFEST, FIRST)) == left
    fill(store, FIRST)
    store.finish(MANIFEST.id)
    assert readable(tree_of(root, FIRST)) == of_rank(0)
    store.close()


def test_a_chunk_that_is_not_wanted_is_not_written(root: Path) -> None:
    store = opened(root)
    store.open(MANIFEST, FIRST)
    other = min(set(range(MANIFEST.chunk_count)) - set(choose_part(MANIFEST, FIRST).wanted))
    assert not store.put(MANIFEST.id, other, chunk_of(MANIFEST, other), SOURCE, 0.0)
    with pytest.raises(NotWholeError):
        store.finish(MANIFEST.id)
    store.close()


def test_a_header_that_rots_is_made_again_when_its_chunk_is_read_back(root: Path) -> None:
    heard: list[object] = []
    store = opened(root, heard)
    fill(store, FIRST)
    store.finish(MANIFEST.id)
    path = tree_of(root, FIRST) / "model-1.safetensors"
    with path.open("r+b") as file:
        file.seek(20)
        file.write(b"rot")
    assert all(one.is_good for one in store.verify("acme/moe", 1) if one.chunk in choose_part(MANIFEST, FIRST).wanted)
    assert readable(tree_of(root, FIRST)) == of_rank(0)
    path.unlink()
    list(store.verify("acme/moe", 1))
    lost = {event.chunk for event in heard if isinstance(event, ChunkLost)}
    for chunk in lost:
        store.put(MANIFEST.id, chunk, chunk_of(MANIFEST, chunk), SOURCE, 0.0)
    list(store.verify("acme/moe", 1))
    assert readable(tree_of(root, FIRST)) == of_rank(0)
    store.close()


@pytest.mark.parametrize("is_restarted", [False, True])
@pytest.mark.parametrize("file", ["model-1.safetensors", "model.safetensors.index.json"])
def test_a_removed_file_of_a_part_has_its_header_when_its_chunks_have_come_again(
    root: Path, file: str, is_restarted: bool
) -> None:
    store = with_part(root)
    shown = tree_of(root, FIRST) / file
    before = shown.read_bytes()
    shown.unlink()
    if is_restarted:
        store.close()
        store = opened(root)
    else:
        list(store.verify("acme/moe", 1))
    fill(store, FIRST)
    assert shown.read_bytes() == before and readable(tree_of(root, FIRST)) == of_rank(0)
    store.close()


def test_a_removed_file_whose_chunks_are_copied_has_its_header(root: Path) -> None:
    both = [MANIFEST, manifest_of(FILES, version=2)]
    store = with_part(root, *both)
    shown = root / f"acme/moe/2.part-{FIRST.mark}/model-1.safetensors"
    before = shown.read_bytes()
    shown.unlink()
    store.close()
    store = opened(root)
    store.open(both[0], FIRST)
    assert not fill(store, FIRST, both[1]), "the other version has them"
    assert shown.read_bytes() == before
    store.close()


def test_a_start_in_the_midst_of_a_repair_goes_on_with_the_header(root: Path) -> None:
    store = with_part(root)
    shown = tree_of(root, FIRST) / "model-1.safetensors"
    before = shown.read_bytes()
    shown.unlink()
    list(store.verify("acme/moe", 1))
    lacking = choose_part(MANIFEST, FIRST).wanted - store.open(MANIFEST, FIRST)
    for chunk in sorted(lacking, reverse=True)[1:]:
        store.put(MANIFEST.id, chunk, chunk_of(MANIFEST, chunk), SOURCE, 0.0)
    store.commit(MANIFEST.id)
    store.close()
    store = opened(root)
    fill(store, FIRST)
    assert shown.read_bytes() == before
    store.close()


def test_a_removed_part_leaves_nothing_and_old_parts_are_evicted(root: Path) -> None:
    store = opened(root)
    fill(store, FIRST)
    store.finish(MANIFEST.id)
    assert [(one.version, one.is_published) for one in store.models()] == [(1, True)]
    for version in (2, 3):
        manifest = manifest_of(FILES, version=version)
        fill(store, FIRST, manifest)
        store.finish(manifest.id)
    assert sorted(path.name[:6] for path in (root / "acme/moe").iterdir()) == ["2.part", "3.part", "curren"]
    for version in (2, 3):
        store.remove("acme/moe", version)
    with pytest.raises(NotFoundError):
        store.remove("acme/moe", 1)
    assert not (root / "acme").exists() and not list((root / ".manifests").iterdir())
    store.close()


def test_an_index_that_lies_is_never_shown(root: Path) -> None:
    rows = rows_of(FILES)
    at = next(number for number, row in enumerate(rows) if ".experts.3." in row.name)
    other = next(number for number, row in enumerate(rows) if ".experts.0." in row.name)
    swapped = list(rows)
    swapped[at], swapped[other] = (
        type(rows[at])(rows[a].file_index, rows[b].name, rows[a].dtype, rows[a].shape, rows[a].begin, rows[a].end)
        for a, b in ((at, other), (other, at))
    )
    manifest = manifest_of(FILES, rows=swapped)
    store = opened(root)
    fill(store, FIRST, manifest)
    with pytest.raises(ManifestError) as refused:
        store.finish(manifest.id)
    assert refused.value.code == "E_INDEX" and not (root / "acme").exists()
    store.close()


def test_a_want_that_means_nothing_changes_nothing(root: Path) -> None:
    store = opened(root)
    with pytest.raises(WantError):
        store.open(MANIFEST, parse_want(["files:*.gguf"]))
    assert store.models() == [] and not list((root / ".manifests").iterdir())
    store.close()


def test_bytes_of_a_plain_file_lie_under_a_name_of_their_own(root: Path) -> None:
    body = Random(1).randbytes(5 * CHUNK)
    files = {"rank0.distcp": body, ".metadata": b"m"}
    manifest = manifest_of(files)
    want = parse_want([f"ranges:rank0.distcp:{CHUNK}-{2 * CHUNK}"])
    store = opened(root)
    for chunk in choose_part(manifest, want).wanted - store.open(manifest, want):
        store.put(manifest.id, chunk, chunk_of(manifest, chunk, files), SOURCE, 0.0)
    store.finish(manifest.id)
    tree = tree_of(root, want)
    assert sorted(path.name for path in tree.iterdir()) == [".metadata", "rank0.distcp.holes"]
    assert (tree / "rank0.distcp.holes").read_bytes()[CHUNK : 2 * CHUNK] == body[CHUNK : 2 * CHUNK]
    for chunk in choose_part(manifest, EVERYTHING).wanted - store.open(manifest, EVERYTHING):
        store.put(manifest.id, chunk, chunk_of(manifest, chunk, files), SOURCE, 0.0)
    store.finish(manifest.id)
    assert (root / "acme/moe/1/rank0.distcp").read_bytes() == body
    store.close()


def version_of(root: Path) -> str:
    return (root / "acme/moe/current.part").resolve().name.partition(".part")[0]


@pytest.fixture
def two_parts(root: Path) -> Iterator[ChunkStore]:
    """Parts of versions 1 and 2, and nothing whole."""
    store = with_part(root, MANIFEST, manifest_of(FILES, version=2))
    yield store
    store.close()


def test_a_roll_back_leads_parts_back_until_it_is_taken_back(two_parts: ChunkStore, root: Path) -> None:
    assert version_of(root) == "2"
    two_parts.avoid_versions("acme/moe", frozenset({2}))
    assert version_of(root) == "1"
    two_parts.avoid_versions("acme/moe", frozenset())
    assert version_of(root) == "2"
    two_parts.avoid_versions("acme/moe", frozenset({1, 2}))
    assert version_of(root) == "2", "there is none that is not rolled back"


def test_a_roll_back_of_parts_holds_until_a_newer_version(two_parts: ChunkStore, root: Path) -> None:
    assert two_parts.rollback("acme/moe") == 1
    assert version_of(root) == "1"
    third = manifest_of(FILES, version=3)
    fill(two_parts, FIRST, third)
    two_parts.finish(third.id)
    assert version_of(root) == "3"
    assert not list((root / ".pins").iterdir())


def test_the_part_that_a_roll_back_chose_is_not_evicted_as_old(two_parts: ChunkStore, root: Path) -> None:
    two_parts.avoid_versions("acme/moe", frozenset({2}))
    third = manifest_of(FILES, version=3)
    fill(two_parts, EVERYTHING, third)
    two_parts.finish(third.id)
    assert version_of(root) == "1" and (root / "acme/moe/current").resolve().name == "3"


def test_a_chosen_part_that_grows_is_chosen_again_when_it_is_whole(two_parts: ChunkStore, root: Path) -> None:
    two_parts.avoid_versions("acme/moe", frozenset({2}))
    assert version_of(root) == "1"
    fill(two_parts, SECOND)
    assert version_of(root) == "2", "there is no other while it is out of sight"
    two_parts.finish(MANIFEST.id)
    assert version_of(root) == "1"


def test_an_operators_roll_back_outlives_parts_that_all_grow(root: Path) -> None:
    both = [MANIFEST, manifest_of(FILES, version=2)]
    store = with_part(root, *both)
    assert store.rollback("acme/moe") == 1
    for manifest in both:
        store.open(manifest, SECOND)
    for manifest in both:
        fill(store, SECOND, manifest)
        store.finish(manifest.id)
    assert version_of(root) == "1"
    store.close()


def test_without_an_older_part_there_is_no_roll_back(root: Path) -> None:
    store = opened(root)
    fill(store, FIRST)
    store.finish(MANIFEST.id)
    with pytest.raises(NotFoundError):
        store.rollback("acme/moe")
    store.avoid_versions("acme/moe", frozenset({1}))
    assert version_of(root) == "1"
    store.close()


# ---- crashes ---------------------------------------------------------------------------------------

STEPS = [(FIRST, False), (SECOND, False), (SECOND, True), (EVERYTHING, False), (FIRST, True)]


def memory_store(disk: MemoryDisk, boot: str = "a") -> ChunkStore:
    return ChunkStore(
        Path("unused"), settings=SETTINGS, on_event=lambda event: None, disk=disk, clock=SetClock(boot=boot),
        background=False,
    )  # fmt: skip


def live(disk: MemoryDisk) -> None:
    store = memory_store(disk)
    for want, frees in STEPS:
        held = store.open(MANIFEST, want, frees=frees)
        for chunk in choose_part(MANIFEST, want).wanted - held:
            store.put(MANIFEST.id, chunk, chunk_of(MANIFEST, chunk), SOURCE, 0.0)
        store.finish(MANIFEST.id)
        check_visible(disk)
    store.remove("acme/moe", 1)
    store.close()


def check_visible(disk: MemoryDisk) -> None:
    """What users can open holds the right bytes of every tensor that it lists."""
    entries = disk.names("acme/moe") if disk.kind("acme/moe") is not None else []
    for link in {"current", "current.part"} & set(entries):
        assert disk.read_link(f"acme/moe/{link}") in entries, "a link leads nowhere"
    for entry in entries:
        if entry == "1":
            assert all(disk.content(f"acme/moe/1/{path}") == body for path, body in FILES.items())
        elif entry.startswith("1.part"):
            for path in ("model-1.safetensors", "model-2.safetensors"):
                _check_tensors(disk.content(f"acme/moe/{entry}/{path}"), FILES[path])


def _check_tensors(shown: bytes, signed: bytes) -> None:
    right = dict(safetensors.deserialize(signed))  # type: ignore[no-untyped-call]
    for name, entry in safetensors.deserialize(shown):  # type: ignore[no-untyped-call]
        assert name.startswith("absent.") or bytes(entry["data"]) == bytes(right[name]["data"]), name


def crash_at(number: int) -> MemoryDisk:
    disk = MemoryDisk()

    def before(name: str, at: int) -> None:
        if at == number:
            raise Crash(f"{name} {at}")

    disk.before = before
    try:
        live(disk)
    except Crash:
        return disk
    raise AssertionError(f"the script makes fewer than {number} calls")


@pytest.mark.parametrize("is_power_cut", [False, True])
def test_a_crash_at_every_call_of_a_change_shows_nothing_wrong_and_is_made_good(is_power_cut: bool) -> None:
    disk = MemoryDisk()
    live(disk)
    count = len(disk.calls)
    random = Random(7)
    for number in range(3 if is_power_cut else 0, count, 2 if is_power_cut else 1):
        crashed = crash_at(number)
        disk = crashed.cut(lambda: random.random() < 0.5, random) if is_power_cut else crashed.killed()
        check_visible(disk)
        store = memory_store(disk, boot="b" if is_power_cut else "a")
        want = STEPS[number % len(STEPS)][0]
        held = store.open(MANIFEST, want)
        for chunk in choose_part(MANIFEST, want).wanted - held:
            store.put(MANIFEST.id, chunk, chunk_of(MANIFEST, chunk), SOURCE, 0.0)
        store.finish(MANIFEST.id)
        check_visible(disk)
        assert all(one.is_good for one in store.verify("acme/moe", 1) if one.chunk in store.held(MANIFEST.id))
        store.close()
        assert disk.open_count == 0, "descriptors leak"
