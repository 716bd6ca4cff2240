"""What daemons take that have nothing to do: share of a core, wake-ups a second, threads, memory.

``python -m tests.bench.rest [--hosts 4] [--seconds 20] [--json]``. The hosts form one cluster on loopback with a small
model that all of them hold. Each is looked at twice when every host sees all others and the scrub, which begins a
minute after a start, has read the model once. A wake-up is a voluntary switch: a wait of some thread that ended. Means
per host. ``busy_share`` is the whole machine's: above 0.6, shares of a core are no verdict; counts are.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.bench.lab.process import MachineCpu
from tests.bench.start import byte_code, compile_modules, resident_bytes
from tests.bench.thread_costs import between, look
from tests.e2e.cluster import cluster
from tests.e2e.toy import make_model


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.rest", description=__doc__)
    parser.add_argument("--hosts", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=20.0, help="between the two looks")
    parser.add_argument("--settle", type=float, default=75.0, help="seconds before the first one")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="gossipd-rest-") as root:
        result = measure(Path(root), options.hosts, options.seconds, options.settle)
    print(json.dumps(result) if options.json else "\n".join(f"{name:24} {value}" for name, value in result.items()))
    return 0


def measure(root: Path, hosts: int, seconds: float, settle_s: float) -> dict[str, Any]:
    """The row."""
    model = make_model(root / "model", shards=1, shard_bytes=1_000_000)
    environment = {"GOSSIPD_SOURCES__ALLOW": json.dumps([f"file://{model}"]), **byte_code(root)}
    compile_modules(environment)
    with cluster(root / "site", environment=environment) as site:
        site.start(hosts, racks=min(2, hosts))
        site.drop(site.publish(model, "toy", 1, "--source", f"file://{model}"), site[1])
        site.wait_complete("toy", 1, at=site[1], hosts=hosts)
        time.sleep(settle_s)
        pids = [daemon.process.pid for daemon in site.daemons.values() if daemon.process is not None]
        machine, begun_s, before = MachineCpu(), time.monotonic(), look(pids)
        time.sleep(seconds)
        after, took_s = look(pids), time.monotonic() - begun_s
        costs = between(before, after)
        return {
            "hosts": hosts,
            "core_share": round(sum(one.cpu_s for one in costs.values()) / hosts / took_s, 5),
            "wake_ups_per_s": round(sum(one.switches for one in costs.values()) / hosts / took_s, 1),
            "threads": round(len(after) / hosts, 1),
            "rss_bytes": sum(map(resident_bytes, pids)) // hosts,
            "busy_share": round(machine.busy(), 2),
            "by_thread": {name: asdict(one) for name, one in costs.items()},
        }


if __name__ == "__main__":
    sys.exit(main())
