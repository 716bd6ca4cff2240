"""``python -m tests.bench.lab``: real daemons on real shaped links, beside what there is to beat.

One JSON object per system and line with ``--json``, a table without. Needs root, iproute2 and nginx.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from math import isnan
from pathlib import Path
from random import Random
from typing import Any

from gossipd.demo.toy_model import write_toy_model
from tests.bench.lab import report
from tests.bench.lab.fabric import CONGESTION, Fabric, LabError, fabric, host_name, missing
from tests.bench.lab.prediction import predict
from tests.bench.lab.process import spinning
from tests.bench.lab.systems.base import Bench, KillOrder, Outcome, share
from tests.bench.lab.systems.gossip import run_gossipd, run_saved
from tests.bench.lab.systems.plain import run_chain, run_checked_chain, run_direct, run_single
from tests.bench.lab.systems.torrent import SEEDING, run_libtorrent
from tests.servers import Nginx

SYSTEMS: dict[str, Callable[[Bench], Outcome]] = {
    "gossipd": run_gossipd,
    "saved": run_saved,
    "libtorrent": run_libtorrent,
    "chain": run_chain,
    "checked-chain": run_checked_chain,
    "direct": run_direct,
}
STORAGE_PORT = 8080
# 512 chunks of 256 MiB. With the publisher's default for so small a model, 256 KiB, sixteen daemons on two cores need
# a third more CPU time, 93 % of what there is; the simulator, whose hosts have their own cores, says 1.04 of both.
CHUNK_KB = 512
MIXED_RACKS = "3,3,3"
MIXED = {2: 0.5, 5: 0.5, 6: 0.5, 8: 0.5, 9: 0.1}
"""``--mixed``: by a host's number its share of ``--mbit``, so that racks are as mixed as hosts are."""
# A system that needs longer than this many single downloads is given up; direct needs one for each host.
TIMEOUT_DOWNLOADS = 12.0


