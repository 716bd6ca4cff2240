"""Four real daemons of two ranks of experts: each takes its part, and storage sends each byte once."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import safetensors
from msgspec.structs import replace

from gossipd.client import Client, NotThereError
from gossipd.identity.key_files import read_secret_key
from tests.e2e.cluster import Cluster, Daemon, cluster, gossipd, until
from tests.gossipd.parts import models_of_tensors
from tests.gossipd.parts.models_of_tensors import expert_model, manifest_of, rows_of

HOSTS, NAME = 4, "acme/moe"
FILES = expert_model(layers=4, experts=8, expert_bytes=300_000)
NAMES = [row.name for row in rows_of(FILES)]


def wants(daemon: Daemon, *terms: str) -> None:
    """Say in its configuration what the host wants."""
    text = daemon.config.read_text().partition("\n[parts]")[0]
    listed = ", ".join(f'"{term}"' for term in terms)
    daemon.config.write_text(f'{text}\n[parts]\nwants = {{"{NAME}" = [{listed}]}}\n')


@pytest.fixture(scope="module")
def four(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Two hosts of each rank, in two racks, which have their parts of a model."""
    base = tmp_path_factory.mktemp("four")
    (base / "models").mkdir()
    allow = f'["file://{base}/models"]'
    with cluster(base, environment={"GOSSIPD_SOURCES__ALLOW": allow}) as made:
        for number in range(1, HOSTS + 1):
            wants(made.add(f"node-{number}", f"rack-{(number - 1) // 2}"), f"ep:{number % 2}/2")
            made[number].start()
        made.wait_together()
        model = base / "models" / "moe"
        model.mkdir()
        for path, body in FILES.items():
            (model / path).write_bytes(body)
        made.drop(made.publish(model, NAME, 1, "--source", f"file://{model}/", "--chunk-size", "64KiB"), made[3])
        for number in range(1, HOSTS + 1):
            made.wait_complete(NAME, 1, at=made[number], hosts=HOSTS)
        yield made


