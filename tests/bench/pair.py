"""One sender and one receiver on unshaped loopback: gossipd beside a bare reference and libtorrent, in one run.

``python -m tests.bench.pair [--gb 2] [--encryption none|tls] [--duplex] [--fan-out N] [--json]``. gossipd is whole
daemons as they are run (``pair_systems/daemons``). Both ends share the machine's cores; the source is in the page
cache. Each repetition runs every system once, in turn, so that what else the machine does falls on all of them alike;
figures are medians. All write fresh files, into pages that the machine's host has backed (``pair_systems/pages``).

``ratio_reference`` is the rate over the bare reference's, ``ratio_cpu_reference`` the CPU seconds per GB of both
ends over the reference's. ``--duplex`` sends a model each way at once (``ratio_duplex``: the sum of both directions
over one), ``--fan-out N`` sends one to N daemons. ``--systems hands,reference`` measures store, server and client
without the rest of the daemon.
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
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.bench.pair_systems import daemons
from tests.bench.pair_systems.endpoint import Plan, digests
from tests.bench.pair_systems.pages import backed_pages, handed_over

SYSTEMS = ("daemons", "reference", "libtorrent")
OWN = ("daemons", "hands")  # gossipd; the first of them that is measured has the ratios
BLOCK_BYTES = 64 << 20


def main(arguments: Sequence[str] | None = None) -> None:
    options = parse(arguments)
    with tempfile.TemporaryDirectory(prefix="gossipd-pair-", dir=options.directory) as root:
        plan = prepare(Path(root), options)
        runs = [one_of_each(plan, options) for _ in range(options.repeat)]
    result = summary(plan, runs)
    if options.json:
        print(json.dumps(result))
        return
    for name, value in result.items():
        print(f"{name:28} {value:.4g}" if isinstance(value, float) else f"{name:28} {value}")


def one_of_each(plan: Plan, options: argparse.Namespace) -> dict[str, dict[str, float]]:
    """A repetition."""
    found = {system: run(system, plan) for system in options.systems}
    if options.duplex:
        found["duplex"] = of_daemons(plan, duplex=True)
    if options.fan_out:
        found["fan_out"] = of_daemons(plan, receivers=options.fan_out)
    return found


def of_daemons(plan: Plan, *, receivers: int = 1, duplex: bool = False) -> dict[str, float]:
    target = Path(plan.target, "run")
    target.mkdir()
    try:
        return daemons.run(replace(plan, target=str(target)), receivers=receivers, duplex=duplex)
    finally:
        shutil.rmtree(target)


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.pair", description=__doc__)
    parser.add_argument("--gb", type=float, default=2.0, help="size of the file in GB")
    parser.add_argument("--encryption", choices=("none", "tls"), default="none")
    parser.add_argument("--duplex", action="store_true", help="a model each way at once, too")
    parser.add_argument("--fan-out", type=int, default=0, metavar="N", help="one sender to N receivers, too")
    parser.add_argument("--chunk-mib", type=float, default=16.0, help="chunk size in MiB")
    parser.add_argument("--connections", type=int, default=2, help="of the reference")
    parser.add_argument("--fetches", type=int, default=4, help="in flight at once, of gossipd's hands")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--systems", type=lambda text: text.split(","), default=list(SYSTEMS))
    parser.add_argument("--directory", default=None, help="where the files lie; a file system like the store's")
    parser.add_argument("--json", action="store_true")
    return parser.parse_args(arguments)


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


def run(system: str, plan: Plan) -> dict[str, float]:
    """One system once; the costs of its ends added up."""
    if system == "daemons":
        return of_daemons(plan)
    target = Path(plan.target, "run")
    target.mkdir()
    plan = replace(plan, target=str(target))
    sender = start(system, "send", plan)
    try:
        plan = replace(plan, ports=tuple(heard(sender)["ports"]))
        receiver = start(system, "receive", plan)
        try:
            heard(receiver)
            os.sync()
            with backed_pages(plan.target, plan.nbytes) as pages, handed_over(pages, [receiver.pid]):
                told(receiver, "go")
                received = heard(receiver)
        finally:
            receiver.wait()
        told(sender, "stop")
        sent = heard(sender)
    finally:
        sender.kill()
        sender.wait()
        shutil.rmtree(target)
    assert received["chunks_wrong"] == 0, f"{system}: {received['chunks_wrong']} chunks failed"
    gigabytes = plan.nbytes / 1e9
    return {
        "gbytes_per_s": gigabytes / received["seconds"],
        "cpu_s_per_gb": (received["cpu_s"] + sent["cpu_s"]) / gigabytes,
        "cpu_s_per_gb_sender": sent["cpu_s"] / gigabytes,
        "cpu_s_per_gb_receiver": received["cpu_s"] / gigabytes,
        "rss_max_bytes": max(received["rss_max_bytes"], sent["rss_max_bytes"]),
        "loop_lag_p99_s": received.get("loop_lag_p99_s", 0.0),
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
    if own and "reference" in systems:
        result["ratio_reference"] = ratio("gbytes_per_s", "reference", own)
        result["ratio_cpu_reference"] = ratio("cpu_s_per_gb", "reference", own)
    if own and "libtorrent" in systems:
        result["ratio_libtorrent"] = ratio("gbytes_per_s", "libtorrent", own)
    if "daemons" in systems and "duplex" in systems:
        result["ratio_duplex"] = ratio("gbytes_per_s", "daemons", "duplex")
    return result


if __name__ == "__main__":
    main()
