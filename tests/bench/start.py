"""A daemon that holds a large model: how soon it serves after a start, and what it takes while it has nothing to do.

``python -m tests.bench.start [--chunks 30000] [--repeat 5] [--json]``. The daemon reads a model of so many chunks of
64 KiB, the smallest there are, from a sparse file, until every one is in its store's journal; what a start has to read,
believe and tell does not depend on how long chunks are. Then it is stopped and started, again and again.

``seconds`` is from the start of the process until its status says that it holds every chunk, by which time its bulk
port has been found to serve (its own self-check comes before); ``seconds_killed`` the same after SIGKILL. ``cpu_s`` is
the processor's share of ``seconds``, which a busy machine does not blur; ``cpu_ready_s`` that until the daemon logs
that it is ready, before anybody asks it; ``rss_bytes`` what it takes ``--idle`` seconds after the last start. Medians.
Modules come as byte code, as they lie where a package or pip has put them: the first start, which is not counted,
compiles them.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from tests.bench.pair_systems.daemons import cpu_s
from tests.e2e.cluster import Daemon, cluster, until

CHUNK_BYTES = 64 * 1024
NAME, VERSION = "bench", 1
PATIENCE_S = 240.0
LOOK_S = 0.005
READY = '"event": "ready"'


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.start", description=__doc__)
    parser.add_argument("--chunks", type=int, default=30_000)
    parser.add_argument("--repeat", type=int, default=5, help="starts of each kind")
    parser.add_argument("--idle", type=float, default=10.0, help="seconds before memory is looked at")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="gossipd-start-") as root:
        result = measure(Path(root), options.chunks, options.repeat, options.idle)
    print(json.dumps(result) if options.json else "\n".join(f"{name:24} {value}" for name, value in result.items()))
    return 0


def measure(root: Path, chunks: int, repeat: int, idle_s: float) -> dict[str, Any]:
    """The row."""
    source = root / "source"
    source.mkdir()
    with (source / "model.bin").open("wb") as file:
        file.truncate(chunks * CHUNK_BYTES)
    allow = json.dumps([f"file://{source}"])
    environment = {"GOSSIPD_SOURCES__ALLOW": allow, "GOSSIPD_STORE__RESERVE_BYTES": "0", **byte_code(root)}
    with cluster(root / "site", environment=environment) as site:
        more = ("--chunk-size", str(CHUNK_BYTES), "--source", f"file://{source}/")
        manifest = site.publish(source, NAME, VERSION, *more)
        daemon = site.add("one", "rack-1")
        daemon.start()
        daemon.wait_ready()
        site.drop(manifest, daemon)
        until("the model is read", lambda: holds(daemon, chunks), patience_s=PATIENCE_S)
        killed, stopped, ready = [], [], []
        for _ in range(repeat):
            assert daemon.stop() == 0
            ready.append(cpu_until_ready_s(daemon))
            daemon.kill()
            killed.append(started(daemon, chunks))
            assert daemon.stop() == 0
            stopped.append(started(daemon, chunks))
        time.sleep(idle_s)
        assert daemon.process is not None
        return {
            "chunks": chunks,
            "bytes": chunks * CHUNK_BYTES,
            "repeat": repeat,
            "seconds": median(one[0] for one in stopped),
            "seconds_killed": median(one[0] for one in killed),
            "cpu_s": median(one[1] for one in stopped),
            "cpu_ready_s": median(ready),
            "rss_bytes": resident_bytes(daemon.process.pid),
        }


def byte_code(root: Path) -> dict[str, str]:
    """Environment of a daemon whose modules are compiled once, whatever the caller's own environment says of it."""
    return {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(root / "pycache")}


def compile_modules(environment: dict[str, str]) -> None:
    """Compile what a daemon imports: a process that compiles keeps some 4 MB of the heap that this took."""
    imports = "import gossipd.daemon.main, gossipd.api.routes"
    subprocess.run([sys.executable, "-c", imports], env={**os.environ, **environment}, check=True)


def holds(daemon: Daemon, chunks: int) -> bool:
    """Its own status says that the model is complete here."""
    row = daemon.deployment(NAME, VERSION)
    return row is not None and row["state"] == "complete" and row["chunks_verified"] == chunks


def started(daemon: Daemon, chunks: int) -> tuple[float, float]:
    """Seconds from a start until it holds everything, and the CPU seconds it has used by then."""
    began = time.perf_counter()
    daemon.start()
    while not holds(daemon, chunks):
        assert time.perf_counter() - began < PATIENCE_S, daemon.log()[-2000:]
        time.sleep(LOOK_S)
    took_s = time.perf_counter() - began
    assert daemon.process is not None
    return took_s, cpu_s(f"/proc/{daemon.process.pid}/stat")


def cpu_until_ready_s(daemon: Daemon) -> float:
    """CPU seconds from a start until the log says ready."""
    starts = daemon.log().count(READY)
    daemon.start()
    assert daemon.process is not None
    end_s = time.perf_counter() + PATIENCE_S
    while daemon.log().count(READY) == starts:
        assert time.perf_counter() < end_s, daemon.log()[-2000:]
        time.sleep(LOOK_S)
    return cpu_s(f"/proc/{daemon.process.pid}/stat")


def median(values: Iterable[float]) -> float:
    return round(statistics.median(values), 3)


def resident_bytes(pid: int) -> int:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


if __name__ == "__main__":
    sys.exit(main())
