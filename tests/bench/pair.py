"""One sender and one receiver on unshaped loopback: gossipd beside a bare reference and libtorrent, in one run.

``python -m tests.bench.pair [--gb 2] [--encryption none|tls] [--duplex] [--fan-out N] [--json]``. gossipd is whole
daemons as they are run (``pair_systems/daemons``). Both ends share the machine's cores; the source is in the page
cache. Each repetition runs every system once, in turn, every other one in the opposite order, so that what else the
machine does falls on all of them alike; figures are medians. All write fresh files, into pages that the machine's host
has backed (``tests.bench.pages``), and each begins when the machine has settled: right behind another system it would
find the pages that this one has just freed still backed, and cost a third less than it does alone.

``ratio_reference`` is the rate over the bare reference's, ``ratio_cpu_reference`` the CPU seconds per GB of both
ends over the reference's. ``--duplex`` sends a model each way at once (``ratio_duplex``: the sum of both directions
over one; ``ratio_reference_duplex``: the same of two bare references, which is what the machine can), ``--fan-out N``
sends one to N daemons. ``--gil`` looks for a second at how long the daemons' interpreter locks are held
(``gil_ms_per_chunk``, both ends; needs py-spy, which takes CPU time), and says what share of its lock and how many
cores a host needs that receives and sends at 10, 25 and 100 Gbit/s. On a busy machine threads wait with the lock in
hand. ``--systems hands,reference`` measures store, server and client without the rest of the daemon.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.bench.pages import backed_pages, handed_over
from tests.bench.pair_systems import daemons
from tests.bench.pair_systems.endpoint import Plan, digests

SYSTEMS = ("daemons", "reference", "libtorrent")
OWN = ("daemons", "hands")  # gossipd; the first of them that is measured has the ratios
BLOCK_BYTES = 64 << 20
SETTLED_S = 6.0  # the kernel tells the host of free pages every two seconds
LINKS_GBIT = (10, 25, 100)


def main(arguments: Sequence[str] | None = None) -> None:
    options = parse(arguments)
    with tempfile.TemporaryDirectory(prefix="gossipd-pair-", dir=options.directory) as root:
        plan = prepare(Path(root), options)
        runs = [one_of_each(plan, options, is_backwards=number % 2 == 1) for number in range(options.repeat)]
    result = summary(plan, runs)
    if options.json:
        print(json.dumps(result))
        return
    for name, value in result.items():
        print(f"{name:28} {value:.4g}" if isinstance(value, float) else f"{name:28} {value}")


def one_of_each(plan: Plan, options: argparse.Namespace, *, is_backwards: bool) -> dict[str, dict[str, float]]:
    """A repetition."""
    found = {}
    for system in reversed(options.systems) if is_backwards else options.systems:
        os.sync()
        time.sleep(SETTLED_S)
        found[system] = run(system, plan)
    if options.gil:
        found["daemons"]["gil_ms_per_chunk"] = of_daemons(plan, gil_s=1)["gil_ms_per_chunk"]
    if options.duplex:
        found["duplex"] = of_daemons(plan, duplex=True)
        if "reference" in options.systems:
            found["reference_duplex"] = run("reference", plan, ways=2)
    if options.fan_out:
        found["fan_out"] = of_daemons(plan, receivers=options.fan_out)
    return found


def of_daemons(plan: Plan, *, receivers: int = 1, duplex: bool = False, gil_s: int = 0) -> dict[str, float]:
    target = Path(plan.target, "run")
    target.mkdir()
    try:
        return daemons.run(replace(plan, target=str(target)), receivers=receivers, duplex=duplex, gil_s=gil_s)
    finally:
        shutil.rmtree(target)


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.pair", description=__doc__)
    parser.add_argument("--gb", type=float, default=2.0, help="size of the file in GB")
    parser.add_argument("--encryption", choices=("none", "tls"), default="none")
    parser.add_argument("--duplex", action="store_true", help="a model each way at once, too")
    parser.add_argument("--fan-out", type=int, default=0, metavar="N", help="one sender to N receivers, too")
    parser.add_argument("--gil", action="store_true", help="how long interpreter locks are held")
    parser.add_argument("--chunk-mib", type=float, default=16.0, help="chunk size in MiB")
    parser.add_argument("--connections", type=int, default=2, help="of the reference")
    parser.add_argument("--fetches", type=int, default=4, help="in flight at once, of gossipd's hands")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--systems", type=lambda text: text.split(","), default=list(SYSTEMS))
    parser.add_argument("--directory", default=None, help="where the files lie; a file system like the store's")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    if options.gil and "daemons" not in options.systems:
        parser.error("--gil looks at the system daemons")
    return options


def prepare(root: Path, options: argparse.Namespace) -> Plan:
    source = root / "source.bin"
    nbytes = int(options.gb * 1e9)
    with source.open("wb") as file:
        left = nbytes
        while left:
            left -= file.write(os.urandom(min(BLOCK_BYTES, left)))
        os.fsync(file.fileno())
    plan = Plan(
        source=str(source),
        target=str(root),
        nbytes=nbytes,
        chunk_bytes=int(options.chunk_mib * (1 << 20)),
        encryption=options.encryption,
        connections=options.connections,
        fetches=options.fetches,
    )
    digests(plan)
    return plan


def run(system: str, plan: Plan, *, ways: int = 1) -> dict[str, float]:
    """One system once, or so many of it at once; the costs of all ends added up."""
    if system == "daemons":
        return of_daemons(plan)
    target = Path(plan.target, "run")
    plans = [replace(plan, target=str(target / str(way))) for way in range(ways)]
    ends: list[subprocess.Popen[str]] = []
    try:
        for one in plans:
            Path(one.target).mkdir(parents=True)
        senders = [start(system, "send", one) for one in plans]
        ends += senders
        plans = [replace(one, ports=tuple(heard(end)["ports"])) for one, end in zip(plans, senders, strict=True)]
        receivers = [start(system, "receive", one) for one in plans]
        ends += receivers
        for end in receivers:
            heard(end)
        os.sync()
        with backed_pages(plan.target, plan.nbytes * ways) as pages, handed_over(pages, [end.pid for end in receivers]):
            for end in receivers:
                told(end, "go")
            received = [heard(end) for end in receivers]
        for end in receivers:
            end.wait()
        for end in senders:
            told(end, "stop")
        sent = [heard(end) for end in senders]
    finally:
        for end in ends:
            end.kill()
            end.wait()
        shutil.rmtree(target)
    assert not any(one["chunks_wrong"] for one in received), f"{system}: chunks failed"
    gigabytes = plan.nbytes * ways / 1e9
    of_senders, of_receivers = (sum(one["cpu_s"] for one in found) / gigabytes for found in (sent, received))
    return {
        "gbytes_per_s": gigabytes / max(one["seconds"] for one in received),
        "cpu_s_per_gb": of_senders + of_receivers,
        "cpu_s_per_gb_sender": of_senders,
        "cpu_s_per_gb_receiver": of_receivers,
        "rss_max_bytes": max(one["rss_max_bytes"] for one in (*received, *sent)),
        "loop_lag_p99_s": max(one.get("loop_lag_p99_s", 0.0) for one in received),
    }


def start(system: str, role: str, plan: Plan) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", f"tests.bench.pair_systems.{system}", role, plan.to_text()]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def told(process: subprocess.Popen[str], word: str) -> None:
    assert process.stdin is not None
    process.stdin.write(word + "\n")
    process.stdin.flush()


def heard(process: subprocess.Popen[str]) -> dict[str, Any]:
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, f"{process.args!r} ended with {process.wait()}"
    words: dict[str, Any] = json.loads(line)
    return words


def summary(plan: Plan, runs: Sequence[dict[str, dict[str, float]]]) -> dict[str, object]:
    def median(system: str, name: str) -> float:
        return statistics.median(one[system][name] for one in runs)

    def ratio(name: str, other: str, of: str) -> float:
        return statistics.median(one[of][name] / one[other][name] for one in runs)

    result: dict[str, object] = {
        "encryption": plan.encryption,
        "bytes": plan.nbytes,
        "chunk_bytes": plan.chunk_bytes,
        "repeat": len(runs),
    }
    systems = list(runs[0])
    own = next((system for system in OWN if system in systems), "")
    for system in systems:
        prefix = "" if system == own else f"{system}_"
        for name in runs[0][system]:
            result[f"{prefix}{name}"] = median(system, name)
    if "gil_ms_per_chunk" in result:
        result |= at_link_rates(plan, median("daemons", "gil_ms_per_chunk"), median("daemons", "cpu_s_per_gb"))
    if own and "reference" in systems:
        result["ratio_reference"] = ratio("gbytes_per_s", "reference", own)
        result["ratio_cpu_reference"] = ratio("cpu_s_per_gb", "reference", own)
    if own and "libtorrent" in systems:
        result["ratio_libtorrent"] = ratio("gbytes_per_s", "libtorrent", own)
    if "daemons" in systems and "duplex" in systems:
        result["ratio_duplex"] = ratio("gbytes_per_s", "daemons", "duplex")
    if "reference" in systems and "reference_duplex" in systems:
        result["ratio_reference_duplex"] = ratio("gbytes_per_s", "reference", "reference_duplex")
    return result


def at_link_rates(plan: Plan, gil_ms_per_chunk: float, cpu_s_per_gb: float) -> dict[str, float]:
    """The share of its lock and the cores that a host needs that receives and sends at the rate of a link."""
    found = {}
    for gbit in LINKS_GBIT:
        bytes_per_s = gbit * 1e9 / 8
        found[f"gil_share_at_{gbit}_gbit"] = gil_ms_per_chunk / 1000 * bytes_per_s / plan.chunk_bytes
        found[f"cores_at_{gbit}_gbit"] = cpu_s_per_gb * bytes_per_s / 1e9
    return found


if __name__ == "__main__":
    main()
