"""A step whose shards lie on four hosts, each on its own disk: one version, and no byte moves before it exists."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from typing import Any

import pytest

from gossipd.client import Client, Publication, RankFailedError
from gossipd.core.errors import GossipdError
from tests.e2e.cluster import PATIENCE_S, Cluster, Daemon, publishing_cluster, same_tree, until

RANKS = 4
SHARD_BYTES = 6_000_000


class Group:
    """What ``torch.distributed`` is to a job: ranks in threads that exchange values."""

    def __init__(self, ranks: int) -> None:
        self._barrier = threading.Barrier(ranks, timeout=PATIENCE_S)
        self._values: list[Any] = [None] * ranks
        self.on_exchange: Callable[[], None] = lambda: None

    def gather_of(self, rank: int) -> Callable[[Any], list[Any]]:
        def all_gather(value: Any) -> list[Any]:
            self._values[rank] = value
            if self._barrier.wait() == 0:
                self.on_exchange()
            self._barrier.wait()
            values = list(self._values)
            self._barrier.wait()
            return values

        return all_gather


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with publishing_cluster(tmp_path) as cluster:
        yield cluster


def save(base: Path, step: int) -> list[Path]:
    """What four ranks save, each on its own host; the first writes the metadata."""
    directories = []
    for rank in range(RANKS):
        directory = base / f"host-{rank}" / f"step-{step}"
        directory.mkdir(parents=True)
        (directory / f"__{rank}_0.distcp").write_bytes(Random(100 * step + rank).randbytes(SHARD_BYTES + rank))
        directories.append(directory)
    (directories[0] / ".metadata").write_bytes(Random(step).randbytes(9_000))
    return directories


def publish(
    daemons: list[Daemon], directories: list[Path], step: int, group: Group | None = None
) -> list[Publication | GossipdError]:
    group = group or Group(len(directories))

    def take_part(rank: int) -> Publication | GossipdError:
        try:
            return Client(daemons[rank].home / "gossipd.sock").publish_shards(
                directories[rank], name="run-7", step=step, rank=rank, ranks=len(directories),
                all_gather=group.gather_of(rank), keep_last=2, about={"run": "r", "metrics": {"loss": 0.5}},
            )  # fmt: skip
        except GossipdError as error:
            return error

    with ThreadPoolExecutor(len(directories)) as pool:
        return list(pool.map(take_part, range(len(directories))))


def moved(daemon: Daemon) -> int:
    """Bytes of chunks that the host has sent to others."""
    return sum(peer["bytes_out"] for peer in daemon.client.peers()["peers"].values())


def test_shards_of_four_hosts_become_one_version_on_all_of_them(cluster: Cluster, tmp_path: Path) -> None:
    cluster.start(hosts=RANKS, racks=1)
    daemons = list(cluster.daemons.values())
    directories, group, before = save(tmp_path, 100), Group(RANKS), []
    group.on_exchange = lambda: before.append([moved(daemon) for daemon in daemons])
    made = publish(daemons, directories, 100, group)
    assert len({one.id for one in made if isinstance(one, Publication)}) == 1, made
    assert before[:3] == [[0] * RANKS] * 3, "no byte moves before the version exists"
    Client(daemons[3].home / "gossipd.sock").wait("run-7", 100, hosts="100%", timeout=PATIENCE_S)
    whole = tmp_path / "whole"
    whole.mkdir()
    for directory in directories:
        for path in directory.iterdir():
            (whole / path.name).write_bytes(path.read_bytes())
    assert all(same_tree(daemon.tree("run-7", 100), whole) for daemon in daemons)
    row = daemons[0].deployment("run-7", 100)
    assert row is not None
    received = row["peer_bytes_same_rack"] + row["peer_bytes_cross_rack"]
    assert row["source_bytes"] == 0
    [told] = Client(daemons[3].home / "gossipd.sock").lineage("run-7", 100)
    assert told.about == {"run": "r", "metrics": {"loss": 0.5}}
    assert received <= 1.05 * (RANKS - 1) * RANKS * SHARD_BYTES, "each host fetches what it lacks, once"


def test_two_hosts_send_their_own_shards_once(cluster: Cluster, tmp_path: Path) -> None:
    cluster.start(hosts=2, racks=2)
    daemons = list(cluster.daemons.values())
    made = publish(daemons, save(tmp_path, 100)[:2], 100)
    assert all(isinstance(one, Publication) for one in made), made
    Client(daemons[0].home / "gossipd.sock").wait("run-7", 100, hosts="100%", timeout=PATIENCE_S)
    assert all(moved(daemon) <= 1.05 * SHARD_BYTES for daemon in daemons)


def test_what_makes_no_whole_step_is_no_version_and_every_rank_is_told(cluster: Cluster, tmp_path: Path) -> None:
    cluster.start(hosts=2, racks=1)
    daemons = list(cluster.daemons.values())
    directories = save(tmp_path, 100)[:2]
    (directories[1] / "__0_0.distcp").write_bytes(b"x" * SHARD_BYTES)
    first, second = publish(daemons, directories, 100)
    assert isinstance(first, GossipdError)
    assert "ranks 0 and 1 have both written '__0_0.distcp'" in str(first)
    assert isinstance(second, RankFailedError)
    assert "rank 0: E_SHARDS" in str(second)
    (directories[1] / "__0_0.distcp").unlink()
    (directories[1] / "__1_0.distcp").unlink()
    first, second = publish(daemons, directories, 100)
    assert isinstance(first, RankFailedError)
    assert "rank 1" in str(first)
    assert all(daemon.deployment("run-7", 100) is None for daemon in daemons)
    (directories[1] / "__1_0.distcp").write_bytes(b"x" * SHARD_BYTES)
    made = publish(daemons, directories, 100)
    assert all(isinstance(one, Publication) for one in made), made
    until("both have it", lambda: all(daemon.tree("run-7", 100).is_dir() for daemon in daemons))
