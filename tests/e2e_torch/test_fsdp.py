"""A real job of four ranks, FSDP2 and AdamW on gloo, each with a daemon of its own: one is killed and replaced."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp

from gossipd.client import Client
from gossipd.torch import GossipdReader, GossipdWriter
from tests.e2e.cluster import PATIENCE_S, Cluster, publishing_cluster
from tests.e2e_torch.job import Job, of

RANKS = 4


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with publishing_cluster(tmp_path) as cluster:
        yield cluster


def test_a_job_goes_on_after_one_of_its_hosts_was_killed_and_replaced(cluster: Cluster) -> None:
    cluster.start(hosts=RANKS, racks=2)
    daemons = list(cluster.daemons.values())
    first = Job([one.home for one in daemons], steps=20, every=5).kill_at(12)
    assert not of(first, "loaded"), "no version: a new run"
    saved = {one["step"]: one["digest"] for one in of(first, "saved")}
    assert sorted(saved) == [5, 10]
    Client(daemons[0].home / "gossipd.sock").wait("run", 10, hosts=2, timeout=PATIENCE_S)
    daemons[3].kill()
    replacement = cluster.add("node-5", "rack-2")
    replacement.start()
    replacement.wait_ready()
    second = Job([one.home for one in (*daemons[:3], replacement)], steps=20, every=5).told()
    [loaded] = of(second, "loaded")
    assert (loaded["step"], loaded["digest"]) == (10, saved[10]), "all weights and moments are equal"
    before = {one["step"]: one["loss"] for one in of(first, "step")}
    after = {one["step"]: one["loss"] for one in of(second, "step")}
    assert [after[step] for step in (11, 12)] == pytest.approx([before[step] for step in (11, 12)])
    assert [one["step"] for one in of(second, "saved")] == [15, 20]
    assert Client(daemons[0].home / "gossipd.sock").wait("run", timeout=PATIENCE_S).version == 20


def test_a_writer_publishes_what_torch_has_saved_and_a_reader_loads_it_elsewhere(
    cluster: Cluster, tmp_path: Path
) -> None:
    cluster.start(hosts=2, racks=1)
    here, there = (Client(one.home / "gossipd.sock") for one in cluster.daemons.values())
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        state = {"weights": torch.arange(300_000, dtype=torch.float32), "step": 7}
        writer = GossipdWriter(tmp_path / "step-7", name="run", step=7, client=here, keep_last=3)
        dcp.save(state, storage_writer=writer)
        assert writer.publication is not None
        assert writer.publication.version == 7
        loaded: dict[str, Any] = {"weights": torch.zeros(300_000), "step": 0}
        dcp.load(loaded, storage_reader=GossipdReader("run", client=there, timeout=PATIENCE_S))
    finally:
        dist.destroy_process_group()
    assert loaded["step"] == 7
    assert torch.equal(loaded["weights"], torch.arange(300_000, dtype=torch.float32))
