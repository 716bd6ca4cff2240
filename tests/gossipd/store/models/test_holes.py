"""What a part leaves out of its files gives its room back, unless a job may still read it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from gossipd.parts.part import bytes_of, choose_part
from gossipd.parts.want import EVERYTHING
from gossipd.store.chunk_store import ChunkStore
from tests.gossipd.store.models.test_part_note import FILES, FIRST, MANIFEST, fill, of_rank, opened, readable, tree_of


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ChunkStore]:
    """It shows the whole model."""
    tmp_path.chmod(0o755)
    made = opened(tmp_path)
    fill(made, EVERYTHING)
    made.finish(MANIFEST.id)
    yield made
    made.close()


def blocks(tree: Path) -> int:
    return sum(path.stat().st_blocks * 512 for path in tree.rglob("*") if path.is_file())


def test_freeing_gives_the_room_of_what_is_left_out_back(store: ChunkStore, tmp_path: Path) -> None:
    before = blocks(tmp_path / "acme/moe/1")
    store.open(MANIFEST, FIRST, frees=True)
    store.finish(MANIFEST.id)
    wanted = bytes_of(MANIFEST, choose_part(MANIFEST, FIRST).wanted)
    after = blocks(tree_of(tmp_path, FIRST))
    assert wanted <= after < before - (MANIFEST.bytes_total - wanted) // 2, "blocks are 4 KiB, and chunks little more"
    assert readable(tree_of(tmp_path, FIRST)) == of_rank(0)
    assert all(one.is_good for one in store.verify("acme/moe", 1))


def test_what_a_process_has_open_is_freed_by_the_next_order(store: ChunkStore, tmp_path: Path) -> None:
    with (tmp_path / "acme/moe/1/model-1.safetensors").open("rb") as job:
        store.open(MANIFEST, FIRST, frees=True)
        store.finish(MANIFEST.id)
        shown = tree_of(tmp_path, FIRST) / "model-1.safetensors"
        before = shown.stat().st_blocks
        assert job.read()[-150_000:] == FILES["model-1.safetensors"][-150_000:], "a job reads what it read before"
    assert store.open(MANIFEST, FIRST) == choose_part(MANIFEST, FIRST).wanted
    assert shown.stat().st_blocks == before
    assert store.open(MANIFEST, FIRST, frees=True) == choose_part(MANIFEST, FIRST).wanted
    assert shown.stat().st_blocks < before and store.is_published(MANIFEST.id)
    assert readable(tree_of(tmp_path, FIRST)) == of_rank(0)
