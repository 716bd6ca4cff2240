"""``python -m tests.bench.membership_saturated --json``: daemons whose links are full, some without a CPU of their own.

Real daemons, one in each namespace of the lab's fabric, every link shaped to ``--mbit``. Three models are deployed side
by side, and as soon as one has arrived everywhere its next version with new bytes is dropped, so that chunks travel for
the whole time; storage has a wider link, so that it is not the limit. Chunks may take ``--chunk-share`` of a link, and
a flow from each host to one in another rack (``filler``) takes what they leave, so that queues are full everywhere:
with chunks alone the machine's CPU was used up at three quarters. ``--hogged`` hosts run in a CPU cgroup of their own
together with busy loops, under a quota (namespaces do not split the CPU). Every death that any daemon logs from the
first drop on is false: nobody dies. How full the links were is read from the switch. Needs root, iproute2 and nginx.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from gossipd.config.directory import make_directory
from gossipd.demo.hosts import DemoHost, settings
from gossipd.identity.key_files import write_key_pair
from gossipd.identity.keys import KEY_BYTES, SecretKey
from gossipd.publish.publisher import PublishOrder, publish
from tests.bench.lab.fabric import Fabric, LabError, fabric, missing
from tests.bench.lab.process import MachineCpu, usage
from tests.servers import Nginx

PORT = 7946
STORAGE_PORT = 8080
MODELS = {"small": 0.75, "middle": 1.0, "large": 1.25}  # sizes over --mb: they end at different times
FILLER = Path(__file__).parent / "filler.py"
CGROUPS = Path("/sys/fs/cgroup/cpu")
HOGGED_CPUS = 0.3  # a hogged host's quota,
HOGS_PER_HOST = 2  # of which the busy loops leave its daemon a third, about what it needs, in bursts once per period.
HOGGED_SHARES = 32 * 1024  # Its weight: with that of one process, what it lacked was taken by the other 28 hosts.
QUOTA_PERIOD_US = 100_000  # the kernel's default
CHUNK_BYTES = 4 * 1024 * 1024  # large ones cost less CPU, of which there is too little for thirty hosts
FILLER_PORT = 9
STORAGE_SHARE = 5.0  # of one host's link: both models enter all racks without waiting for storage
CONVERGE_S_MAX = 240.0  # thirty Python processes on two cores import for about 40 s when nothing else runs
POLL_S = 0.25
ASKS_MAX = 5


class Silent:
    """Nobody watches the publishing."""

    def found(self, file_count: int, bytes_total: int) -> None:
        """See PublishProgress."""

    def hashed(self, count: int) -> None:
        """See PublishProgress."""


class Supply:
    """Fresh versions of one model, each published when the last one has arrived everywhere."""

    def __init__(self, name: str, www: Path, url: str, secret: SecretKey, size_bytes: int) -> None:
        self.name = name
        self.version = 0
        self._www = www
        self._url = url
        self._secret = secret
        self._size_bytes = size_bytes

    def missing(self, hosts: list[DemoHost]) -> list[str]:
        """Hosts that have not published the newest version."""
        return [host.name for host in hosts if not (host.models / self.name / str(self.version)).exists()]

    def next(self, inbox: Path) -> None:
        """New bytes, signed and dropped."""
        shutil.rmtree(self._www / self.name / str(self.version - 1), ignore_errors=True)
        self.version += 1
        where = f"{self.name}/{self.version}"
        directory = self._www / where
        directory.mkdir(parents=True)
        (directory / "model.bin").write_bytes(os.urandom(self._size_bytes))
        out = inbox / f".{self.name}-{self.version}.part"
        publish(
            PublishOrder(
                source=str(directory), name=self.name, version=self.version, secret=self._secret, out=out,
                sources=(f"{self._url}/{where}/",), created_s=int(time.time()), chunk_bytes=CHUNK_BYTES,
            ),
            Silent(),
        )  # fmt: skip
        out.rename(inbox / f"{self.name}-{self.version}.gmf")


@contextmanager
def fillers(network: Fabric) -> Iterator[None]:
    """One on each host, sending to the host of the same place in the next rack."""
    per_rack = len(network.hosts) // network.racks
    started: list[subprocess.Popen[bytes]] = []
    try:
        for number, station in enumerate(network.hosts):
            target = network.hosts[(number + per_rack) % len(network.hosts)]
            script = [sys.executable, "-S", str(FILLER), station.address, str(FILLER_PORT), target.address]
            started.append(subprocess.Popen([*station.command, *script]))
        yield
        if any(process.poll() is not None for process in started):
            raise LabError("a filler has ended by itself")
    finally:
        for process in started:
            process.kill()
            process.wait()


def make_hosts(network: Fabric, base: Path, encryption: str, chunk_bytes_per_s: int) -> list[DemoHost]:
    """One host's directory for each station."""
    secret = SecretKey(os.urandom(KEY_BYTES))
    write_key_pair(base / "publisher.key", secret)
    first = network.hosts[0]
    hosts: list[DemoHost] = []
    for station in network.hosts:
        directory = base / station.name
        rack = f"rack-{station.rack + 1}"
        make_directory(
            directory,
            node={"name": station.name, "rack": rack},
            net={"bind": station.address, "port": PORT, "join": (f"{first.address}:{PORT}",) if hosts else ()},
            cluster_key=hosts[0].directory / "cluster.key" if hosts else None,
            trust=[base / "publisher.key.pub"],
        )
        environment = settings(["http"], encryption=encryption)
        environment |= {"PYTHONDONTWRITEBYTECODE": "1", "GOSSIPD_STORE__KEEP_VERSIONS": "1"}
        environment["GOSSIPD_LIMITS__DOWNLOAD_BYTES_PER_S"] = str(chunk_bytes_per_s)
        hosts.append(DemoHost(station.name, rack, directory, PORT, environment, command=station.command))
    return hosts


