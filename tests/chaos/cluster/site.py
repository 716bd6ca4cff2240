"""What a run stands on: a fresh model behind nginx, a host's directory in each namespace, proxies before the liars.

What lives here: making and ending these. What does not: trouble, and judging.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from gossipd.config.directory import make_directory
from gossipd.demo.hosts import DemoHost, settings
from gossipd.identity.key_files import write_key_pair
from gossipd.identity.keys import KEY_BYTES, SecretKey
from gossipd.manifest.manifest import Manifest, open_manifest
from gossipd.publish.publisher import PublishOrder, publish
from tests.bench.lab.fabric import Fabric, LabError, fabric
from tests.chaos.cluster.schedule import Liar, Plan
from tests.chaos.cluster.trouble import wait
from tests.servers import Nginx

ROOT = Path(__file__).resolve().parents[3]
PORT, STORAGE_PORT = 7946, 8080
NAME, VERSION = "model", 1
CHUNK_BYTES = 256 * 1024
SHARDS = 3
START_SECONDS_MAX = 90.0
JOINS = 3


@dataclass
class Site:
    """Everything of one run."""

    base: Path
    fabric: Fabric
    original: Path
    manifest: Manifest
    hosts: list[DemoHost] = field(default_factory=list)
    proxies: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def injected(self) -> dict[str, Counter[tuple[str, int]]]:
        """By liar: how often which host was sent which chunk damaged. A record under TLS has chunk -1."""
        by_address = {station.address: station.name for station in self.fabric.hosts}
        found: dict[str, Counter[tuple[str, int]]] = {}
        for log in self.base.glob("proxy-*.jsonl"):
            entries = [json.loads(line) for line in log.read_text().splitlines()]
            found[log.stem.removeprefix("proxy-")] = Counter(
                (by_address[entry["to"]], entry["chunk"]) for entry in entries if entry["damage"] != "manifest"
            )
        return found

    def close(self) -> None:
        for proxy in self.proxies:
            proxy.kill()
            proxy.wait()
        for host in self.hosts:
            host.stop()


@contextmanager
def site(base: Path, plan: Plan, rng: Random, *, racks: list[int], size: int, mbit: float) -> Iterator[Site]:
    """Made, started and converged; everything is gone at the end but what is in ``base``."""
    original = base / "www" / "m"
    _write_model(original, rng, size)
    with fabric(racks, mbit=mbit) as network:
        storage = network.storage
        server = Nginx(
            base / "www", base / "nginx", address=storage.address, port=STORAGE_PORT, command=storage.command
        )
        manifest = _publish(base, original, f"{server.url}/m/")
        made = Site(base, network, original, manifest)
        try:
            made.hosts = _make_hosts(base, network, plan)
            made.proxies = [_start_proxy(base, network, plan, liar, rng) for liar in plan.liars]
            _compile(made.hosts[0])
            for host in made.hosts:
                host.start()
            _converge(made.hosts)
            yield made
        finally:
            made.close()
            server.stop()


def _write_model(directory: Path, rng: Random, size: int) -> None:
    """Random bytes, so that no two chunks are alike; small files are packed into chunks of their own."""
    directory.mkdir(parents=True)
    for number in range(SHARDS):
        (directory / f"shard-{number + 1}.bin").write_bytes(rng.randbytes(size // SHARDS + number))
    (directory / "config.json").write_text('{"model_type": "chaos"}')
    (directory / "tokenizer").mkdir()
    (directory / "tokenizer" / "vocab.txt").write_bytes(rng.randbytes(1000))
    (directory / "tokenizer" / "empty.txt").write_bytes(b"")


class _Quiet:
    def found(self, file_count: int, bytes_total: int) -> None:
        """Nobody watches."""

    def hashed(self, count: int) -> None:
        """Nobody watches."""


def _publish(base: Path, original: Path, url: str) -> Manifest:
    secret = SecretKey(os.urandom(KEY_BYTES))
    write_key_pair(base / "publisher.key", secret)
    out = base / "model.manifest"
    order = PublishOrder(
        source=str(original), name=NAME, version=VERSION, secret=secret, out=out, sources=(url,),
        created_s=int(time.time()), chunk_bytes=CHUNK_BYTES,
    )  # fmt: skip
    publish(order, _Quiet())
    return open_manifest(out.read_bytes(), [secret.public.ed25519])


def _make_hosts(base: Path, network: Fabric, plan: Plan) -> list[DemoHost]:
    liars = {liar.name for liar in plan.liars}
    # Sixteen interpreters start at once, some of them several times: compiled code is kept between them.
    cache = {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(base.parent / "pycache")}
    hosts: list[DemoHost] = []
    for station in network.hosts:
        directory, rack = base / station.name, f"rack-{station.rack + 1}"
        contacts = [other.address for other in network.hosts if other.name != station.name][:JOINS]
        make_directory(
            directory,
            node={"name": station.name, "rack": rack},
            net={"bind": station.address, "port": PORT, "join": tuple(f"{contact}:{PORT}" for contact in contacts)},
            cluster_key=hosts[0].directory / "cluster.key" if hosts else None,
            trust=[base / "publisher.key.pub"],
        )
        environment = settings(["http"], encryption=plan.encryption) | cache | {"GOSSIPD_LOG__LEVEL": "debug"}
        if station.name in liars:  # the proxy has the place where others look for the daemon
            environment["GOSSIPD_NET__BULK_BIND"] = "127.0.0.1"
        hosts.append(DemoHost(station.name, rack, directory, PORT, environment, command=station.command))
    return hosts


def _compile(host: DemoHost) -> None:
    """Fill the cache with one interpreter: sixteen that start at once would compile everything sixteen times."""
    command = [sys.executable, "-c", "import gossipd.daemon.main"]
    subprocess.run(command, env=os.environ | host.environment, check=True, timeout=START_SECONDS_MAX)


def _start_proxy(base: Path, network: Fabric, plan: Plan, liar: Liar, rng: Random) -> subprocess.Popen[bytes]:
    station = next(one for one in network.hosts if one.name == liar.name)
    mode = "clear" if plan.encryption == "none" else "tls"
    command = [
        *station.command, sys.executable, "-m", "tests.chaos.cluster.proxy",
        "--listen", f"{station.address}:{PORT + 1}", "--to", f"127.0.0.1:{PORT + 1}", "--mode", mode,
        "--share", str(liar.share), "--seed", str(rng.randrange(2**32)),
        "--log", str(base / f"proxy-{liar.name}.jsonl"),
    ]  # fmt: skip
    with (base / f"proxy-{liar.name}.err").open("ab") as errors:
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=errors, stderr=errors, cwd=ROOT)


def _converge(hosts: list[DemoHost]) -> None:
    left = list(hosts)

    def is_whole(host: DemoHost) -> bool:
        page = host.status()
        return page is not None and sum(one["state"] == "alive" for one in page["members"]) == len(hosts)

    def all_are() -> bool:
        for host in list(left):
            if host.has_ended:
                raise LabError(f"{host.name} ended while it started:\n{host.log_tail()}")
            if is_whole(host):
                left.remove(host)
        return not left

    wait(all_are, START_SECONDS_MAX, lambda: f"{left[0].name} has not found the others:\n{left[0].log_tail()}")
