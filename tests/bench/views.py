"""What it costs to look at a large cluster: commands, the page, and what a daemon has to do for its viewers.

``python -m tests.bench.views [--members 1000] [--deployments 1] [--viewers 10] [--seconds 20] [--json]``. One real
daemon among members that share a process (``growth_members``), with deployments that all hosts have complete. Prints,
of ``status``, ``why`` and ``wait`` as a user starts them, the least time and CPU time of a process over some runs;
bytes of the page's JSON, packed, and of the page itself; and the daemon's share of a core, and the mean and the 99th
percentile (the bound of its bucket) of its loop's lag, without and with ``viewers`` that ask ``gossipd web`` once a
second.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.client import HTTPConnection
from importlib.resources import files
from pathlib import Path
from typing import Any

from gossipd.api.client import StatusClient
from gossipd.identity.key_files import read_secret_key
from gossipd.web.forwarding import PAGE_STATUS, Forwarder
from tests.bench.growth import CHUNK, PATIENCE_S, complete_here, drop, members, sees, small
from tests.bench.growth_members import PORT, address_of
from tests.bench.lab.process import MachineCpu
from tests.bench.thread_costs import between, look
from tests.e2e.cluster import Daemon, cluster, until

RUNS = 5
DEPLOYMENT = f"{PAGE_STATUS}?name=small-0&version=1"  # a page with a row of every host
RECORDS_PER_S = 1000.0


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.views", description=__doc__)
    parser.add_argument("--members", type=int, default=1000)
    parser.add_argument("--deployments", type=int, default=1)
    parser.add_argument("--viewers", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=20.0, help="with and without viewers, each")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="gossipd-views-") as root:
        row = measure(Path(root), options)
    print(json.dumps(row) if options.json else "\n".join(f"{name:28} {value}" for name, value in row.items()))
    return 0


def measure(root: Path, options: argparse.Namespace) -> dict[str, Any]:
    """The row."""
    machine, source = MachineCpu(), root / "model"
    source.mkdir()
    (source / "model.bin").write_bytes(CHUNK)
    environment = {"GOSSIPD_SOURCES__ALLOW": json.dumps([f"file://{source}"])}
    with cluster(root / "site", environment=environment) as site:
        daemon = site.add("node-1", "rack-own", GOSSIPD_NET__JOIN=json.dumps([f"{address_of(0)}:{PORT}"]))
        daemon.client = StatusClient(daemon.home / "gossipd.sock", timeout_s=PATIENCE_S)
        with members(daemon, options.members, 5.0) as others:
            daemon.start()
            daemon.wait_ready()
            until("all in view", lambda: sees(daemon, options.members), patience_s=PATIENCE_S)
            secret = read_secret_key(site.key)
            for number in range(options.deployments):
                drop(daemon, f"small-{number}", small(secret, number, f"file://{source}"))
            until("complete here", lambda: len(complete_here(daemon)) >= options.deployments, patience_s=PATIENCE_S)
            others.tell(RECORDS_PER_S, [one["id"] for one in complete_here(daemon)])
            row = {"members": options.members, "deployments": options.deployments, "viewers": options.viewers}
            row |= commands(daemon) | sizes(daemon)
            row |= looked_at(daemon, options.seconds, "no_viewers")
            with viewers(daemon, options.viewers):
                row |= looked_at(daemon, options.seconds, "viewers")
    return row | {"busy_share": round(machine.busy(), 2)}


def commands(daemon: Daemon) -> dict[str, float]:
    """Least seconds, and least seconds of CPU, of each command as a process."""
    row = {}
    for words in (("status",), ("why", "small-0@1"), ("wait", "small-0@1", "--timeout", "5s")):
        found = [_run([*words, "--config", str(daemon.config)]) for _ in range(RUNS)]
        row[f"{words[0]}_min_s"] = min(wall for wall, _ in found)
        row[f"{words[0]}_cpu_min_s"] = min(cpu for _, cpu in found)
    return row


def _run(words: Sequence[str]) -> tuple[float, float]:
    before, begun_s = os.times(), time.monotonic()
    subprocess.run([sys.executable, "-m", "gossipd", *words], check=True, stdout=subprocess.DEVNULL)
    after = os.times()
    cpu_s = after.children_user + after.children_system - before.children_user - before.children_system
    return round(time.monotonic() - begun_s, 3), round(cpu_s, 3)


def sizes(daemon: Daemon) -> dict[str, int]:
    """Bytes of what a browser fetches."""
    told = Forwarder(daemon.home / "gossipd-read.sock").ask(DEPLOYMENT)
    static = sum(len(one.read_bytes()) for one in (files("gossipd") / "web" / "static").iterdir() if one.is_file())
    return {"page_json_bytes": len(told.body), "page_json_packed_bytes": len(told.packed), "page_bytes": static}


def looked_at(daemon: Daemon, seconds: float, what: str) -> dict[str, float]:
    """What the daemon takes, and how late its loop is."""
    assert daemon.process is not None
    pid = daemon.process.pid
    lag, costs, begun_s = _lag(daemon), look([pid]), time.monotonic()
    time.sleep(seconds)
    used, elapsed_s, later = between(costs, look([pid])).values(), time.monotonic() - begun_s, _lag(daemon)
    grown = {name: value - lag.get(name, 0.0) for name, value in later.items()}
    count = max(1.0, grown.pop("count"))
    mean_s, buckets = grown.pop("sum") / count, sorted((float(name), value) for name, value in grown.items())
    p99_s = next((bound for bound, value in buckets if value >= 0.99 * count), math.inf)
    return {
        f"core_share_{what}": round(sum(one.cpu_s for one in used) / elapsed_s, 4),
        f"loop_lag_mean_s_{what}": round(mean_s, 5), f"loop_lag_p99_s_{what}": p99_s,
    }  # fmt: skip


def _lag(daemon: Daemon) -> dict[str, float]:
    found = re.findall(
        r'(?m)^gossipd_event_loop_lag_seconds_(sum|count|bucket)(?:\{le="([^"]+)"\})? (\S+)$', daemon.client.metrics()
    )
    assert found
    return {bound or kind: float(value) for kind, bound, value in found}


@contextmanager
def viewers(daemon: Daemon, count: int) -> Iterator[None]:
    """So many that ask as the page does, each on a connection of its own."""
    command = [sys.executable, "-m", "gossipd", "web", "--config", str(daemon.config), "--listen", "127.0.0.1:0"]
    running = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert running.stderr is not None
    stop = threading.Event()
    try:
        found = re.search(r"http://127\.0\.0\.1:(\d+)", running.stderr.readline())
        assert found is not None
        threads = [threading.Thread(target=_view, args=(int(found[1]), stop)) for _ in range(count)]
        for thread in threads:
            thread.start()
        yield
        stop.set()
        for thread in threads:
            thread.join()
    finally:
        stop.set()
        running.terminate()
        running.wait()
        running.stderr.close()


def _view(port: int, stop: threading.Event) -> None:
    connection = HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
    while not stop.wait(1.0):
        connection.request("GET", DEPLOYMENT, headers={"Accept-Encoding": "gzip"})
        answered = connection.getresponse()
        answered.read()
        assert answered.status == 200, answered.status
    connection.close()


if __name__ == "__main__":
    sys.exit(main())
