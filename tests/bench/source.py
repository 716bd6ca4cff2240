"""External reads beside obstore alone: what the reader, the pool and the store cost on top of it.

``python -m tests.bench.source [--gb 2] [--chunk-mib 16] [--repeat 5] [--threads 4] [--json]``. nginx on loopback, the
model in page cache. Chunks have the default size for the model's unless told; those of 500 GB have 16 MiB. gossipd is
the real ``SourceReader`` into a real ``ChunkStore``, extent by extent from as many threads as the reference has. The
reference reads the same ranges with ``obstore.get_range``, hashes each chunk with BLAKE3 and writes it with ``pwrite``
into one preallocated file, nothing else.

Two times are taken of each. Until the last chunk is written: ``gbytes_per_s`` against a reference that never syncs
(``ratio_reference``), while the store keeps its journal and has the device begin to write behind it. And until all
of it is durable: the store closed, against a reference that syncs in the background, one fdatasync for each 64 MiB
(``durable_gbytes_per_s``, ``ratio_durable``). Ratios are medians of the ratios of neighbouring runs. Files to be
written have their page cache filled beforehand; ``tests.bench.pair_systems.pages`` says why. Needs nginx.
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
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import obstore
from blake3 import blake3
from obstore.store import HTTPStore

from gossipd.demo.toy_model import write_toy_model
from gossipd.manifest.chunk_layout import Layout, default_chunk_bytes
from gossipd.manifest.manifest import FileEntry, Manifest
from gossipd.manifest.source_policy import SourcePolicy
from gossipd.runtime.buffer_pool import BufferPool
from gossipd.runtime.rate_limit import RateLimit
from gossipd.sources.assembly import Delivery
from gossipd.sources.reader import SourceReader
from gossipd.store.chunk_store import ChunkStore
from tests.gossipd.sources.models import seal
from tests.servers import Nginx, nginx

POOL_BYTES = 128 * 1024 * 1024  # the default bound
SYNC_BYTES = 64 * 1024 * 1024  # the store's window


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.source", description=__doc__)
    parser.add_argument("--gb", type=float, default=2.0, help="size of the model in GB")
    parser.add_argument("--chunk-mib", type=float, help="chunk size in MiB, when not the default for the size")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--threads", type=int, default=4, help="ranges in flight, for all")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    if not shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin"):
        print("the benchmark needs nginx (Debian: nginx-light)", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix="gossipd-source-") as root:
        size = int(options.gb * 1e9)
        chunk_bytes = int(options.chunk_mib * 1024 * 1024) if options.chunk_mib else default_chunk_bytes(size)
        result = measure(Path(root), size, chunk_bytes, options.repeat, options.threads)
    print(json.dumps(result) if options.json else "\n".join(f"{name:34} {value}" for name, value in result.items()))
    return 0


def measure(root: Path, size: int, chunk_bytes: int, repeat: int, threads: int) -> dict[str, float]:
    """The row."""
    served = root / "www"
    served.mkdir()
    model = served / "model.safetensors"
    write_toy_model(root / "toy", size)
    with model.open("wb") as whole:
        for part in sorted((root / "toy").glob("*.safetensors")):
            whole.write(part.read_bytes())
    shutil.rmtree(root / "toy")
    runs: dict[str, list[Times]] = {"gossipd": [], "reference": [], "synced": []}
    with nginx(served, root / "nginx") as server:
        manifest = describe(model, server, chunk_bytes)
        systems: dict[str, Callable[[Path], Times]] = {
            "reference": lambda scratch: reference(server, manifest, scratch, threads, sync=False),
            "gossipd": lambda scratch: through_the_store(manifest, scratch, threads),
            "synced": lambda scratch: reference(server, manifest, scratch, threads, sync=True),
        }
        for _ in range(repeat):
            for name, system in systems.items():
                runs[name].append(alone(system, root / "scratch"))
    own, bare, synced = runs["gossipd"], runs["reference"], runs["synced"]
    gigabytes = manifest.bytes_total / 1e9
    return {
        "bytes": manifest.bytes_total,
        "chunk_bytes": manifest.chunk_bytes,
        "threads": threads,
        "repeat": repeat,
        "gbytes_per_s": median(gigabytes / one.written_s for one in own),
        "reference_gbytes_per_s": median(gigabytes / one.written_s for one in bare),
        "ratio_reference": median(b.written_s / a.written_s for a, b in zip(own, bare, strict=True)),
        "durable_gbytes_per_s": median(gigabytes / one.durable_s for one in own),
        "reference_durable_gbytes_per_s": median(gigabytes / one.durable_s for one in synced),
        "ratio_durable": median(b.durable_s / a.durable_s for a, b in zip(own, synced, strict=True)),
        "cpu_s_per_gb": median(one.cpu_s / gigabytes for one in own),
        "reference_cpu_s_per_gb": median(one.cpu_s / gigabytes for one in bare),
        "rss_max_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }


@dataclass(frozen=True)
class Times:
    """Of one run, in seconds: until the last chunk was written, until all was durable, and own CPU until then."""

    written_s: float
    durable_s: float
    cpu_s: float


class Watch:
    """Started when all is prepared."""

    def __init__(self) -> None:
        self._began = time.perf_counter()
        self._cpu_s = _cpu_s()
        self._written_s = 0.0

    def written(self) -> None:
        self._written_s = time.perf_counter() - self._began

    def durable(self) -> Times:
        return Times(self._written_s, time.perf_counter() - self._began, _cpu_s() - self._cpu_s)


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def median(values: Iterable[float]) -> float:
    return round(statistics.median(values), 3)


def alone(system: Callable[[Path], Times], scratch: Path) -> Times:
    """One run; what it leaves dirty is not the next one's."""
    scratch.mkdir()
    try:
        return system(scratch)
    finally:
        shutil.rmtree(scratch)
        os.sync()


