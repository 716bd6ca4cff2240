"""A job goes on after a host has died, on shaped links: ``python -m tests.e2e_torch.resume [--mbit 100] [--json]``.

Four daemons, each in a namespace with a link of ``--mbit``; beside them the ranks of ``fsdp_job``, one for each daemon,
outside the namespaces, because a job has a network of its own. The step saved last is on all hosts when one of them is
killed; a fifth, which has nothing, takes its place, and the job is started again as soon as its daemon answers. Needs
root, iproute2 and torch.

``parts_over_link``: from the answer until the replacement has the newest step, over what its link needs for it.
``goes_on_s``: from then until the first step is done. ``is_equal``: weights and moments are those that were saved.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gossipd.client import Client
from gossipd.demo.hosts import DemoHost
from tests.bench.lab.fabric import Fabric, LabError, fabric, missing
from tests.bench.lab.systems.gossip import converge, publishing_hosts
from tests.e2e_torch.job import Job, of

NAME = "run"
RACKS = (2, 3)  # the last host of the second is the replacement
SAVED_AT, KILLED_AT = 10, 12
_READY_S_MAX, _TIMEOUT_S = 60.0, 600.0
PARTS_OVER_LINK_MAX, GOES_ON_S_MAX = 1.1, 30.0


def measure(network: Fabric, base: Path, width: int) -> dict[str, Any]:
    """One run. Raises LabError where daemons do not do their part, AssertionError where the job does not."""
    with publishing_hosts(network, base) as hosts:
        *old, replacement = hosts
        for host in old:
            host.start()
        converge(old)
        first = Job([host.directory for host in old], steps=20, every=5, width=width).kill_at(KILLED_AT)
        [saved] = [one for one in of(first, "saved") if one["step"] == SAVED_AT]
        Client(old[0].directory / "gossipd.sock").wait(NAME, SAVED_AT, hosts="100%", timeout=_TIMEOUT_S)
        old[-1].kill()
        client = _start(replacement)
        began_s = time.monotonic()
        job = Job([host.directory for host in (*old[:-1], replacement)], steps=20, every=5, width=width)
        client.wait(NAME, SAVED_AT, timeout=_TIMEOUT_S)
        there_s = time.monotonic()
        bytes_total = sum(path.stat().st_size for path in client.path(NAME, SAVED_AT).rglob("*") if path.is_file())
        again = job.kill_at(SAVED_AT + 1)
        [loaded] = of(again, "loaded")
        link_s = bytes_total * 8 / (network.mbit * 1e6)
        return {
            "bytes": bytes_total,
            "parts_s": round(there_s - began_s, 3),
            "parts_over_link": round((there_s - began_s) / link_s, 3),
            "goes_on_s": round(of(again, "step")[0]["at_s"] - there_s, 3),
            "step": loaded["step"],
            "is_equal": loaded["step"] == SAVED_AT and loaded["digest"] == saved["digest"],
        }


def _start(host: DemoHost) -> Client:
    """Its client, as soon as its daemon answers."""
    host.start()
    deadline = time.monotonic() + _READY_S_MAX
    while host.status() is None:
        if host.has_ended or time.monotonic() > deadline:
            raise LabError(f"{host.name} did not start:\n{host.log_tail()}")
        time.sleep(0.02)
    return Client(host.directory / "gossipd.sock")


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 0; 1 when a figure is beyond its bar; 2 where it cannot run."""
    parser = argparse.ArgumentParser(prog="python -m tests.e2e_torch.resume", description=__doc__)
    parser.add_argument("--mbit", type=float, default=100, help="rate of every host's link")
    parser.add_argument("--width", type=int, default=1536, help="of the six layers; the step has 72 * WIDTH^2 bytes")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args(arguments)
    if (lack := missing()) is not None:
        print(f"this needs {lack}", file=sys.stderr)
        return 2
    base = Path(tempfile.mkdtemp(prefix="gossipd-resume-"))
    try:
        with fabric(RACKS, mbit=given.mbit) as network:
            row = measure(network, base, given.width)
    finally:
        shutil.rmtree(base, ignore_errors=True)
    print(json.dumps(row) if given.json else "  ".join(f"{name} {value}" for name, value in row.items()))
    is_good = row["is_equal"] and row["parts_over_link"] <= PARTS_OVER_LINK_MAX and row["goes_on_s"] <= GOES_ON_S_MAX
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