@contextmanager
def hogged(host: DemoHost) -> Iterator[None]:
    """Busy loops that share this host's quota with its daemon.

    A quota, because by weight the loops took every free moment of the machine, which in a cluster is other hosts'.
    """
    assert host.process is not None
    group = CGROUPS / f"gms-{os.getpid()}-{host.name}"
    group.mkdir()
    hogs: list[subprocess.Popen[bytes]] = []
    try:
        (group / "cpu.cfs_period_us").write_text(str(QUOTA_PERIOD_US))
        (group / "cpu.shares").write_text(str(HOGGED_SHARES))
        (group / "cpu.cfs_quota_us").write_text(str(int(HOGGED_CPUS * QUOTA_PERIOD_US)))
        (group / "cgroup.procs").write_text(str(host.process.pid))
        for _ in range(HOGS_PER_HOST):
            hogs.append(subprocess.Popen([sys.executable, "-c", "while True: pass"]))
            (group / "cgroup.procs").write_text(str(hogs[-1].pid))
        yield
    finally:
        for hog in hogs:
            hog.kill()
            hog.wait()
        (CGROUPS / "cgroup.procs").write_text(str(host.process.pid))
        group.rmdir()


def wait(is_true: Callable[[], bool], seconds_max: float, why: str) -> None:
    """Poll; raises LabError when it does not come true."""
    deadline = time.monotonic() + seconds_max
    while not is_true():
        if time.monotonic() > deadline:
            raise LabError(why)
        time.sleep(POLL_S)


def sees(host: DemoHost, count: int) -> bool:
    """Whether this daemon believes so many members alive."""
    page = host.status()
    return page is not None and sum(member["state"] == "alive" for member in page["members"]) == count


def patient_status(host: DemoHost) -> dict[str, Any] | None:
    """On a machine without a free CPU a page may take longer than its client waits."""
    pages = (host.status() for _ in range(ASKS_MAX))
    return next((page for page in pages if page is not None), None)


def said(hosts: list[DemoHost], marks: dict[str, int]) -> Counter[str]:
    """How often daemons have logged each event since the marks, which are log sizes."""
    found: Counter[str] = Counter()
    for host in hosts:
        with host.log.open("rb") as log:
            log.seek(marks[host.name])
            for line in log:
                if line.startswith(b"{"):
                    found[str(json.loads(line).get("event"))] += 1
    return found


def cpu_seconds(hosts: list[DemoHost]) -> float:
    """Of all daemons, so far."""
    return sum(usage(host.process.pid).cpu_s for host in hosts if host.process is not None)