def of_rank(rank: int) -> set[str]:
    return {name for name in NAMES if ".experts." not in name or int(name.split(".experts.")[1][0]) // 4 == rank}


def readable(tree: Path) -> set[str]:
    """The tensors that the real library reads, each equal to what was published; all others it must refuse."""
    found: set[str] = set()
    for path in sorted(tree.glob("*.safetensors")):
        signed = {name: entry["data"] for name, entry in safetensors.deserialize(FILES[path.name])}  # type: ignore[no-untyped-call]
        reader: Any
        with safetensors.safe_open(path, "numpy") as reader:
            listed = set(reader.keys())
            for name, data in signed.items():
                if name in listed:
                    assert reader.get_tensor(name).tobytes() == bytes(data)
                    found.add(name)
                else:
                    with pytest.raises(safetensors.SafetensorError):
                        reader.get_tensor(name)
    return found


def path_of(daemon: Daemon, *more: str) -> Path:
    return Path(gossipd("path", NAME, *more, "--config", daemon.config).stdout.strip())


def test_each_host_takes_its_rank_and_storage_is_read_once(four: Cluster) -> None:
    row = four.wait_complete(NAME, 1, at=four[2], hosts=HOSTS)
    assert row["source_bytes"] <= row["bytes_total"] + 16 * 65_536, (
        "some chunks may be taken over of a host without CPU"
    )
    for number in range(1, HOSTS + 1):
        assert readable(path_of(four[number], "--part")) == of_rank(number % 2)
        refused = gossipd("path", NAME, "--config", four[number].config, check=False)
        assert refused.returncode == 3 and "--part" in refused.stderr
        assert not (four[number].home / "models" / NAME / "1").exists()
    host = row["hosts"][0]
    assert host["want"].startswith("ep:") and host["chunks_verified"] == host["chunks_wanted"] < row["chunks_total"]
    assert (
        row["cluster_bytes_verified"] == row["cluster_bytes_total"] == sum(one["bytes_wanted"] for one in row["hosts"])
    )
    moved = row["source_bytes"] + row["peer_bytes_same_rack"] + row["peer_bytes_cross_rack"]
    need = sum(len(body) for body in FILES.values()) * HOSTS * (len(of_rank(0)) / len(NAMES))
    assert moved <= 1.15 * need


def test_more_wanted_fetches_the_difference_and_a_restart_keeps_the_part(four: Cluster) -> None:
    daemon = four[1]
    wants(daemon, "ep:0/2", "ep:1/2")
    gossipd("reload", "--config", daemon.config)

    def grown() -> bool:
        found = daemon.deployment(NAME, 1)
        own = [one for one in (found or {"hosts": []})["hosts"] if one["name"] == daemon.name]
        return bool(own) and own[0]["state"] == "complete" and "\n" in own[0]["want"]

    until("the host has both ranks", grown)
    assert readable(path_of(daemon, "--part")) == set(NAMES)
    daemon.stop()
    daemon.start()
    daemon.wait_ready()
    until("the part is there again", lambda: daemon.deployment(NAME, 1) is not None and grown())
    assert readable(path_of(daemon, "--part")) == set(NAMES)


def test_an_order_is_followed_at_once_adds_to_the_configuration_and_outlives_a_restart(four: Cluster) -> None:
    daemon = four[2]  # its configuration says ep:0/2
    client = Client(config=daemon.config)

    def has(*terms: str) -> bool:
        rows = (daemon.deployment(NAME, 1) or {"hosts": []})["hosts"]
        own = [one for one in rows if one["name"] == daemon.name]
        return bool(own) and own[0]["state"] == "complete" and own[0]["want"].split("\n") == list(terms)

    assert client.want(NAME, "ep:1/2") == ("ep:0/2", "ep:1/2")
    until("the host has both ranks", lambda: has("ep:0/2", "ep:1/2"))
    assert readable(path_of(daemon, "--part")) == set(NAMES)
    daemon.stop()
    daemon.start()
    daemon.wait_ready()
    until("the order holds after a restart", lambda: has("ep:0/2", "ep:1/2"))
    (row,) = json.loads(gossipd("want", "--list", "--json", "--config", daemon.config).stdout)["wants"]
    assert (row["configured"], row["ordered"]) == ("ep:0/2", "ep:1/2")
    with pytest.raises(NotThereError):
        client.hold(NAME).__enter__()
    with client.hold(NAME, part=True) as tree:
        assert readable(tree) == set(NAMES)
    freed = gossipd("want", NAME, "--clear", "--free", "--config", daemon.config).stdout
    assert freed.startswith(f"this host wants ep:0/2 of {NAME}: ") and "is deleted" in freed
    until(
        "what is wanted no longer has gone", lambda: has("ep:0/2") and readable(path_of(daemon, "--part")) == of_rank(0)
    )


def test_orders_that_mean_nothing_are_refused_and_change_nothing(four: Cluster) -> None:
    daemon = four[4]
    for term, code in (
        ("tensors:no.such.*", "E_WANT"),
        ("files:*.pt", "E_WANT"),
        ("ep:3/99", "E_WANT"),
        ("x", "E_WANT"),
    ):
        refused = gossipd("want", NAME, term, "--config", daemon.config, check=False)
        assert (refused.returncode, refused.stderr.partition(":")[0]) == (2, code), refused.stderr
    assert gossipd("want", "../x", "all", "--config", daemon.config, check=False).returncode == 2
    rows = json.loads(gossipd("want", "--list", "--json", "--config", daemon.config).stdout)["wants"]
    assert [(one["name"], one["ordered"]) for one in rows] == [(NAME, None)]


def test_a_preset_needs_an_index_and_files_do_not(four: Cluster) -> None:
    daemon, model = four[4], four.base / "models" / "plain"
    model.mkdir()
    (model / "a.bin").write_bytes(b"a" * 200_000)
    (model / "b.bin").write_bytes(b"b" * 200_000)
    assert "no version of it is known" in gossipd("want", "plain", "ep:0/2", "--config", daemon.config).stdout
    four.drop(four.publish(model, "plain", 1, "--source", f"file://{model}/", "--chunk-size", "64KiB"), four[1])

    def own() -> tuple[str, str]:
        hosts = (daemon.deployment("plain", 1) or {"hosts": []})["hosts"]
        return next(((one["state"], one["reason"]) for one in hosts if one["name"] == daemon.name), ("", ""))

    until("the preset means nothing without an index", lambda: own() == ("failed", "want"))
    refused = gossipd("want", "plain", "ep:1/2", "--clear", "--config", daemon.config, check=False)
    assert refused.returncode == 2 and refused.stderr.startswith("E_NO_INDEX: "), refused.stderr
    gossipd("want", "plain", "files:a.bin", "--clear", "--config", daemon.config)
    until("another want begins it again", lambda: own() == ("complete", ""))
    assert [
        one.name for one in Path(gossipd("path", "plain", "--part", "--config", daemon.config).stdout.strip()).iterdir()
    ] == ["a.bin"]


def test_an_index_that_lies_fails_where_it_is_relied_on_until_all_is_wanted(
    four: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(models_of_tensors, "PUBLISHER", read_secret_key(four.key))
    files, model = expert_model(layers=1), four.base / "models" / "lying"
    model.mkdir()
    for path, body in files.items():
        (model / path).write_bytes(body)
    rows = rows_of(files)
    one, two = (next(at for at, row in enumerate(rows) if f".experts.{number}." in row.name) for number in (0, 7))
    rows[one], rows[two] = replace(rows[one], name=rows[two].name), replace(rows[two], name=rows[one].name)
    envelope = manifest_of(files, rows=rows, name="lying", sources=(f"file://{model}/",)).envelope
    (four.base / "lying.gmf").write_bytes(envelope)
    gossipd("want", "lying", "ep:0/2", "--config", four[3].config)
    four.drop(four.base / "lying.gmf", four[1])

    def own() -> tuple[str, str]:
        hosts = (four[3].deployment("lying", 1) or {"hosts": []})["hosts"]
        return next(((one["state"], one["reason"]) for one in hosts if one["name"] == four[3].name), ("", ""))

    until("the index is found to lie", lambda: own() == ("failed", "want"))
    until("nothing of it stays", lambda: not list((four[3].home / "models" / "lying").glob("*")))
    four.wait_complete("lying", 1, at=four[2], hosts=HOSTS - 1)
    assert client_of(four[3]).want("lying", "all", clear=True) == ()
    until("all of it needs no index", lambda: own() == ("complete", ""))
    with client_of(four[3]).hold("lying") as tree:
        assert {path.name: path.read_bytes() for path in tree.iterdir()} == files


def client_of(daemon: Daemon) -> Client:
    return Client(config=daemon.config)
