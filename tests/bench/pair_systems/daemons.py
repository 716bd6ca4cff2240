"""gossipd as it is run: whole daemons as processes, a model that one has, and others that fetch it.

A sender reads the model from a directory (``file://``) until it has it; then the receivers are started, join, hear of
it and fetch. Nothing in a daemon is changed for that. What is timed lies outside of them: from the first ``fetch`` in
the receivers' logs (level debug, one line a chunk) to the last write of their files (``st_mtime``); ``published_s`` is
until the last says ``model complete``, which is when all is durable and in its place. CPU seconds of all daemons are
read from /proc every ``SAMPLE_S`` and taken between the same two moments; the lag of their loops is the daemons' own
histogram between a look before and one after, which has no finer answer than its bounds. ``gil_s``: how long to look
at all daemons' interpreter locks once the first fetch has begun; the delivery must last longer.
"""

from __future__ import annotations

import json
import math
import os
import re
import threading
import time
import urllib.request
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from pathlib import Path

from gossipd.api.counters import LAG_BOUNDS_S
from tests.bench.gil_time import GilTimeError, held_shares
from tests.bench.pages import backed_pages, handed_over
from tests.bench.pair_systems.endpoint import Plan
from tests.e2e.cluster import Cluster, Daemon, cluster, until
from tests.servers import free_port

SAMPLE_S = 0.01
PATIENCE_S = 240.0
BLOCK_BYTES = 8 << 20
_TICK_S = 1 / os.sysconf("SC_CLK_TCK")
_BUCKET = re.compile(r'gossipd_event_loop_lag_seconds_bucket\{le="[^"]+"\} (\S+)')


def run(plan: Plan, *, receivers: int = 1, duplex: bool = False, gil_s: int = 0) -> dict[str, float]:
    """One delivery: to ``receivers`` hosts, or of one model each way at once."""
    environment = {
        "GOSSIPD_BULK__ENCRYPTION": plan.encryption,
        "GOSSIPD_STORE__RESERVE_BYTES": "0",
        "GOSSIPD_LOG__LEVEL": "debug",
    }
    with cluster(Path(plan.target, "site"), environment=environment) as site:
        sender = filled(site, plan, "one")
        if duplex:
            sender.stop()
            sender.environment["GOSSIPD_SOURCES__ENABLED"] = "false"
            others = [filled(site, plan, "two")]
        else:
            others = [added(site, f"to-{number}", GOSSIPD_SOURCES__ENABLED="false") for number in range(receivers)]
        starting = [sender] if duplex else others
        deliveries = [(one, "one") for one in others] + ([(sender, "two")] if duplex else [])
        marks = {one.name: len(one.log()) for one in site.daemons.values()}
        os.sync()
        before = lag_counts([one for one in site.daemons.values() if one not in starting])
        with backed_pages(plan.target, plan.nbytes * len(deliveries)) as pages:
            for one in starting:
                one.start()
            looking = gil_held(site, [one for one, _ in deliveries], marks, gil_s)
            with sampled(site) as samples, handed_over(pages, pids(site)), looking as held:
                for one, model in deliveries:
                    until(f"{model} on {one.name}", partial(is_complete, one, model, marks), patience_s=PATIENCE_S)
        running = list(site.daemons.values())
        lags = [after - early for early, after in zip(before, lag_counts(running), strict=True)]
        found = figures(plan, running, deliveries, marks, samples) | {"loop_lag_p99_s": quantile(lags, 0.99)}
        if gil_s:
            chunks_per_s = found["gbytes_per_s"] * 1e9 / plan.chunk_bytes
            found["gil_ms_per_chunk"] = 1000 * sum(held) / chunks_per_s
        return found


def added(site: Cluster, name: str, **environment: str) -> Daemon:
    return site.add(name, "rack-1", GOSSIPD_STATUS__METRICS_PORT=str(free_port()), **environment)


def filled(site: Cluster, plan: Plan, model: str) -> Daemon:
    """A running host that has read ``model`` from its directory, alone."""
    directory = site.base / f"source-{model}"
    directory.mkdir()
    if model == "one":
        os.link(plan.source, directory / "model.bin")
    else:  # other bytes: a store copies what another of its models has
        with (directory / "model.bin").open("wb") as file:
            for at in range(0, plan.nbytes, BLOCK_BYTES):
                file.write(os.urandom(min(BLOCK_BYTES, plan.nbytes - at)))
    more = ("--chunk-size", str(plan.chunk_bytes), "--source", f"file://{directory}/")
    manifest = site.publish(directory, model, 1, *more)
    one = added(site, f"has-{model}", GOSSIPD_SOURCES__ALLOW=json.dumps([f"file://{directory}"]))
    one.start()
    one.wait_ready()
    site.drop(manifest, one)
    until(f"{model} is read", lambda: is_complete(one, model, {one.name: 0}), patience_s=PATIENCE_S)
    return one


