"""Shards of several hosts: together what one host would have hashed, or the refusal names the rank and file."""

from __future__ import annotations

import pytest
from blake3 import blake3
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from gossipd.manifest.chunk_layout import Layout
from gossipd.manifest.errors import ManifestError
from gossipd.manifest.manifest import ManifestDraft, open_manifest, seal_manifest
from gossipd.manifest.payload import FileEntry
from gossipd.manifest.shards import ShardSet, join_shards, open_shards, seal_shards
from tests.gossipd.manifest.making import CHUNK, PUBLISHER, TRUSTED


def hashed(files: dict[str, bytes]) -> ManifestDraft:
    """What a publisher of these files would sign."""
    bodies = [files[path] for path in sorted(files)]
    layout = Layout([len(body) for body in bodies], CHUNK)
    chunks = (
        b"".join(bodies[one.file_index][one.offset : one.offset + one.length] for one in layout.segments(chunk))
        for chunk in range(layout.chunk_count)
    )
    return ManifestDraft(
        name="run", version=1, created_s=1, sources=(),
        files=tuple(FileEntry(path, len(files[path]), 0o644) for path in sorted(files)),
        chunk_bytes=CHUNK, digests=b"".join(blake3(body).digest() for body in chunks),
    )  # fmt: skip


def shards(rank: int, ranks: int, files: dict[str, bytes]) -> ShardSet:
    return open_shards(seal_shards(hashed(files), PUBLISHER, rank=rank, ranks=ranks), TRUSTED)


def shard(rank: int, length: int = 2 * CHUNK + 7) -> dict[str, bytes]:
    return {f"__{rank}_0.distcp": bytes([rank]) * length}


SMALL = {".metadata": b"m" * 900, "config.json": b"{}"}


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(CHUNK, 3 * CHUNK)), max_size=8), st.integers(0, 3))
def test_joined_parts_are_what_one_host_would_have_hashed(large: list[tuple[int, int]], small_rank: int) -> None:
    ranks: list[dict[str, bytes]] = [shard(rank) for rank in range(4)]
    for number, (rank, length) in enumerate(large):
        ranks[rank][f"file-{number}"] = bytes([number]) * length
    ranks[small_rank] |= SMALL | {"empty": b""}
    whole = hashed({path: body for files in ranks for path, body in files.items()})
    joined = join_shards("run", [shards(rank, 4, files) for rank, files in reversed(list(enumerate(ranks)))])
    assert (joined.files, joined.chunk_bytes, joined.digests) == (whole.files, whole.chunk_bytes, whole.digests)


def test_a_shard_set_is_no_manifest_and_a_manifest_none() -> None:
    with pytest.raises(ManifestError):
        open_manifest(seal_shards(hashed(SMALL), PUBLISHER, rank=0, ranks=1), TRUSTED)
    with pytest.raises(ManifestError):
        open_shards(seal_manifest(hashed(SMALL), PUBLISHER), TRUSTED)


@pytest.mark.parametrize(
    ("sets", "words"),
    [
        ([shards(0, 3, SMALL), shards(2, 3, shard(2))], "the shards of rank 1 are missing; 3 ranks save run"),
        ([shards(0, 4, SMALL)], "the shards of rank 1 are missing, and of 2 more"),
        ([shards(0, 2, SMALL), shards(1, 2, shard(1)), shards(1, 2, shard(1))], "a rank has sent its shards twice"),
        ([shards(0, 2, shard(0)), shards(1, 2, {**shard(1), "__0_0.distcp": b"x" * CHUNK})],
         "ranks 0 and 1 have both written '__0_0.distcp'"),
        ([shards(0, 2, SMALL), shards(1, 2, SMALL)], "ranks 0 and 1 have both written '.metadata'"),
        ([shards(0, 2, SMALL), shards(1, 2, {"b.json": b"{}"})], "files of less than a chunk, 65536 bytes: "),
        ([shards(0, 2, SMALL), shards(1, 3, shard(1))], "the shards of rank 1 are of 'run', 3 ranks"),
        ([], "no rank has sent its shards"),
    ],
)  # fmt: skip
def test_shards_that_make_no_whole_are_refused_by_rank_and_file(sets: list[ShardSet], words: str) -> None:
    with pytest.raises(ManifestError, match=words) as refused:
        join_shards("run", sets)
    assert refused.value.code == "E_SHARDS"


def test_a_shard_set_of_another_name_is_refused() -> None:
    with pytest.raises(ManifestError, match="are of 'run'"):
        join_shards("other", [shards(0, 1, SMALL)])


def test_a_large_file_that_two_ranks_have_alike_is_taken_once() -> None:
    shared = {"weights": b"w" * 2 * CHUNK}
    joined = join_shards("run", [shards(0, 2, SMALL | shared), shards(1, 2, shared)])
    assert joined.digests == hashed(SMALL | shared).digests


@pytest.mark.parametrize(("rank", "ranks"), [(1, 1), (-1, 2), (0, 4_097), (0, 0)])
def test_a_rank_is_one_of_its_ranks(rank: int, ranks: int) -> None:
    with pytest.raises(ManifestError, match="ranks count from 0"):
        seal_shards(hashed(SMALL), PUBLISHER, rank=rank, ranks=ranks)


@pytest.mark.parametrize("labels", [{}, {"rank": "0"}, {"rank": "x", "ranks": "2"}, {"rank": "0", "ranks": "99999"}])
def test_labels_that_name_no_rank_are_refused(labels: dict[str, str]) -> None:
    envelope = seal_manifest(replace(hashed(SMALL), labels=labels), PUBLISHER, kind="gossipd-shards")
    with pytest.raises(ManifestError, match="a shard set says its rank"):
        open_shards(envelope, TRUSTED)
