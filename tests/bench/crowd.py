"""Many daemons on few cores: how soon all see each other, how soon all hold a small model, and who is taken for dead.

``python -m tests.bench.crowd [--hosts 60] [--racks 6] [--mib 8] [--json]``. Directories are made before the clock
starts. ``in_view_s`` is from the first start until every host has listed all others as alive; ``complete_s`` from the
drop of the manifest until its directory is visible on every host. ``deaths_shown`` counts, over all hosts, the events
that say of a member that it is down; none has been stopped. ``busy_share`` is the whole machine's.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tests.bench.lab.process import MachineCpu
from tests.bench.pair_systems.daemons import cpu_s
from tests.bench.start import byte_code, compile_modules
from tests.e2e.cluster import Cluster, Daemon, alive_count, cluster
from tests.e2e.toy import make_model

NAME, VERSION = "toy", 1
_PATIENCE_S = 300.0
_LOOK_S = 0.1


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.crowd", description=__doc__)
    parser.add_argument("--hosts", type=int, default=60)
    parser.add_argument("--racks", type=int, default=6)
    parser.add_argument("--mib", type=int, default=8)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="gossipd-crowd-") as root:
        result = measure(Path(root), options.hosts, options.racks, options.mib << 20)
    print(json.dumps(result) if options.json else "\n".join(f"{name:24} {value}" for name, value in result.items()))
    return 0


def measure(root: Path, hosts: int, racks: int, model_bytes: int) -> dict[str, Any]:
    """The row."""
    model = make_model(root / "model", shards=1, shard_bytes=model_bytes)
    environment = {"GOSSIPD_SOURCES__ALLOW": json.dumps([f"file://{model}"]), **byte_code(root)}
    compile_modules(environment)
    with cluster(root / "site", environment=environment) as site:
        for number in range(hosts):
            site.add(f"node-{number + 1}", f"rack-{number % racks + 1}")
        machine, began_s = MachineCpu(), time.monotonic()
        for daemon in site.daemons.values():
            daemon.start()
        in_view_s = _seconds_until_all(site, began_s, lambda one: alive_count(one) == hosts)
        started_cpu_s = _cpu_s(site)
        manifest = site.publish(model, NAME, VERSION, "--source", f"file://{model}")
        began_s = time.monotonic()
        site.drop(manifest, site[1])
        complete_s = _seconds_until_all(site, began_s, lambda one: one.tree(NAME, VERSION).exists())
        return {
            "hosts": hosts,
            "racks": racks,
            "bytes": model_bytes,
            "in_view_s": round(in_view_s, 1),
            "complete_s": round(complete_s, 1),
            "deaths_shown": sum(_deaths(daemon) for daemon in site.daemons.values()),
            "start_cpu_s_per_host": round(started_cpu_s / hosts, 2),
            "complete_cpu_s_per_host": round((_cpu_s(site) - started_cpu_s) / hosts, 2),
            "busy_share": round(machine.busy(), 2),
        }


def _seconds_until_all(site: Cluster, began_s: float, is_so: Callable[[Daemon], bool]) -> float:
    """Since ``began_s``, until it has been so on each host once."""
    left = list(site.daemons.values())
    while left:
        left = [daemon for daemon in left if not is_so(daemon)]
        assert time.monotonic() - began_s < _PATIENCE_S, [daemon.name for daemon in left]
        time.sleep(_LOOK_S)
    return time.monotonic() - began_s


def _deaths(daemon: Daemon) -> int:
    bodies = [event["body"] for event in daemon.client.events(None)["events"]]
    return sum(body["type"] == "member" and body["state"] == "down" for body in bodies)


def _cpu_s(site: Cluster) -> float:
    return sum(cpu_s(f"/proc/{one.process.pid}/stat") for one in site.daemons.values() if one.process is not None)


if __name__ == "__main__":
    sys.exit(main())