def said(daemon: Daemon, event: str, since: int) -> list[float]:
    """When its log has this event, as seconds of the wall clock."""
    found = []
    for line in daemon.log()[since:].splitlines():
        if f'"{event}"' in line and line.startswith("{"):
            words = json.loads(line)
            if words["event"] == event:
                found.append(datetime.fromisoformat(words["ts"].replace("Z", "+00:00")).timestamp())
    return found


def is_complete(daemon: Daemon, model: str, marks: dict[str, int]) -> bool:
    """Its log says so."""
    assert daemon.process is not None and daemon.process.poll() is None, daemon.log()[-4000:]
    return daemon.tree(model, 1).exists() and bool(said(daemon, "model complete", marks[daemon.name]))


def pids(site: Cluster) -> list[int]:
    """Of all that run."""
    return [one.process.pid for one in site.daemons.values() if one.process is not None]


@contextmanager
def gil_held(site: Cluster, receivers: Sequence[Daemon], marks: dict[str, int], gil_s: int) -> Iterator[list[float]]:
    """The share of time in which each daemon held its lock; there when the block has ended, if ``gil_s`` is not 0."""
    shares: list[float] = []

    def look() -> None:
        until("a fetch begins", lambda: any(said(one, "fetch", marks[one.name]) for one in receivers))
        shares.extend(held_shares(pids(site), site.base, seconds=gil_s))
        if all(said(one, "model complete", marks[one.name]) for one in receivers):
            raise GilTimeError(f"the delivery took less than the look of {gil_s} s: a larger --gb")

    with ThreadPoolExecutor(1) as pool:
        looking = pool.submit(look) if gil_s else None
        yield shares
        if looking is not None:
            looking.result()


@contextmanager
def sampled(site: Cluster) -> Iterator[list[tuple[float, float]]]:
    """(wall clock, CPU seconds of all daemons) every ``SAMPLE_S`` until the block ends."""
    paths = [f"/proc/{pid}/stat" for pid in pids(site)]
    samples: list[tuple[float, float]] = []
    stop = threading.Event()

    def sample() -> None:
        while not stop.is_set():
            samples.append((time.time(), sum(cpu_s(path) for path in paths)))
            stop.wait(SAMPLE_S)

    thread = threading.Thread(target=sample)
    thread.start()
    try:
        yield samples
    finally:
        stop.set()
        thread.join()


def cpu_s(path: str) -> float:
    fields = Path(path).read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * _TICK_S  # utime and stime, proc(5)


def lag_counts(daemons: Sequence[Daemon]) -> list[int]:
    """Of their loops together: how often each bound was kept, cumulative, the last being all."""
    sums = [0] * (len(LAG_BOUNDS_S) + 1)
    for one in daemons:
        url = f"http://127.0.0.1:{one.environment['GOSSIPD_STATUS__METRICS_PORT']}/metrics"
        with urllib.request.urlopen(url, timeout=10) as answer:
            page = answer.read().decode()
        counts = [int(float(count)) for count in _BUCKET.findall(page)]
        sums = [a + b for a, b in zip(sums, counts, strict=True)]
    return sums


def quantile(cumulative: Sequence[int], share: float) -> float:
    """The least bound that so many observations kept; infinite when none did."""
    for bound, count in zip((*LAG_BOUNDS_S, math.inf), cumulative, strict=True):
        if count >= share * cumulative[-1]:
            return bound
    raise AssertionError("the last count is of all")


def figures(
    plan: Plan, daemons: Sequence[Daemon], deliveries: Sequence[tuple[Daemon, str]], marks: dict[str, int],
    samples: Sequence[tuple[float, float]],
) -> dict[str, float]:  # fmt: skip
    """What was seen, as numbers."""
    began = min(said(one, "fetch", marks[one.name])[0] for one, _ in deliveries)
    written = max((one.tree(model, 1) / "model.bin").stat().st_mtime for one, model in deliveries)
    published = max(said(one, "model complete", marks[one.name])[0] for one, _ in deliveries)
    gigabytes = plan.nbytes * len(deliveries) / 1e9
    return {
        "gbytes_per_s": gigabytes / (written - began),
        "published_gbytes_per_s": gigabytes / (published - began),
        "cpu_s_per_gb": (cpu_at(samples, written) - cpu_at(samples, began)) / gigabytes,
        "rss_max_bytes": max(peak_rss_bytes(one.process.pid) for one in daemons if one.process is not None),
    }


def cpu_at(samples: Sequence[tuple[float, float]], moment: float) -> float:
    return min(samples, key=lambda sample: abs(sample[0] - moment))[1]


def peak_rss_bytes(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("no VmHWM")
