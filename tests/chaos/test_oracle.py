"""The oracle of the cluster's chaos must be able to say no: each thing that it looks for, planted."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from gossipd.core.ids import SOURCE
from gossipd.demo.hosts import DemoHost
from gossipd.store.chunk_store import ChunkStore
from gossipd.store.models import layout
from gossipd.store.settings import StoreSettings
from tests.chaos.cluster.oracle import Oracle
from tests.gossipd.store.small_models import Model, small

SETTINGS = StoreSettings(reserve_bytes=0, scrub_bytes_per_s=0)


@pytest.fixture
def model() -> Model:
    return small()


@pytest.fixture
def oracle(tmp_path: Path, model: Model) -> Oracle:
    original = tmp_path / "original"
    for path, body in model.files.items():
        (original / path).parent.mkdir(parents=True, exist_ok=True)
        (original / path).write_bytes(body)
    return Oracle(model.manifest, original)


@pytest.fixture
def host(tmp_path: Path) -> DemoHost:
    made = DemoHost("node-1", "rack-1", tmp_path / "node-1", 1)
    made.models.mkdir(mode=0o700, parents=True)
    made.log.touch()
    return made


def deliver(host: DemoHost, model: Model, chunks: range, *, finish: bool = False) -> None:
    store = ChunkStore(host.models, settings=SETTINGS, on_event=lambda event: None, background=False)
    store.open(model.manifest)
    for chunk in chunks:
        store.put(model.manifest.id, chunk, model.chunks[chunk], SOURCE, 0.0)
    store.commit()
    if finish:
        store.finish(model.manifest.id)
    store.close()


def flip(path: Path, at: int = 0) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        byte = file.read(1)
        file.seek(at)
        file.write(bytes([byte[0] ^ 1]))


def log(host: DemoHost, event: str, **fields: object) -> None:
    with host.log.open("a") as file:
        file.write(json.dumps({"event": event, **fields}) + "\n")


def test_a_host_that_has_what_it_claims_and_asks_for_the_rest_is_not_accused(
    host: DemoHost, model: Model, oracle: Oracle
) -> None:
    log(host, "fetch", chunk=0)
    deliver(host, model, range(3))
    oracle.look_at_dead(host)
    assert oracle.deaths[0].completed == {0, 1, 2}
    log(host, "fetch", chunk=3)
    log(host, "read", chunks=[4, 5])
    deliver(host, model, range(3, len(model.chunks)), finish=True)
    oracle.compare([host])
    assert (oracle.verdict.problems, oracle.verdict.requested_again) == ([], 0)


def test_a_completed_chunk_that_is_asked_for_again_is_seen(host: DemoHost, model: Model, oracle: Oracle) -> None:
    deliver(host, model, range(3))
    oracle.look_at_dead(host)
    log(host, "fetch", chunk=1)
    log(host, "read", chunks=[2, 3])
    deliver(host, model, range(3, len(model.chunks)), finish=True)
    oracle.compare([host])
    assert oracle.verdict.requested_again == 2


def test_a_claim_whose_bytes_are_wrong_is_seen(host: DemoHost, model: Model, oracle: Oracle) -> None:
    deliver(host, model, range(3))
    flip(host.models / layout.incoming(model.manifest.id) / "shards/one.bin")
    oracle.look_at_dead(host)
    assert oracle.verdict.corrupted_accepted == 1
    assert 0 not in oracle.deaths[0].completed


def test_a_published_byte_that_differs_is_seen_and_so_is_a_host_without_the_model(
    host: DemoHost, model: Model, oracle: Oracle
) -> None:
    oracle.compare([host])
    assert oracle.verdict.hosts_not_identical == 1
    deliver(host, model, range(len(model.chunks)), finish=True)
    flip(host.models / "m" / "1" / "two.bin", 100)
    oracle.compare([host])
    assert (oracle.verdict.hosts_not_identical, oracle.verdict.corrupted_accepted) == (2, 1)


def test_blame_is_true_only_of_a_chunk_that_its_sender_sent_damaged_to_that_host(
    host: DemoHost, oracle: Oracle
) -> None:
    sent = {"liar": Counter({("node-1", 3): 1, ("node-2", 4): 1})}
    log(host, "corrupt chunk", peer="liar", chunk=3)
    assert oracle.judge_blame([host], sent) == 1
    assert oracle.verdict.wrong_peer_blamed == 0
    log(host, "corrupt chunk", peer="liar", chunk=4)  # that was sent to another
    log(host, "corrupt chunk", peer="honest", chunk=3)
    log(host, "chunk has rotted", chunk=5)
    sent = {"liar": Counter({("node-1", 3): 1, ("node-2", 4): 1})}
    assert oracle.judge_blame([host], sent) == 3
    assert oracle.verdict.wrong_peer_blamed == 3


def test_a_disk_that_was_damaged_on_purpose_excuses_its_host(host: DemoHost, model: Model, oracle: Oracle) -> None:
    deliver(host, model, range(3))
    flip(host.models / layout.incoming(model.manifest.id) / "shards/one.bin")
    oracle.damaged["node-1"] = {0}
    oracle.look_at_dead(host)
    log(host, "chunk has rotted", chunk=0)
    log(host, "fetch", chunk=0)
    oracle.judge_blame([host], {})
    assert (oracle.verdict.corrupted_accepted, oracle.verdict.wrong_peer_blamed) == (0, 0)
