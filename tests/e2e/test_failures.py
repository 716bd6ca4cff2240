"""Real daemons that die, rot and run out of disk while a model is delivered, and hosts that must not notice."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import servers
from tests.e2e.cluster import Cluster, Daemon, alive_count, cluster, gossipd, same_tree, until
from tests.e2e.toy import make_model

HOSTS = 8
# Slow enough that "half-way" lasts a second on any machine: 8 MB/s out of storage for a model of 24 MB.
SOURCE_RATE = str(2 * 1024 * 1024)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[servers.Nginx]:
    base = tmp_path_factory.mktemp("site")
    (base / "root").mkdir()
    with servers.nginx(base / "root", base / "nginx") as running:
        yield running


@pytest.fixture
def slow_eight(tmp_path_factory: pytest.TempPathFactory, site: servers.Nginx) -> Iterator[Cluster]:
    """Eight daemons in two racks whose seeds read slowly."""
    environment = {
        "GOSSIPD_SOURCES__ALLOW": json.dumps([site.url.rstrip("/")]),
        "GOSSIPD_LIMITS__SOURCE_BYTES_PER_S": SOURCE_RATE,
        "GOSSIPD_BULK__ENCRYPTION": "none",
    }
    with cluster(tmp_path_factory.mktemp("eight"), environment=environment) as made:
        made.start(HOSTS, 2)
        yield made


def progress_of(daemon: Daemon, name: str) -> int:
    """Verified chunks of that host, as it says itself."""
    row: dict[str, Any] = daemon.deployment(name, 1) or {"hosts": []}
    return sum(host["chunks_verified"] for host in row["hosts"] if host["name"] == daemon.name)


def seeds(daemon: Daemon) -> list[str]:
    status = daemon.try_status() or {"members": []}
    return [member["name"] for member in status["members"] if member["seed"]]


def deliver(made: Cluster, site: servers.Nginx, name: str, into: int) -> Path:
    model = make_model(site.root / name, shards=6)
    made.drop(made.publish(model, name, 1, "--source", f"{site.url.rstrip('/')}/{name}/"), made[into])
    return model


@pytest.mark.needs("nginx")
def test_a_seed_that_is_killed_half_way_is_replaced_and_costs_no_second_copy(
    slow_eight: Cluster, site: servers.Nginx
) -> None:
    before = site.body_bytes()
    model = deliver(slow_eight, site, "seedless", 1)
    until("half-way", lambda: progress_of(slow_eight[1], "seedless") >= 40)
    (victim, *_) = until("another seed", lambda: [name for name in seeds(slow_eight[1]) if name != "node-1"])
    slow_eight.daemons[victim].kill()
    row = slow_eight.wait_complete("seedless", 1, at=slow_eight[1], hosts=HOSTS - 1)
    until("the dead one is no seed", lambda: victim not in seeds(slow_eight[1]))
    for daemon in slow_eight.daemons.values():
        if daemon.name != victim:
            until("its directory", daemon.tree("seedless", 1).exists)
            assert same_tree(model, daemon.tree("seedless", 1))
    assert site.body_bytes() - before <= 1.3 * row["bytes_total"], "twice only what was in flight there"


@pytest.mark.needs("nginx")
def test_a_host_killed_and_restarted_half_way_asks_for_no_chunk_again_whose_write_had_completed(
    slow_eight: Cluster, site: servers.Nginx
) -> None:
    model = deliver(slow_eight, site, "again", 1)
    victim = slow_eight[6] if "node-6" not in seeds(slow_eight[1]) else slow_eight[8]
    until("half-way", lambda: progress_of(victim, "again") >= 30)
    victim.kill()
    victim.start()
    row = slow_eight.wait_complete("again", 1, at=slow_eight[1], hosts=HOSTS)
    for daemon in slow_eight.daemons.values():
        until("its directory", daemon.tree("again", 1).exists)
        assert same_tree(model, daemon.tree("again", 1))
    uploaded = sum(_sent_chunks(daemon, victim, site) for daemon in slow_eight.daemons.values() if daemon is not victim)
    in_flight = 16  # fetches that the kill cut: their writes had not completed
    assert uploaded <= row["chunks_total"] + in_flight, "others count what they sent to the victim over both its lives"


def _sent_chunks(daemon: Daemon, to: Daemon, site: servers.Nginx) -> int:
    del site
    node = (to.try_status() or {"node": {"id": ""}})["node"]["id"]
    answer = daemon.client.peers()
    return int(answer["peers"].get(node, {}).get("chunks_out", 0))


@pytest.mark.needs("nginx")
def test_chunks_that_rot_on_a_hosts_disk_are_found_by_receivers_blamed_right_and_repaired(
    slow_eight: Cluster, site: servers.Nginx
) -> None:
    model = deliver(slow_eight, site, "rot", 1)
    slow_eight.wait_complete("rot", 1, at=slow_eight[1], hosts=HOSTS)
    for number in range(3, HOSTS + 1):
        assert slow_eight[number].stop() == 0
    rotten = slow_eight[1].tree("rot", 1) / "model-00001-of-00006.safetensors"
    with rotten.open("r+b") as file:
        for offset in range(100_000, 3_900_000, 250_000):
            file.seek(offset)
            file.write(b"\xff\x00\xff\x00")
    newcomer = slow_eight.add("newcomer", "rack-1", GOSSIPD_SOURCES__ENABLED="false")
    newcomer.start()
    until("the newcomer has it", newcomer.tree("rot", 1).exists)
    assert same_tree(model, newcomer.tree("rot", 1))
    checked = gossipd("verify", "rot@1", "--config", slow_eight[1].config, check=False)
    assert checked.returncode == 6, "what no receiver met is found by looking: " + checked.stdout
    until("the rotten host has repaired itself", lambda: same_tree(model, slow_eight[1].tree("rot", 1)))
    until("counted", lambda: (slow_eight[1].deployment("rot", 1) or {"corrupt_chunks": 0})["corrupt_chunks"] > 0)


# After SIGUSR1 no thread can be started (none has room for a stack of 64 TiB), after SIGUSR2 again; trio keeps no idle
# ones, so that each of its calls asks for a new one.
WITHOUT_THREADS = """
import signal, sys, threading
import trio._core._thread_cache
trio._core._thread_cache.IDLE_TIMEOUT = 0.001
signal.signal(signal.SIGUSR1, lambda *_: threading.stack_size(1 << 46))
signal.signal(signal.SIGUSR2, lambda *_: threading.stack_size(0))
from gossipd.cli.main import main
sys.exit(main(sys.argv[1:]))
"""


def test_a_host_that_gets_no_threads_says_so_answers_and_goes_on_when_it_gets_them(tmp_path: Path) -> None:
    with cluster(tmp_path / "one", environment={"GOSSIPD_SOURCES__ALLOW": json.dumps([f"file://{tmp_path}"])}) as made:
        daemon = made.add("node-1", "rack-1")
        daemon.start(("-c", WITHOUT_THREADS))
        daemon.wait_ready()
        model = make_model(tmp_path / "model", shards=1)
        manifest = made.publish(model, "m", 1)

        def is_alarmed() -> bool:
            status = daemon.try_status()
            return status is not None and "E_THREADS" in [alarm["code"] for alarm in status["alarms"]]

        assert daemon.process is not None
        daemon.process.send_signal(signal.SIGUSR1)
        until("it says that it lacks threads", is_alarmed)
        made.drop(manifest, daemon)
        daemon.process.send_signal(signal.SIGUSR2)
        made.wait_complete("m", 1, at=daemon, hosts=1)
        until("it says so no longer", lambda: not is_alarmed())
        assert same_tree(model, daemon.tree("m", 1))
        assert daemon.stop() == 0


def test_storage_that_takes_requests_and_answers_nothing_is_named_while_they_hang(tmp_path: Path) -> None:
    model = make_model(tmp_path / "model", shards=1)
    files = {str(path.relative_to(model)): path.read_bytes() for path in model.rglob("*") if path.is_file()}
    with servers.fault_server(files) as storage:
        storage.always = servers.Fault(servers.Misbehaviour.HANG)
        environment = {"GOSSIPD_SOURCES__ALLOW": json.dumps([storage.url]), "GOSSIPD_SOURCES__TIMEOUT_S": "600"}
        with cluster(tmp_path / "one", environment=environment) as made:
            daemon = made.add("node-1", "rack-1")
            daemon.start()
            daemon.wait_ready()
            made.drop(made.publish(model, "m", 1, "--source", f"{storage.url}/"), daemon)

            def reasons() -> set[str]:
                row: dict[str, Any] = daemon.deployment("m", 1) or {"stall": None, "hosts": []}
                return {row["stall"], *(host["reason"] for host in row["hosts"])}

            until("a read hangs", storage.gets)
            until("it says that storage is why", lambda: reasons() == {"storage"})
            assert "E_SOURCE" not in daemon.log(), "before anything has failed"


@pytest.mark.needs("nginx", "root")
def test_a_full_disk_is_named_serves_on_and_heals_by_itself(
    slow_eight: Cluster, site: servers.Nginx, tmp_path: Path
) -> None:
    small = tmp_path / "small"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=12m,mode=0750", "tmpfs", small], check=True)
    try:
        newcomer = slow_eight.add("small", "rack-1", GOSSIPD_STORE__MODELS=str(small), GOSSIPD_STORE__RESERVE_BYTES="0")
        newcomer.start()
        newcomer.wait_ready()
        until("it has joined", lambda: alive_count(newcomer) == HOSTS + 1)
        model = deliver(slow_eight, site, "large", 1)
        slow_eight.wait_complete("large", 1, at=slow_eight[1], hosts=HOSTS)

        def reason() -> str:
            row = slow_eight[1].deployment("large", 1) or {"hosts": []}
            return "".join(host["reason"] for host in row["hosts"] if host["name"] == "small")

        until("others see why", lambda: reason() == "no_space")
        own_line = newcomer.client.status()["store"]["detail"]
        assert own_line.startswith("large@1 waits for space: "), "though the disk takes writes"
        row = newcomer.deployment("large", 1)
        assert row is not None and row["eta_s"] is None
        subprocess.run(["mount", "-o", "remount,size=64m", small], check=True)
        tree = small / "large" / "1"
        until("it completes by itself", tree.exists)
        assert same_tree(model, tree)
        assert newcomer.stop() == 0
    finally:
        for daemon in slow_eight.daemons.values():
            if daemon.name == "small" and daemon.process is not None:
                daemon.kill()
        subprocess.run(["umount", "-l", small], check=True)
        shutil.rmtree(small, ignore_errors=True)
