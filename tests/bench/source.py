"""External reads beside obstore alone: what the reader, the pool and the store cost on top of it.

``python -m tests.bench.source [--gb 2] [--repeat 5] [--threads 4] [--json]``. nginx on loopback, the model in page
cache. gossipd is the real ``SourceReader`` into a real ``ChunkStore``, extent by extent from as many threads as the
reference has. The reference reads the same ranges with ``obstore.get_range``, hashes each chunk with BLAKE3 and writes
it with ``pwrite`` into one preallocated file, nothing else. Like the store it makes its bytes durable in the
background, with one fdatasync for each 64 MiB. Its figure without that is printed beside it
(``reference_unsynced_gbytes_per_s``, ``ratio_unsynced``): the difference is the disk's.

``ratio_reference`` is the median of the ratios of neighbouring runs. Needs nginx.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import obstore
from blake3 import blake3
from obstore.store import HTTPStore

from gossipd.buffers import BufferPool
from gossipd.core.layout import Layout, default_chunk_bytes
from gossipd.core.manifest import FileEntry, Manifest
from gossipd.core.source_policy import SourcePolicy
from gossipd.demo.model import write_toy_model
from gossipd.sources.reader import SourceReader
from gossipd.store.chunk_store import ChunkStore
from gossipd.throttle import Throttle
from tests.gossipd.sources.models import seal
from tests.servers import Nginx, nginx

POOL_BYTES = 128 * 1024 * 1024  # the default bound
SYNC_BYTES = 64 * 1024 * 1024  # the store's window


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.source", description=__doc__)
    parser.add_argument("--gb", type=float, default=2.0, help="size of the model in GB")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--threads", type=int, default=4, help="ranges in flight, for all")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    if not shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin"):
        print("the benchmark needs nginx (Debian: nginx-light)", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix="gossipd-source-") as root:
        result = measure(Path(root), int(options.gb * 1e9), options.repeat, options.threads)
    print(json.dumps(result) if options.json else "\n".join(f"{name:34} {value}" for name, value in result.items()))
    return 0


def measure(root: Path, size: int, repeat: int, threads: int) -> dict[str, float]:
    """The row."""
    served = root / "www"
    served.mkdir()
    model = served / "model.safetensors"
    write_toy_model(root / "toy", size)
    with model.open("wb") as whole:
        for part in sorted((root / "toy").glob("*.safetensors")):
            whole.write(part.read_bytes())
    shutil.rmtree(root / "toy")
    rates: dict[str, list[float]] = {"gossipd": [], "reference": [], "unsynced": []}
    cpu: dict[str, list[float]] = {name: [] for name in rates}
    with nginx(served, root / "nginx") as server:
        manifest = describe(model, server)
        systems: dict[str, Callable[[Path], None]] = {
            "reference": lambda scratch: reference(server, manifest, scratch, threads, sync=True),
            "gossipd": lambda scratch: through_the_store(manifest, scratch, threads),
            "unsynced": lambda scratch: reference(server, manifest, scratch, threads, sync=False),
        }
        for _ in range(repeat):
            for name, system in systems.items():
                seconds, cpu_s = timed(system, root / "scratch")
                rates[name].append(manifest.bytes_total / seconds / 1e9)
                cpu[name].append(cpu_s / manifest.bytes_total * 1e9)
    return {
        "bytes": manifest.bytes_total,
        "threads": threads,
        "gbytes_per_s": median(rates["gossipd"]),
        "reference_gbytes_per_s": median(rates["reference"]),
        "reference_unsynced_gbytes_per_s": median(rates["unsynced"]),
        "ratio_reference": ratio(rates["gossipd"], rates["reference"]),
        "ratio_unsynced": ratio(rates["gossipd"], rates["unsynced"]),
        "cpu_s_per_gb": median(cpu["gossipd"]),
        "reference_cpu_s_per_gb": median(cpu["reference"]),
        "rss_max_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }


def median(values: Sequence[float]) -> float:
    return round(statistics.median(values), 3)


def ratio(own: Sequence[float], other: Sequence[float]) -> float:
    return round(statistics.median(a / b for a, b in zip(own, other, strict=True)), 3)


def timed(system: Callable[[Path], None], scratch: Path) -> tuple[float, float]:
    """Wall and own CPU seconds."""
    scratch.mkdir()
    before = resource.getrusage(resource.RUSAGE_SELF)
    began = time.perf_counter()
    system(scratch)
    seconds = time.perf_counter() - began
    after = resource.getrusage(resource.RUSAGE_SELF)
    shutil.rmtree(scratch)
    os.sync()  # what is still dirty is not the next one's
    return seconds, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def describe(model: Path, server: Nginx) -> Manifest:
    """A signed manifest of one file, hashed from the file."""
    size = model.stat().st_size
    layout = Layout([size], default_chunk_bytes(size))
    with model.open("rb") as file:
        digests = b"".join(blake3(file.read(layout.chunk_bytes)).digest() for _ in range(layout.chunk_count))
    return seal((FileEntry(model.name, size, 0o644),), layout.chunk_bytes, digests, f"{server.url}/")


def extents(manifest: Manifest) -> list[list[int]]:
    """Runs of chunks as the planner would have them read."""
    step = manifest.shape().extent_chunks
    return [list(range(at, min(at + step, manifest.chunk_count))) for at in range(0, manifest.chunk_count, step)]


def through_the_store(manifest: Manifest, scratch: Path, threads: int) -> None:
    """The daemon's own parts; the store is closed within the time, so that everything is durable."""
    (scratch / "models").mkdir()
    store = ChunkStore(scratch / "models", on_event=lambda _: None)
    reader = SourceReader(
        writer=store,
        pool=BufferPool(POOL_BYTES),
        throttle=Throttle(),
        policy=SourcePolicy.parse(["http://127.0.0.1:*"]),
    )
    try:
        store.open(manifest)
        with ThreadPoolExecutor(threads) as workers:
            for outcome in workers.map(lambda chunks: reader.read_chunks(manifest, chunks), extents(manifest)):
                assert not outcome.failed, outcome.errors
    finally:
        reader.close()
        store.close()


