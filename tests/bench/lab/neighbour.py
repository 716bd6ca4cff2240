"""``python -m tests.bench.lab.neighbour``: what a deployment does to a service on the same links, by mode.

A client on one host asks a service on another (``agents.foreground``): alone, beside a deployment with the default
settings, and beside one with ``net.background``. Then both deployments without the service: what yielding costs where
nobody is there to yield to. One JSON object for each with ``--json``. Options that are not of this command are the
lab's: ``--racks 2,2 --mb 128 --mbit 100``. Needs what the lab needs.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from tests.bench.lab.__main__ import arguments, stage
from tests.bench.lab.fabric import LabError, missing
from tests.bench.lab.process import Agent, MachineCpu
from tests.bench.lab.systems.base import Bench
from tests.bench.lab.systems.gossip import run_gossipd

PORT = 9100
_START_S, _ANSWER_S = 20.0, 60.0
MODES = {"default": {}, "background": {"GOSSIPD_NET__BACKGROUND": "true"}}


class Service:
    """A client on the last host, a service on the first of the last rack."""

    def __init__(self, bench: Bench, log_name: str) -> None:
        hosts = bench.fabric.hosts
        served = next(host for host in hosts if host.rack == hosts[-1].rack)
        where, log = f"{served.address}:{PORT}", bench.base / log_name
        self.agents = [Agent(served, "foreground", "serve", where, log=log)]
        self.agents[0].wait_ready(_START_S)
        self.agents.append(Agent(hosts[0], "foreground", "ask", where, log=log))
        self.agents[1].wait_ready(_START_S)
        self.agents[1].go()

    def samples(self) -> list[tuple[float, float]]:
        """The moment and the seconds of every request; it ends."""
        self.agents[1].go()
        deadline = time.monotonic() + _ANSWER_S
        while (told := self.agents[1].poll()) is None:
            if time.monotonic() > deadline:
                raise LabError("the service's client has not ended")
            time.sleep(0.05)
        return [(float(at), float(took)) for at, took in told["samples"]]


@contextmanager
def service(bench: Bench, log_name: str) -> Iterator[Service]:
    """For the length of a ``with``."""
    made = Service(bench, log_name)
    try:
        yield made
    finally:
        for agent in made.agents:
            agent.process.kill()
            agent.stop()


def latencies(samples: Sequence[tuple[float, float]], begun_s: float, ended_s: float) -> dict[str, float]:
    """Milliseconds of the requests that began between two moments."""
    took_ms = sorted(1000 * took for at, took in samples if begun_s <= at <= ended_s)
    if len(took_ms) < 2:
        raise LabError("the service was asked less than twice")
    cuts = statistics.quantiles(took_ms, n=100)
    return {"requests": len(took_ms), "p50_ms": round(cuts[49], 2), "p99_ms": round(cuts[98], 2)}


def rows(bench: Bench, alone_s: float) -> Iterator[dict[str, Any]]:
    """Alone, beside each mode, and each mode alone."""
    cpu = MachineCpu()
    with service(bench, "alone.log") as asked:
        begun_s = time.monotonic()
        time.sleep(alone_s)
        alone = latencies(asked.samples(), begun_s, begun_s + alone_s)
    yield {"mode": "alone", **alone, "cpu_busy": round(cpu.busy(), 2)}
    for with_service in (True, False):
        for mode, settings in MODES.items():
            chosen = replace(bench, settings=settings)
            if not with_service:
                yield {"mode": f"{mode} without a service", **_deployed(chosen)}
                continue
            with service(bench, f"{mode}.log") as asked:
                row = _deployed(chosen)
                beside = latencies(asked.samples(), row.pop("begun_s"), row.pop("ended_s"))
            yield {"mode": mode, **beside, "over_alone": round(beside["p99_ms"] / alone["p99_ms"], 2), **row}


def _deployed(bench: Bench) -> dict[str, Any]:
    outcome = run_gossipd(bench)
    shutil.rmtree(bench.base / "gossipd", ignore_errors=True)
    ended_s = max(outcome.done_s.values())
    return {
        "begun_s": outcome.began_s, "ended_s": ended_s, "deployment_s": round(ended_s - outcome.began_s, 2),
        "cpu_busy": round(outcome.busy, 2), "cpu_stolen": round(outcome.stolen, 4),
    }  # fmt: skip


def main(given: Sequence[str] | None = None) -> int:
    """Exit code 0; 2 where the lab cannot run."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.lab.neighbour", description=__doc__)
    parser.add_argument("--alone", type=float, default=10.0, metavar="SECONDS", help="how long it is asked alone")
    own, rest = parser.parse_known_args(given)
    options = arguments(rest)
    if (lack := missing()) is not None:
        print(f"the lab needs {lack}", file=sys.stderr)
        return 2
    with stage(options, 0) as bench:
        for row in rows(bench, own.alone):
            row = {name: value for name, value in row.items() if name not in ("begun_s", "ended_s")}
            words = json.dumps(row) if options.json else "  ".join(f"{name} {value}" for name, value in row.items())
            print(words, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
