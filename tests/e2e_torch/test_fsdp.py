"""A real job of four ranks, FSDP2 and AdamW on gloo, each with a daemon of its own: one is killed and replaced."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.filesystem import _StorageInfo

from gossipd.client import Client
from gossipd.publish.step_listing import StepLister
from gossipd.publish.step_watch import unfinished
from gossipd.torch import GossipdReader, GossipdWriter
from gossipd.torch.checkpoints import terms_of
from tests.e2e.cluster import PATIENCE_S, Cluster, publishing_cluster, same_tree
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
    second = Job([one.home for one in (*daemons[:3], replacement)], steps=20, every=5, part=True).told()
    [loaded] = of(second, "loaded")
    assert (loaded["step"], loaded["digest"]) == (10, saved[10]), "all weights and moments are equal"
    before = {one["step"]: one["loss"] for one in of(first, "step")}
    after = {one["step"]: one["loss"] for one in of(second, "step")}
    assert [after[step] for step in (11, 12)] == pytest.approx([before[step] for step in (11, 12)])
    assert [one["step"] for one in of(second, "saved")] == [15, 20]
    assert Client(daemons[0].home / "gossipd.sock").wait("run", timeout=PATIENCE_S).version == 20


def test_a_job_goes_on_with_half_its_ranks_and_then_with_all_of_them(cluster: Cluster) -> None:
    cluster.start(hosts=6, racks=2)
    daemons = list(cluster.daemons.values())
    saved: dict[int, str] = {}
    for hosts, steps in ((daemons[:4], 5), (daemons[4:], 10), (daemons[:4], 15)):
        told = Job([one.home for one in hosts], steps=steps, every=5, part=True).told()
        loaded = [(one["step"], one["digest"]) for one in of(told, "loaded")]
        assert loaded == ([(steps - 5, saved[steps - 5])] if saved else [])
        saved |= {one["step"]: one["digest"] for one in of(told, "saved")}
    assert sorted(saved) == [5, 10, 15]


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


def test_a_reader_of_a_part_fetches_what_its_plan_names_and_the_rest_after_it(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.start(hosts=2, racks=1)
    publisher, node = cluster.daemons.values()
    here, there = Client(publisher.home / "gossipd.sock"), Client(node.home / "gossipd.sock")
    there.want("run", "files:.metadata")  # a host that has nothing yet
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        state = {f"w{number}": torch.full((1 << 20,), float(number + 1)) for number in range(8)}  # 4 MiB each
        dcp.save(state, storage_writer=GossipdWriter(tmp_path / "step-7", name="run", step=7, client=here))
        loaded: dict[str, Any] = {"w2": torch.zeros(1 << 20), "w6": torch.zeros(1 << 20)}
        with GossipdReader("run", 7, client=there, timeout=PATIENCE_S, part=True) as reader:
            dcp.load(loaded, storage_reader=reader)
            row = there.part("run", 7)
            assert len(row.want) == 2 and row.want[1].startswith("ranges:__0_0.distcp:")
            fetched = sum(peer["bytes_in"] for peer in node.client.peers()["peers"].values())
            assert fetched <= 13 << 20, "8 MiB that are wanted, and at each of their ends a chunk of 1 MiB"
            other: dict[str, Any] = {"w0": torch.zeros(1 << 20)}
            monkeypatch.setattr(reader, "prepare_local_plan", lambda plan: plan)  # a rank that has not ordered
            with pytest.raises(CheckpointException, match="was changed while it was loaded"):
                dcp.load(other, storage_reader=reader)
            assert not other["w0"].any()
    finally:
        dist.destroy_process_group()
    assert all(torch.equal(loaded[name], state[name]) for name in loaded)
    assert there.want("run", "files:.metadata") == ("files:.metadata",), "the order of another stays"
    there.want("run", clear=True)
    there.wait("run", 7, timeout=PATIENCE_S)
    assert same_tree(there.path("run", 7), tmp_path / "step-7"), "all of it is wanted again"


@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 1 << 26), st.integers(1, 1 << 23)), max_size=60))
@settings(max_examples=1000, deadline=None)
def test_every_byte_that_a_plan_reads_is_in_its_terms(places: list[tuple[str, int, int]]) -> None:
    wanted: dict[str, list[tuple[int, int]]] = {}
    for term in terms_of(_StorageInfo(*place) for place in places):
        kind, _, text = term.partition(":")
        path, _, listed = text.partition(":")
        spans = listed.split(",") if kind == "ranges" else ["0-99999999"]
        wanted[path] = [(int(begin), int(end)) for begin, end in (span.split("-") for span in spans)]
    for path, offset, length in places:
        assert any(begin <= offset and offset + length <= end for begin, end in wanted[path])


def test_places_in_files_become_few_ranges_and_whole_files_where_they_are_too_many() -> None:
    def read(*places: tuple[str, int, int]) -> tuple[str, ...]:
        return terms_of(_StorageInfo(*place) for place in places)

    assert read(("b", 0, 10), ("a", 5_000_000, 7), ("a", 0, 10), ("a", 900_000, 10)) == (
        "ranges:a:0-900010,5000000-5000007",
        "ranges:b:0-10",
    )
    many = [("a", number * 2_000_000, 10) for number in range(5_000)]
    assert read(*many, ("b", 0, 10)) == ("files:a", "files:b")


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")  # one process saves alone
def test_a_shard_that_the_real_metadata_names_is_missed(tmp_path: Path) -> None:
    step = tmp_path / "step-7"
    dcp.save({"weights": torch.ones(1000)}, checkpoint_id=step, no_dist=True)
    assert unfinished(StepLister(tmp_path).look()["step-7"]) is None
    (shard,) = step.glob("*.distcp")
    shard.rename(step / "of-another-name.distcp")
    assert unfinished(StepLister(tmp_path).look()["step-7"]) == (
        f"'.metadata' names shards that are not there: {shard.name!r}"
    )
