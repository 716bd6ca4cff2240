"""The demo's parts: the toy model, the storage that counts, rot, comparison, and what is refused before it begins."""

from __future__ import annotations

import http.client
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from safetensors import safe_open

from gossipd.core.errors import UsageError
from gossipd.demo.compare import differences
from gossipd.demo.hosts import free_ports
from gossipd.demo.play import DemoOrder
from gossipd.demo.rot import Rot
from gossipd.demo.storage import StorageServer
from gossipd.demo.toy_model import write_toy_model
from tests.gossipd.sources.models import CHUNK_BYTES, sign, write_tree

MIB = 1024 * 1024


def test_a_toy_model_has_the_size_asked_for_and_is_read_by_its_users(tmp_path: Path) -> None:
    total = write_toy_model(tmp_path / "toy", 8 * MIB)
    assert 8 * MIB <= total <= 8 * MIB + 200_000
    shards = sorted((tmp_path / "toy").glob("*.safetensors"))
    assert len(shards) == 2
    for shard in shards:
        with safe_open(shard, framework="np") as opened:
            assert opened.metadata() == {"format": "pt"}
            assert all(opened.get_slice(name).get_shape()[1] == 1024 for name in opened.keys())  # noqa: SIM118
    assert {path.name for path in (tmp_path / "toy").iterdir()} >= {"config.json", "tokenizer.json"}


def test_a_toy_model_is_the_same_every_time(tmp_path: Path) -> None:
    write_toy_model(tmp_path / "one", 4 * MIB)
    write_toy_model(tmp_path / "other", 4 * MIB)
    assert differences(tmp_path / "one", tmp_path / "other") == []


@pytest.fixture
def storage(tmp_path: Path) -> Iterator[StorageServer]:
    (tmp_path / "served").mkdir()
    (tmp_path / "served" / "file").write_bytes(bytes(range(256)) * 16)
    (tmp_path / "secret").write_bytes(b"no")
    server = StorageServer(tmp_path / "served")
    yield server
    server.close()


def ask(storage: StorageServer, path: str, method: str = "GET", **headers: str) -> tuple[int, bytes, dict[str, str]]:
    host = storage.url.removeprefix("http://").rstrip("/")
    connection = http.client.HTTPConnection(host, timeout=120)
    connection.request(method, path, headers={name.replace("_", "-"): value for name, value in headers.items()})
    response = connection.getresponse()
    body = response.read()
    connection.close()
    return response.status, body, dict(response.getheaders())


def test_storage_answers_ranges_and_counts_body_bytes_exactly(storage: StorageServer) -> None:
    status, body, headers = ask(storage, "/file", Range="bytes=10-19")
    assert (status, body) == (206, bytes(range(10, 20)))
    assert headers["Content-Range"] == "bytes 10-19/4096"
    assert ask(storage, "/file")[0] == 200
    assert ask(storage, "/file", method="HEAD")[2]["Content-Length"] == "4096"
    assert storage.body_bytes == 10 + 4096
    assert storage.requests == 3


def test_storage_refuses_another_version_a_range_past_the_end_and_what_is_outside(storage: StorageServer) -> None:
    tag = ask(storage, "/file", method="HEAD")[2]["ETag"]
    assert ask(storage, "/file", If_Match=tag)[0] == 200
    assert ask(storage, "/file", If_Match='"other"')[0] == 412
    assert ask(storage, "/file", Range="bytes=4096-")[0] == 416
    assert ask(storage, "/nothing")[0] == 404
    assert ask(storage, "/../secret")[0] == 404


@pytest.mark.parametrize("change", ["flip", "cut", "longer", "missing", "extra"])
def test_comparison_finds_every_kind_of_difference(tmp_path: Path, change: str) -> None:
    files = {"a": Random(1).randbytes(3 * MIB), "deep/b": b"x"}
    write_tree(files, tmp_path / "original")
    shutil.copytree(tmp_path / "original", tmp_path / "copy")
    assert differences(tmp_path / "original", tmp_path / "copy") == []
    a = tmp_path / "copy" / "a"
    match change:
        case "flip":
            a.write_bytes(files["a"][: 2 * MIB] + b"!" + files["a"][2 * MIB + 1 :])
        case "cut":
            os.truncate(a, 2 * MIB)
        case "longer":
            a.write_bytes(files["a"] + b"!")
        case "missing":
            (tmp_path / "copy" / "deep" / "b").unlink()
        case "extra":
            (tmp_path / "copy" / "more").write_bytes(b"")
    assert len(differences(tmp_path / "original", tmp_path / "copy")) == 1


@pytest.mark.parametrize("where", ["incoming", "published"])
def test_rot_damages_what_has_been_stored_since_it_began_and_sees_the_repair(tmp_path: Path, where: str) -> None:
    files = {"a": Random(2).randbytes(4 * CHUNK_BYTES)}
    manifest = sign(files, "http://storage/")
    write_tree(files, tmp_path / "original")
    models = tmp_path / "models"
    tree = models / ".incoming" / manifest.id.hex() if where == "incoming" else models / "toy" / "1"
    write_tree({"a": files["a"][: 2 * CHUNK_BYTES] + bytes(2 * CHUNK_BYTES)}, tree)
    rot = Rot(manifest, models, tmp_path / "original", chunks_max=5, rng=Random(3))
    rot.skip_stored()
    rot.step()
    assert rot.damaged == [], "what was there before is left alone"
    write_tree({"a": files["a"][: 3 * CHUNK_BYTES] + bytes(CHUNK_BYTES)}, tree)
    rot.step()
    assert rot.damaged == [2]
    assert not rot.is_repaired(2)
    assert rot.is_repaired(0)
    write_tree(files, tree)
    assert rot.is_repaired(2)
    rot.close()


def test_free_ports_leave_room_for_bulk() -> None:
    ports = free_ports(8)
    assert len({number for port in ports for number in (port, port + 1)}) == 16


@pytest.mark.parametrize(
    "order",
    [
        DemoOrder(hosts=2, racks=3), DemoOrder(hosts=0), DemoOrder(kill="node-7"), DemoOrder(corrupt="node-0"),
        DemoOrder(size_bytes=1000), DemoOrder(hosts=1, racks=1, kill="node-1"),
    ],
)  # fmt: skip
def test_an_order_that_cannot_work_is_refused_before_anything_starts(order: DemoOrder) -> None:
    with pytest.raises(UsageError):
        order.check()
