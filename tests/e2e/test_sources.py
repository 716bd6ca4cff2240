"""Real daemons and the places where models really lie: a hub that signs addresses, and a server without ranges."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

import pytest

from tests.e2e.cluster import Cluster, cluster, same_tree, until
from tests.gossipd.sources.models import write_tree
from tests.gossipd.sources.test_mirrors import rangeless
from tests.hub import Repository, served_hub
from tests.rangeless_server import rangeless_server

HOSTS = 3
MIB = 1024 * 1024
RNG = Random(21)
FILES = {
    "config.json": RNG.randbytes(600),
    "model.safetensors": RNG.randbytes(9_000_000),
    "tokenizer/vocab.json": RNG.randbytes(50_000),
}
TOKEN = "hf_canaryOfTheTests"


def everything_written(made: Cluster) -> bytes:
    """All that daemons keep and log, but for the models."""
    found = [path for path in made.base.rglob("*") if path.is_file() and "models" not in path.parts]
    return b"".join(path.read_bytes() for path in found)


@pytest.mark.parametrize("lives_s", [2.0])
def test_a_repository_of_a_hub_is_published_and_delivered_and_no_signed_address_is_kept(
    tmp_path: Path, lives_s: float
) -> None:
    pytest.importorskip("huggingface_hub")
    write_tree(FILES, tmp_path / "original")
    with served_hub(org__model=Repository(FILES, token=TOKEN)) as hub:
        hub.lives_s = lives_s
        credentials = {"HF_ENDPOINT": hub.endpoint, "HF_TOKEN": TOKEN}
        environment = {"GOSSIPD_SOURCES__ALLOW": json.dumps(["hf://org/model"]), **credentials}
        with cluster(tmp_path / "cluster", environment=environment) as made:
            made.start(HOSTS, 2)
            manifest = made.publish("hf://org/model@main", "org/model", 1, env=credentials)
            assert Repository({}).commit.encode() in manifest.read_bytes()
            made.drop(manifest, made[2])
            row = made.wait_complete("org/model", 1, at=made[1], hosts=HOSTS)
            for daemon in made.daemons.values():
                assert same_tree(tmp_path / "original", daemon.tree("org/model", 1))
            assert row["source_bytes"] <= 1.1 * row["bytes_total"]
        written = everything_written(made)  # of daemons that have ended: a living one replaces files meanwhile
    for secret in (b"Signature=", TOKEN.encode(), b"/xet/"):
        assert secret not in written
    assert {one.authorization for one in hub.to("storage")} == {None}


def test_a_large_file_of_a_server_without_ranges_is_read_once_for_all_hosts(tmp_path: Path) -> None:
    files = {"big.bin": RNG.randbytes(80 * MIB), "next.bin": RNG.randbytes(20 * MIB), "config.json": b"{}"}
    write_tree(files, tmp_path / "www" / "m")
    with (
        rangeless_server(tmp_path / "www") as server,
        cluster(tmp_path / "c", environment={"GOSSIPD_SOURCES__ALLOW": json.dumps([server.url])}) as made,
    ):
        made.start(4, 2)
        made.drop(made.publish(tmp_path / "www" / "m", "m", 1, "--source", f"{server.url}/m/"), made[1])
        row = made.wait_complete("m", 1, at=made[1], hosts=4)
        for daemon in made.daemons.values():
            assert same_tree(tmp_path / "www" / "m", daemon.tree("m", 1))
    assert row["source_bytes"] <= 1.01 * row["bytes_total"]
    assert server.acknowledged <= 1.05 * row["bytes_total"], "with the first looks"


def test_a_reader_that_dies_in_a_file_without_ranges_is_followed_by_one_other(tmp_path: Path) -> None:
    write_tree({"big.bin": RNG.randbytes(96 * MIB)}, tmp_path / "www" / "m")
    with (
        rangeless_server(tmp_path / "www") as server,
        cluster(tmp_path / "c", environment={"GOSSIPD_SOURCES__ALLOW": json.dumps([server.url])}) as made,
    ):
        for number in (1, 2, 3):
            made.add(f"node-{number}", "rack-1").configure(source_bytes_per_s='"8MiB"')
            made[number].start()
        made.wait_together()
        made.drop(made.publish(tmp_path / "www" / "m", "m", 1, "--source", f"{server.url}/m/"), made[1])
        until("a quarter is read", lambda: (made[1].deployment("m", 1) or {}).get("source_bytes", 0) > 24 * MIB)
        seeds = [one["name"] for one in made[1].client.status()["members"] if one["seed"]]
        reading = next(daemon for daemon in made.daemons.values() if daemon.name == seeds[0])
        reading.kill()
        left = [daemon for daemon in made.daemons.values() if daemon is not reading]
        for daemon in left:
            daemon.configure(source_bytes_per_s="0")
        made.wait_complete("m", 1, at=left[0], hosts=2)
        for daemon in left:
            assert same_tree(tmp_path / "www" / "m", daemon.tree("m", 1))
    whole, quarter = 96 * MIB, 24 * MIB  # of the first reader at least a quarter; of a third never all
    assert len(seeds) == 1 and server.acknowledged < quarter + 2 * whole, "the second drops what is there, and no third"


def test_a_server_without_ranges_delivers_small_files_whole(tmp_path: Path) -> None:
    write_tree(FILES, tmp_path / "www" / "small")
    with (
        rangeless(tmp_path / "www") as url,
        cluster(tmp_path / "c", environment={"GOSSIPD_SOURCES__ALLOW": json.dumps([url])}) as made,
    ):
        made.start(1, 1)
        made.drop(made.publish(tmp_path / "www" / "small", "m", 1, "--source", f"{url}/small/"), made[1])
        made.wait_complete("m", 1, at=made[1], hosts=1)
        assert same_tree(tmp_path / "www" / "small", made[1].tree("m", 1))