def saturate(
    network: Fabric, hosts: list[DemoHost], supplies: list[Supply], options: argparse.Namespace
) -> dict[str, Any]:
    """Fill the links for the time asked for; what was measured."""
    inbox = hosts[0].inbox
    marks = {host.name: host.log.stat().st_size for host in hosts}
    for supply in supplies:
        supply.next(inbox)
    time.sleep(options.warm_s)
    before, cpu, began, used_s = network.counters(), MachineCpu(), time.monotonic(), cpu_seconds(hosts)
    while time.monotonic() - began < options.seconds:
        for supply in supplies:
            if not supply.missing(hosts):
                supply.next(inbox)
        if ended := [host.name for host in hosts if host.has_ended]:
            raise LabError(f"ended by themselves: {ended}")
        time.sleep(POLL_S)
    moved, busy, seconds = network.counters().since(before), cpu.busy(), time.monotonic() - began
    used_s = cpu_seconds(hosts) - used_s
    events = said(hosts, marks)
    pages = [patient_status(host) for host in hosts]
    lags = [page["loop_lag_p99_s"] if page is not None else None for page in pages]
    link_bytes = options.mbit * 1e6 / 8 * seconds
    shares = [count / link_bytes for count in moved.hosts.values()]
    return {
        "seconds": round(seconds, 1),
        "false_deaths": events["member down"],
        "isolations": events["isolated"],
        "views_full_at_end": sum(
            page is not None and sum(member["state"] == "alive" for member in page["members"]) == len(hosts)
            for page in pages
        ),
        "loop_lag_p99_s_hogged": lags[1 : 1 + options.hogged],
        "loop_lag_p99_s_others_max": max(lag for lag in [lags[0], *lags[1 + options.hogged :]] if lag is not None),
        "link_in_share_mean": round(sum(shares) / len(shares), 3),
        "link_in_share_min": round(min(shares), 3),
        "link_bytes": sum(moved.hosts.values()),
        "source_bytes": moved.external,
        "versions_dropped": sum(supply.version for supply in supplies),
        "hosts_without_the_last": {supply.name: len(supply.missing(hosts)) for supply in supplies},
        "cpus_of_daemons": round(used_s / seconds, 2),
        "machine_cpu_busy": round(busy, 3),
    }


def end(hosts: list[DemoHost]) -> None:
    """All at once, then one by one."""
    for host in hosts:
        host.ask_to_stop()
    for host in hosts:
        host.stop()


def run(options: argparse.Namespace) -> dict[str, Any]:
    """One cluster from the first daemon to the last line."""
    racks = [options.hosts // options.racks] * options.racks
    base = Path(tempfile.mkdtemp(prefix="gossipd-saturated-"))
    hosts: list[DemoHost] = []
    try:
        with ExitStack() as stack:
            network = stack.enter_context(fabric(racks, mbit=options.mbit))
            network.shape(network.storage, options.mbit * STORAGE_SHARE)
            storage = network.storage
            (base / "www").mkdir()
            server = Nginx(
                base / "www", base / "nginx", address=storage.address, port=STORAGE_PORT, command=storage.command
            )
            stack.callback(server.stop)
            hosts = make_hosts(network, base, options.encryption, int(options.chunk_share * options.mbit * 1e6 / 8))
            stack.callback(end, hosts)
            for host in hosts:
                host.start()
            wait(lambda: all(sees(host, len(hosts)) for host in hosts), CONVERGE_S_MAX, "not all find each other")
            secret = SecretKey.from_text((base / "publisher.key").read_text())
            supplies = [
                Supply(name, base / "www", server.url, secret, int(options.mb * 1024 * 1024 * share))
                for name, share in MODELS.items()
            ]
            for host in hosts[1 : 1 + options.hogged]:
                stack.enter_context(hogged(host))
            stack.enter_context(fillers(network))
            head = {"scenario": "saturated", "members": len(hosts), "mbit": options.mbit, "hogged": options.hogged}
            return head | {"encryption": options.encryption} | saturate(network, hosts, supplies, options)
    finally:
        if options.keep:
            print(f"kept in {base}", file=sys.stderr)
        else:
            shutil.rmtree(base, ignore_errors=True)


def main(arguments: list[str] | None = None) -> int:
    """Exit code 0; 1 when somebody was declared dead; 2 where it cannot run."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.membership_saturated", description=__doc__)
    parser.add_argument("--hosts", type=int, default=30)
    parser.add_argument("--racks", type=int, default=5)
    parser.add_argument("--mbit", type=float, default=20.0)
    parser.add_argument("--mb", type=int, default=64, help="mean size of a model in MiB")
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--warm-s", type=float, default=10.0, help="from the first drop to the beginning of counting")
    parser.add_argument("--chunk-share", type=float, default=0.2, help="of a link, at most, for chunks from peers")
    parser.add_argument("--hogged", type=int, default=2, help="hosts with busy loops")
    parser.add_argument("--encryption", choices=("none", "tls"), default="none")
    parser.add_argument("--keep", action="store_true", help="leave the directories, with logs")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    lack = missing()
    if lack is not None:
        print(f"needs {lack}", file=sys.stderr)
        return 2
    row = run(options)
    print(json.dumps(row) if options.json else "\n".join(f"{name}: {value}" for name, value in row.items()))
    return 1 if row["false_deaths"] else 0


if __name__ == "__main__":
    sys.exit(main())