def arguments(words: Sequence[str] | None = None) -> argparse.Namespace:
    """From the command line, unless they are given."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.lab", description=__doc__)
    parser.add_argument("--racks", default="4,4,4,4", help="hosts in each rack")
    parser.add_argument("--mb", type=int, default=256, help="size of the model in MiB")
    parser.add_argument("--mbit", type=float, default=100, help="rate of every host's link and of storage's")
    parser.add_argument("--external-mbit", type=float, help="rate of storage's link, when not --mbit")
    parser.add_argument("--uplink-mbit", type=float, help="rate of every rack's uplink; not limited without")
    parser.add_argument("--congestion", metavar="NAME", default=CONGESTION, help="TCP congestion control of every host")
    parser.add_argument("--slow", action="append", default=[], metavar="HOST:MBIT")
    parser.add_argument("--kill", action="append", default=[], metavar="HOST|seed|FRACTION@PROGRESS")
    parser.add_argument("--encryption", choices=("none", "tls"), default="none", help="gossipd's bulk path")
    parser.add_argument("--chunk-kb", type=int, default=CHUNK_KB, help="gossipd's chunks; 0: a publisher's default")
    parser.add_argument("--torrent-seeding", choices=SEEDING, default=SEEDING[0], help="see systems.torrent")
    parser.add_argument("--rest", type=float, default=0.0, metavar="SECONDS", help="measure gossipd at rest first")
    parser.add_argument("--load", type=int, default=0, metavar="N", help="as many processes that spin beside the hosts")
    parser.add_argument(
        "--mixed", action="store_true", help="9 hosts in three racks: 4 at --mbit, 4 at half of it, 1 at a tenth"
    )
    parser.add_argument("--systems", default="gossipd,libtorrent,chain,direct")
    parser.add_argument("--runs", type=int, default=1, help="repeat everything; the table has each run")
    parser.add_argument("--rng", type=int, default=1, help="which hosts a fraction kills")
    parser.add_argument("--keep", action="store_true", help="leave the directories, with logs")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args(words)
    if given.mixed:
        given.racks = MIXED_RACKS
        given.slow = [*given.slow, *(f"{host_name(number)}:{given.mbit * share:g}" for number, share in MIXED.items())]
    return given


def main() -> int:
    """Exit code 0; 2 where the lab cannot run; 1 when a system failed."""
    given = arguments()
    wanted = given.systems.split(",")
    if (wrong := wrong_arguments(given)) is not None:
        print(wrong, file=sys.stderr)
        return 2
    if (lack := missing()) is not None:
        print(f"the lab needs {lack}", file=sys.stderr)
        return 2
    failed = False
    rows: list[dict[str, Any]] = []
    for number in range(given.runs):
        for row in one_run(given, wanted, number):
            failed |= "error" in row
            if given.json:
                print(json.dumps(row), flush=True)
            elif "error" in row:
                print(f"{row['system']}: {row['error']}", file=sys.stderr)
            else:
                rows.append(row)
    if rows:
        print(report.table(rows))
    return 1 if failed else 0


def one_run(given: argparse.Namespace, wanted: list[str], number: int) -> Iterator[dict[str, Any]]:
    """One fabric, one calibration, every system; a system that fails has a row with ``error``."""
    with stage(given, number) as bench:
        single_s, single = run_single(bench)
        print(f"single download: {single_s:.2f} s, {single.external} bytes on the wire", file=sys.stderr, flush=True)
        for name in wanted:
            limit_s = single_s * (TIMEOUT_DOWNLOADS + (len(bench.fabric.hosts) if name == "direct" else 0))
            try:
                outcome = SYSTEMS[name](_with_timeout(bench, limit_s))
            except LabError as error:
                yield {"system": name, "error": str(error)}
                continue
            finally:
                if not given.keep:
                    shutil.rmtree(bench.base / name, ignore_errors=True)
            row = report.row(bench, outcome, single_s, single, slow_hosts(given))
            yield row | (_predicted(given, bench, row) if name == "gossipd" else {})


def _predicted(given: argparse.Namespace, bench: Bench, row: dict[str, Any]) -> dict[str, float | None]:
    """What the simulator says of the same cluster: of all hosts, and of those that are not slow."""
    outcome = predict(
        bench, row["single_s"], mbit=given.mbit, external_mbit=given.external_mbit, uplink_mbit=given.uplink_mbit,
        slow_mbit=slow_hosts(given),
    )  # fmt: skip
    if outcome is None:
        names = ("predicted_last_s", "last_over_predicted", "healthy_last_over_predicted")
        return dict.fromkeys((*names, "predicted_control_bytes_per_node_s"))
    last_s = max(outcome.seconds_last_slow or 0.0, outcome.seconds_last)
    healthy_s = None if isnan(outcome.seconds_last) else outcome.seconds_last  # NaN: every host is slow
    return {
        "predicted_last_s": round(last_s, 3),
        "last_over_predicted": round(row["last_s"] / last_s, 4),
        "healthy_last_over_predicted": round(row["healthy_last_s"] / healthy_s, 4) if healthy_s else None,
        "predicted_control_bytes_per_node_s": round(outcome.control_bytes_per_node_s),
    }


def slow_hosts(given: argparse.Namespace) -> dict[str, float]:
    """``--slow`` by name: Mbit/s."""
    return {name: float(mbit) for name, _, mbit in (one.partition(":") for one in given.slow)}


def wrong_arguments(given: argparse.Namespace) -> str | None:
    """What the command line says wrongly and what it may say; None where it is right. Before network and storage."""
    if unknown := [name for name in given.systems.split(",") if name not in SYSTEMS]:
        return f"--systems {','.join(unknown)}: there are {', '.join(SYSTEMS)}"
    counts = given.racks.split(",")
    if not all(count.isascii() and count.isdecimal() and int(count) for count in counts):
        return f"--racks {given.racks}: want the number of hosts in each rack, as 4,4,4,4"
    names = [host_name(number) for number in range(1, 1 + sum(int(count) for count in counts))]
    for slow in given.slow:
        if (wrong := _wrong_slow(slow, names)) is not None:
            return f"--slow {slow}: {wrong}"
    for kill in given.kill:
        if (wrong := _wrong_kill(kill, names)) is not None:
            return f"--kill {kill}: {wrong}"
    return None


def _wrong_slow(text: str, names: list[str]) -> str | None:
    name, _, mbit = text.partition(":")
    if name not in names:
        return f"no host is called {name!r}; they are {names[0]} to {names[-1]}"
    if not mbit.replace(".", "", 1).isdigit() or not float(mbit):
        return "want HOST:MBIT with a rate above 0, as node-6:25"
    return None


def _wrong_kill(text: str, names: list[str]) -> str | None:
    try:
        order = KillOrder.parse(text)
    except ValueError as error:
        return str(error)
    if order.who in ("seed", *names):
        return None
    try:
        count = round(share(order.who) * len(names))
    except ValueError:
        return f"{order.who!r} is neither seed nor a share such as 20% nor a host, {names[0]} to {names[-1]}"
    if not count:
        return f"that is none of {len(names)} hosts; one is {100 / len(names):.3g}%"
    return None if count < len(names) else "no host would be left to finish; let one live"


@contextmanager
def stage(given: argparse.Namespace, number: int) -> Iterator[Bench]:
    """The network, the model, and nginx in storage's namespace."""
    base = Path(tempfile.mkdtemp(prefix="gossipd-lab-"))
    try:
        racks = [int(count) for count in given.racks.split(",")]
        with fabric(racks, mbit=given.mbit, uplink_mbit=given.uplink_mbit, congestion=given.congestion) as network:
            if given.external_mbit:
                network.shape(network.storage, given.external_mbit)
            for name, mbit in slow_hosts(given).items():
                network.shape(next(host for host in network.hosts if host.name == name), mbit)
            with spinning(given.load), _storage(base, network, given.mb * 1024 * 1024) as (model, url):
                yield Bench(
                    network, base, model, url, model.stat().st_size, [KillOrder.parse(one) for one in given.kill],
                    given.encryption, 600.0, Random(given.rng + number),
                    chunk_bytes=given.chunk_kb * 1024 if given.chunk_kb else None, rest_s=given.rest,
                    torrent_seeding=given.torrent_seeding,
                )  # fmt: skip
    finally:
        if given.keep:
            print(f"kept in {base}", file=sys.stderr)
        else:
            shutil.rmtree(base, ignore_errors=True)


@contextmanager
def _storage(base: Path, network: Fabric, size: int) -> Iterator[tuple[Path, str]]:
    write_toy_model(base / "toy", size)
    served = base / "www" / "m"
    served.mkdir(parents=True)
    model = served / "model.safetensors"
    with model.open("wb") as file:  # one file, so that every system moves the same thing
        for part in sorted((base / "toy").glob("*.safetensors")):
            file.write(part.read_bytes())
    shutil.rmtree(base / "toy")
    server = Nginx(
        base / "www",
        base / "nginx",
        address=network.storage.address,
        port=STORAGE_PORT,
        command=network.storage.command,
    )
    try:
        yield model, f"{server.url}/m/{model.name}"
    finally:
        server.stop()


def _with_timeout(bench: Bench, timeout_s: float) -> Bench:
    from dataclasses import replace

    return replace(bench, timeout_s=timeout_s)


if __name__ == "__main__":
    sys.exit(main())