def describe(model: Path, server: Nginx, chunk_bytes: int) -> Manifest:
    """A signed manifest of one file, hashed from the file."""
    size = model.stat().st_size
    layout = Layout([size], chunk_bytes)
    with model.open("rb") as file:
        digests = b"".join(blake3(file.read(layout.chunk_bytes)).digest() for _ in range(layout.chunk_count))
    return seal((FileEntry(model.name, size, 0o644),), layout.chunk_bytes, digests, f"{server.url}/")


def extents(manifest: Manifest) -> list[list[int]]:
    """Runs of chunks as the planner would have them read."""
    step = manifest.shape().extent_chunks
    return [list(range(at, min(at + step, manifest.chunk_count))) for at in range(0, manifest.chunk_count, step)]


def through_the_store(manifest: Manifest, scratch: Path, threads: int) -> Times:
    """The daemon's own parts."""
    (scratch / "models").mkdir()
    store = ChunkStore(scratch / "models", on_event=lambda _: None)
    reader = SourceReader(
        Delivery(store, BufferPool(POOL_BYTES)),
        throttle=RateLimit(),
        policy=SourcePolicy.parse(["http://127.0.0.1:*"]),
    )
    try:
        store.open(manifest)
        fill_page_cache(scratch, manifest.bytes_total)
        watch = Watch()
        with ThreadPoolExecutor(threads) as workers:
            for outcome in workers.map(lambda chunks: reader.read_chunks(manifest, chunks), extents(manifest)):
                assert not outcome.failed, outcome.errors
        watch.written()
    finally:
        reader.close()
        store.close()
    return watch.durable()


def reference(server: Nginx, manifest: Manifest, scratch: Path, threads: int, *, sync: bool) -> Times:
    """obstore, BLAKE3, pwrite."""
    store = HTTPStore(server.url, client_options={"allow_http": True, "timeout": "600s"})
    descriptor = os.open(scratch / "out", os.O_RDWR | os.O_CREAT)
    os.posix_fallocate(descriptor, 0, manifest.bytes_total)
    fill_page_cache(scratch, manifest.bytes_total)
    watch = Watch()
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
    watch.written()
    if syncer is not None:
        syncer.finish()
    times = watch.durable()
    os.close(descriptor)
    return times


def fill_page_cache(directory: Path, nbytes: int) -> None:
    """Read the unwritten files of ``nbytes`` beneath ``directory``, so that they have pages."""
    block = bytearray(4 << 20)
    for path in directory.rglob("*"):
        if path.is_file() and path.stat().st_size == nbytes:
            with path.open("rb", buffering=0) as file:
                while file.readinto(block):
                    pass


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
