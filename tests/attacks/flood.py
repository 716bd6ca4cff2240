"""``python -m tests.attacks.flood [--json]``: what a stranger without a key costs four daemons that deliver a model.

A model is deployed three times: beside nothing, beside a process of the lowest priority that spins, and beside a
stranger of the same priority (``stranger``). Goodput is compared between the last two, because loopback shares its
processors with the attacker. Meanwhile a member asks each bulk port, twenty times in all.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.attacks.builders.bulk import request
from tests.attacks.pure.bulk import converse
from tests.attacks.real.hosts import MODEL, AttackedCluster
from tests.e2e.cluster import until

VISITS = 20
VISIT_S = 2.0
_SPIN = "import os\nos.nice(19)\nwhile True: pass\n"
_PATIENCE_S = 300.0
_WARM_UP_S = 10.0


def rss_bytes(cluster: AttackedCluster) -> list[int]:
    """Of each daemon."""
    found = []
    for daemon in cluster.daemons:
        assert daemon.process is not None
        pages = int(Path(f"/proc/{daemon.process.pid}/statm").read_text().split()[1])
        found.append(pages * os.sysconf("SC_PAGE_SIZE"))
    return found


def cpu_s(cluster: AttackedCluster) -> float:
    """Of all daemons together, since they began."""
    ticks = 0
    for daemon in cluster.daemons:
        assert daemon.process is not None
        fields = Path(f"/proc/{daemon.process.pid}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def deployed_s(cluster: AttackedCluster, version: int, size_bytes: int) -> tuple[float, float]:
    """Seconds from the drop to complete on all hosts, and the daemons' CPU seconds meanwhile."""
    manifest = cluster.publish(version, size_bytes=size_bytes)
    began_s, before_s = time.monotonic(), cpu_s(cluster)
    cluster.cluster.drop(manifest, cluster.daemons[0])
    until(f"{MODEL}@{version}", lambda: cluster.is_everywhere(version), patience_s=_PATIENCE_S)
    return time.monotonic() - began_s, cpu_s(cluster) - before_s


def visits_s(cluster: AttackedCluster) -> list[float]:
    """How long a member waits for the answer to a request on a connection of its own; above all bounds without one."""
    key = cluster.insider.ring.keys[0]
    took = []
    for number in range(VISITS):
        cluster.insider.live(0.1)
        at = number % len(cluster.daemons)
        said = request(cluster.stage(at, f"visit {number}"), about="new", length=100)
        began_s = time.monotonic()
        seen = converse(("127.0.0.1", cluster.daemons[at].port + 1), said, cluster.insider.secret, {"member": key})
        took.append(time.monotonic() - began_s if seen["reply NOT_HELD"] else _PATIENCE_S)
    return took


@contextmanager
def beside(command: list[str]) -> Iterator[dict[str, Any]]:
    """A process that runs meanwhile; what it prints at its end is in the table then."""
    told: dict[str, Any] = {}
    process = subprocess.Popen([sys.executable, *command], stdout=subprocess.PIPE, text=True)
    try:
        yield told
    finally:
        process.terminate()
        said = process.communicate(timeout=30)[0]
        told |= json.loads(said) if said else {}


def measure(size_bytes: int) -> dict[str, object]:
    """One line of figures."""
    with tempfile.TemporaryDirectory(prefix="gossipd-attacks-") as directory:
        cluster = None
        try:
            cluster = AttackedCluster(Path(directory) / "cluster")
            found: dict[str, object] = {"bytes": size_bytes, "load_before": round(os.getloadavg()[0], 1)}
            alone_s, alone_cpu_s = deployed_s(cluster, 2, size_bytes)
            with beside(["-c", _SPIN]):
                time.sleep(_WARM_UP_S)
                spun_s, spun_cpu_s = deployed_s(cluster, 3, size_bytes)
            before = rss_bytes(cluster)
            ports = [daemon.port for daemon in cluster.daemons]
            tcp = ",".join(str(port + step) for port in ports for step in (0, 1))
            with beside(["-m", "tests.attacks.stranger", tcp, ",".join(map(str, ports))]) as told:
                time.sleep(_WARM_UP_S)
                flooded_s, flooded_cpu_s = deployed_s(cluster, 4, size_bytes)
                cluster.admit()
                took = visits_s(cluster)
                grown = max(after - one for one, after in zip(before, rss_bytes(cluster), strict=True))
                alarms = [{one["code"] for one in daemon.client.status()["alarms"]} for daemon in cluster.daemons]
            found |= {"alone_s": round(alone_s, 1), "beside_a_spinner_s": round(spun_s, 1)}
            found |= {"beside_a_stranger_s": round(flooded_s, 1), "alone_cpu_s": round(alone_cpu_s, 1)}
            found |= {"spinner_cpu_s": round(spun_cpu_s, 1), "stranger_cpu_s": round(flooded_cpu_s, 1)}
            found |= {"goodput": round(spun_s / flooded_s, 2), "rss_growth_mib": round(grown / 2**20, 1)}
            found |= {
                "visits": VISITS,
                "within_2_s": sum(one <= VISIT_S for one in took),
                "slowest_visit_s": round(max(took), 2),
            }
            found["connections_closed"] = told["closed"]
            found |= {"port_full": sum("E_PORT_FULL" in one for one in alarms), "stranger": dict(told)}
            return found | {"tracebacks": len(cluster.tracebacks()), "load_after": round(os.getloadavg()[0], 1)}
        finally:
            if cluster is not None:
                cluster.close()


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.attacks.flood", description=__doc__)
    parser.add_argument("--json", action="store_true", help="one line")
    parser.add_argument("--mib", type=int, default=128)
    options = parser.parse_args(arguments)
    found = measure(options.mib << 20)
    print(json.dumps(found, indent=None if options.json else 1))
    return 0 if found["within_2_s"] == VISITS and not found["tracebacks"] else 1


if __name__ == "__main__":
    sys.exit(main())
