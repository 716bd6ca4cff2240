"""Real daemons and the places where models really lie: a hub that signs addresses, and a server without ranges."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

import pytest

from tests.e2e.cluster import Cluster, cluster, gossipd, same_tree, until
from tests.gossipd.sources.models import write_tree
from tests.gossipd.sources.test_mirrors import rangeless
from tests.hub import Repository, served_hub

HOSTS = 3
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
            written = everything_written(made)
    for secret in (b"Signature=", TOKEN.encode(), b"/xet/"):
        assert secret not in written
    assert {one.authorization for one in hub.to("storage")} == {None}


def test_a_server_without_ranges_delivers_small_files_and_is_named_for_large_ones(tmp_path: Path) -> None:
    write_tree(FILES, tmp_path / "www" / "small")
    write_tree({"big.bin": RNG.randbytes(17 * 1024 * 1024)}, tmp_path / "www" / "large")
    with rangeless(tmp_path / "www") as url:
        environment = {"GOSSIPD_SOURCES__ALLOW": json.dumps([url])}
        with cluster(tmp_path / "cluster", environment=environment) as made:
            made.start(1, 1)
            for name in ("small", "large"):
                made.drop(made.publish(tmp_path / "www" / name, name, 1, "--source", f"{url}/{name}/"), made[1])
            made.wait_complete("small", 1, at=made[1], hosts=1)
            until("the cause is told", lambda: "the server has no ranges" in made[1].log())
            assert f"{url}/large/big.bin" in made[1].log()
            assert gossipd("status", "--config", made[1].config, check=False).returncode in (0, 1)