def reference(server: Nginx, manifest: Manifest, scratch: Path, threads: int, *, sync: bool) -> None:
    """obstore, BLAKE3, pwrite."""
    store = HTTPStore(server.url, client_options={"allow_http": True, "timeout": "600s"})
    descriptor = os.open(scratch / "out", os.O_RDWR | os.O_CREAT)
    os.posix_fallocate(descriptor, 0, manifest.bytes_total)
    syncer = _Syncer(descriptor) if sync else None
    chunk_bytes = manifest.chunk_bytes

    def read(chunks: list[int]) -> None:
        start, stop = chunks[0] * chunk_bytes, min((chunks[-1] + 1) * chunk_bytes, manifest.bytes_total)
        body = memoryview(obstore.get_range(store, manifest.files[0].path, start=start, end=stop))
        for chunk in chunks:
            at = (chunk - chunks[0]) * chunk_bytes
            piece = body[at : at + chunk_bytes]
            assert blake3(piece).digest() == manifest.digest(chunk)
            done = 0
            while done < len(piece):
                done += os.pwrite(descriptor, piece[done:], start + at + done)
        if syncer is not None:
            syncer.wrote(stop - start)

    with ThreadPoolExecutor(threads) as workers:
        list(workers.map(read, extents(manifest)))
    if syncer is not None:
        syncer.finish()
    os.close(descriptor)


class _Syncer:
    """fdatasync in a thread, each time 64 MiB more are written."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._pending = 0
        self._finished = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def wrote(self, count: int) -> None:
        with self._changed:
            self._pending += count
            self._changed.notify()

    def finish(self) -> None:
        with self._changed:
            self._finished = True
            self._changed.notify()
        self._thread.join()
        os.fdatasync(self._descriptor)

    def _run(self) -> None:
        while True:
            with self._changed:
                while self._pending < SYNC_BYTES and not self._finished:
                    self._changed.wait()
                if self._finished:
                    return
                self._pending = 0
            os.fdatasync(self._descriptor)


if __name__ == "__main__":
    sys.exit(main())
