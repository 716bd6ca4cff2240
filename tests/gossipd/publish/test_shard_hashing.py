"""The shards of one host: its hashes are those of the files, and a file that changes meanwhile is named."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gossipd.core.errors import GossipdError
from gossipd.manifest.shards import ShardSet, join_shards, open_shards
from gossipd.publish.adoption import ANY_OWNER, AdoptableShards, NotOwnerError
from gossipd.publish.errors import TreeChangedError
from gossipd.publish.selection import DEFAULT_EXCLUDES, Selection
from gossipd.publish.shard_hashing import hash_shards
from tests.gossipd.manifest.making import CHUNK, PUBLISHER, TRUSTED, manifest


class Deleter:
    """Deletes a file as soon as hashing has begun."""

    def __init__(self, path: Path | None = None) -> None:
        self._path = path

    def found(self, file_count: int, bytes_total: int) -> None:
        if self._path is not None:
            self._path.unlink()

    def hashed(self, count: int) -> None:
        pass


def shards_of(directory: Path, rank: int = 0, user: int = ANY_OWNER, deleter: Deleter | None = None) -> ShardSet:
    envelope = hash_shards(
        directory, "run", Selection(defaults=DEFAULT_EXCLUDES), PUBLISHER, deleter or Deleter(), rank=rank, ranks=2,
        chunk_bytes=CHUNK, user=user,
    )  # fmt: skip
    return open_shards(envelope, TRUSTED)


@pytest.fixture
def shards(tmp_path: Path) -> list[Path]:
    directories = [tmp_path / "0", tmp_path / "1"]
    for rank, directory in enumerate(directories):
        directory.mkdir()
        (directory / f"__{rank}_0.distcp").write_bytes(os.urandom(2 * CHUNK + rank))
    (directories[0] / ".metadata").write_bytes(b"m")
    return directories


def test_two_hosts_hash_what_each_has(shards: list[Path]) -> None:
    joined = join_shards("run", [shards_of(directory, rank) for rank, directory in enumerate(shards)])
    assert [entry.path for entry in joined.files] == [".metadata", "__0_0.distcp", "__1_0.distcp"]
    assert len(joined.digests) == 32 * (2 + 3 + 1)


@pytest.mark.parametrize("name", [".metadata", "__0_0.distcp"])
def test_a_step_that_is_deleted_while_it_is_hashed_is_refused(shards: list[Path], name: str) -> None:
    with pytest.raises((TreeChangedError, GossipdError), match="changed while"):
        shards_of(shards[0], deleter=Deleter(shards[0] / name))


def test_files_of_another_user_are_not_hashed(shards: list[Path]) -> None:
    with pytest.raises(NotOwnerError):
        shards_of(shards[0], user=os.getuid() + 1)


def test_only_files_that_are_here_are_taken_and_one_of_another_size_is_named(tmp_path: Path) -> None:
    whole = manifest((3 * CHUNK, 2 * CHUNK))
    (tmp_path / "file-001.bin").write_bytes(bytes(2 * CHUNK))
    files = AdoptableShards(tmp_path, whole, ANY_OWNER)
    assert files.files_here == {1}
    with files.opened(1) as descriptor:
        assert os.fstat(descriptor).st_size == 2 * CHUNK
    (tmp_path / "file-000.bin").write_bytes(b"short")
    with pytest.raises(GossipdError, match="has 5 bytes, the manifest says"):
        AdoptableShards(tmp_path, whole, ANY_OWNER)
    (tmp_path / "none").mkdir()
    (tmp_path / "none" / "other").write_bytes(b"x")
    with pytest.raises(GossipdError, match="no file of org/model is in"):
        AdoptableShards(tmp_path / "none", whole, ANY_OWNER)
