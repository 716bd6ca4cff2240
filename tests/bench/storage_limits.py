"""Reading storage that has limits or faults, beside the time that its limits allow.

``python -m tests.bench.storage_limits [--only NAME ...] [--mb 60] [--threads 8] [--json]``. Each row has a storage
server of its own on loopback, in a process of its own (``tests.limited_storage``), and the real ``SourceReader`` into a
real ``ChunkStore``, with as many threads as a daemon has and one read for each unit of the planner.

``ideal`` is what the limits allow: bytes over the connections allowed and the rate of each; requests over the requests
per second; for faults the time of the same server without them, taken in the same run; for mirrors the bytes over what
the good ones give together. ``seen`` is the time until the last chunk is written, ``ratio`` seen over ideal,
``bytes_ratio`` what the servers sent over the model, ``refused`` the requests that they refused. Rows with a limit of
connections also have ``plain``, the time of a plain client that uses as many as are allowed, in the same run. With
``--json`` each row is one line.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from random import Random

from blake3 import blake3

from gossipd.manifest.chunk_layout import Layout, default_chunk_bytes
from gossipd.manifest.manifest import FileEntry, Manifest
from gossipd.manifest.source_policy import SourcePolicy
from gossipd.runtime.buffer_pool import BufferPool
from gossipd.runtime.rate_limit import RateLimit
from gossipd.sources.assembly import Delivery
from gossipd.sources.reader import SourceReader
from gossipd.store.chunk_store import ChunkStore
from tests.gossipd.sources.models import seal
from tests.limited_storage import Rules, counts

CONNECTION = 4e6  # bytes a second of one connection
TOTAL = 10e6  # bytes a second of a server that has a limit for all
POOL_BYTES = 128 * 1024 * 1024
Row = dict[str, float]


class Scene:
    """A model on disk, and what reads it."""

    def __init__(self, root: Path, size: int, threads: int) -> None:
        self.root, self.size, self.threads = root, size, threads
        self._served = root / "www"
        self._served.mkdir()
        body = Random(1).randbytes(size)
        (self._served / "model.safetensors").write_bytes(body)
        self._chunk_bytes = default_chunk_bytes(size)
        layout = Layout([size], self._chunk_bytes)
        self._digests = b"".join(
            blake3(body[at * self._chunk_bytes : (at + 1) * self._chunk_bytes]).digest()
            for at in range(layout.chunk_count)
        )
        self._runs = 0

    @property
    def reads(self) -> int:
        """Requests that reading takes at least, and the first look at the file."""
        return -(-self.size // self._chunk_bytes) + 1

    @contextmanager
    def server(self, rules: Rules) -> Iterator[str]:
        """A server process; its address."""
        command = [sys.executable, "-m", "tests.limited_storage", str(self._served), json.dumps(asdict(rules))]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert process.stdin is not None and process.stdout is not None
        try:
            yield f"http://127.0.0.1:{int(process.stdout.readline())}"
        finally:
            process.stdin.close()
            process.stdout.close()
            process.wait(10)

    def plain(self, url: str, connections: int) -> float:
        """Seconds that a plain client needs with so many connections: what this machine allows."""
        left = list(range(0, self.size, self._chunk_bytes))

        def work() -> None:
            client = http.client.HTTPConnection(url.removeprefix("http://"))
            while left:
                start = left.pop(0)
                stop = min(self.size, start + self._chunk_bytes)
                client.request("GET", "/model.safetensors", headers={"Range": f"bytes={start}-{stop - 1}"})
                assert len(client.getresponse().read()) == stop - start
            client.close()

        began = time.monotonic()
        with ThreadPoolExecutor(connections) as pool:
            for job in [pool.submit(work) for _ in range(connections)]:
                job.result()
        return time.monotonic() - began

    def read(self, *urls: str, seeds: int = 1) -> float:
        """Seconds until ``seeds`` readers together have the model; as planners do, they help each other."""
        self._runs += 1
        manifest = seal((FileEntry("model.safetensors", self.size, 0o644),), self._chunk_bytes, self._digests, *urls)
        units: list[tuple[int, ...]] = [(chunk,) for chunk in range(manifest.chunk_count)]
        began = time.monotonic()
        with ExitStack() as stack, ThreadPoolExecutor(seeds) as pool:
            readers = [stack.enter_context(self._reader(manifest, f"{self._runs}-{seed}")) for seed in range(seeds)]
            began = time.monotonic()
            for job in [pool.submit(self._read_all, reader, manifest, units) for reader in readers]:
                job.result()
            return time.monotonic() - began

    @contextmanager
    def _reader(self, manifest: Manifest, name: str) -> Iterator[SourceReader]:
        place = self.root / name
        place.mkdir()
        store = ChunkStore(place, on_event=lambda _: None)
        policy = SourcePolicy.parse(["http://127.0.0.1:*", "http://203.0.113.1:*", f"file://{self._served}"])
        reader = SourceReader(Delivery(store, BufferPool(POOL_BYTES)), throttle=RateLimit(), policy=policy)
        store.open(manifest)
        try:
            yield reader
        finally:
            reader.close()
            store.close()

    def _read_all(self, reader: SourceReader, manifest: Manifest, left: list[tuple[int, ...]]) -> None:
        """As a planner: what failed is asked for again after a pause."""

        def work() -> None:
            while left:
                with contextlib.suppress(IndexError):  # another thread was quicker
                    unit = left.pop(0)
                    if reader.read_chunks(manifest, unit, is_awaited=True).failed:
                        time.sleep(2.0)
                        left.append(unit)

        with ThreadPoolExecutor(self.threads) as workers:
            for job in [workers.submit(work) for _ in range(self.threads)]:
                job.result()


def _limited(scene: Scene, ideal_s: float, rules: Rules, seeds: int = 1) -> Row:
    with scene.server(rules) as url:
        seen_s = scene.read(url, seeds=seeds)
        return _row(scene, ideal_s, seen_s, url)


def _row(scene: Scene, ideal_s: float, seen_s: float, *urls: str) -> Row:
    told = [counts(url) for url in urls]
    return {
        "ideal": round(ideal_s, 2),
        "seen": round(seen_s, 2),
        "ratio": round(seen_s / ideal_s, 3),
        "bytes_ratio": round(sum(one.sent_bytes for one in told) / scene.size, 3),
        "requests": sum(one.requests for one in told),
        "refused": sum(one.refused for one in told),
    }


def _connections(count: int, **more: float) -> Callable[[Scene], Row]:
    def run(scene: Scene) -> Row:
        rules = replace(Rules(connection_bytes_per_s=CONNECTION, connections=count), **more)  # type: ignore[arg-type]
        with scene.server(replace(rules, connections=0)) as url:
            plain_s = scene.plain(url, count)
        row = _limited(scene, scene.size / (count * CONNECTION), rules)
        return row | {"plain": round(plain_s, 2), "ratio_plain": round(row["seen"] / plain_s, 3)}

    return run


def _requests(burst: int, retry_after_s: int = 0) -> Callable[[Scene], Row]:
    def run(scene: Scene) -> Row:
        small = Scene(_new(scene.root, f"small-{burst}-{retry_after_s}"), scene.size // 5, scene.threads)
        rules = Rules(requests_per_s=5, burst=burst, status=429, retry_after_s=retry_after_s)
        return _limited(small, (small.reads - burst) / 5, rules)

    return run


def _two_seeds(scene: Scene) -> Row:
    rules = Rules(connection_bytes_per_s=CONNECTION / 2, connections=5)
    return _limited(scene, scene.size / (5 * CONNECTION / 2), rules, seeds=2)


def _disturbed(**faults: float) -> Callable[[Scene], Row]:
    def run(scene: Scene) -> Row:
        rules = Rules(total_bytes_per_s=TOTAL)
        with scene.server(rules) as url:
            undisturbed_s = scene.read(url)
        return _limited(scene, undisturbed_s, replace(rules, **faults))  # type: ignore[arg-type]

    return run


def _bad_mirrors(scene: Scene) -> Row:
    """Two good ones, and one each that is refused, silent, lying, slow."""
    with ExitStack() as stack:
        good = [stack.enter_context(scene.server(Rules(total_bytes_per_s=TOTAL / 2))) for _ in range(2)]
        lying = stack.enter_context(scene.server(Rules(total_bytes_per_s=TOTAL / 2, lies=True)))
        slow = stack.enter_context(scene.server(Rules(total_bytes_per_s=TOTAL / 100)))
        silent = stack.enter_context(_silent())
        with socket.create_server(("127.0.0.1", 0)) as closed:
            dead = f"http://127.0.0.1:{closed.getsockname()[1]}"
        seen_s = scene.read(dead, slow, silent, lying, *good)
        return _row(scene, scene.size / TOTAL, seen_s, *good, lying, slow)


@contextmanager
def _silent() -> Iterator[str]:
    """An address that connects to nobody: its queue of connections is full."""
    with socket.socket() as listener, ExitStack() as stack:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for _ in range(4):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(listener.getsockname())
        time.sleep(0.1)
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


def _two_mirrors(scene: Scene) -> Row:
    """One allows two connections, the other three; both are needed."""
    with ExitStack() as stack:
        rules = Rules(connection_bytes_per_s=CONNECTION)
        urls = [stack.enter_context(scene.server(replace(rules, connections=count))) for count in (2, 3)]
        return _row(scene, scene.size / (5 * CONNECTION), scene.read(*urls), *urls)


ROWS: dict[str, Callable[[Scene], Row]] = {
    "connections-1": _connections(1),
    "connections-2": _connections(2),
    "connections-5": _connections(5),
    "connections-2-retry-after": _connections(2, retry_after_s=1),
    "connections-2-sockets": _connections(2, counts_sockets=True),
    "connections-5-two-seeds": _two_seeds,
    "requests-5": _requests(5),
    "requests-5-strict": _requests(1),
    "requests-5-retry-after": _requests(5, 1),
    "resets-each-3": _disturbed(reset_each=3),
    "refuses-a-third": _disturbed(refuse_each=3, refuse_for_s=5.0),
    "drips-each-8": _disturbed(drip_each=8),
    "mirrors-two": _two_mirrors,
    "mirrors-bad": _bad_mirrors,
}


def _new(root: Path, name: str) -> Path:
    place = root / name
    place.mkdir()
    return place


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.storage_limits", description=__doc__)
    parser.add_argument("--only", nargs="+", choices=list(ROWS), default=list(ROWS), metavar="NAME")
    parser.add_argument("--mb", type=float, default=60.0, help="size of the model in MB")
    parser.add_argument("--threads", type=int, default=8, help="as sources.connections")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    for name in options.only:
        with tempfile.TemporaryDirectory(prefix="gossipd-limits-") as root:
            row = ROWS[name](Scene(Path(root), int(options.mb * 1e6), options.threads))
        shown = f"{name:28} {'  '.join(f'{key} {value}' for key, value in row.items())}"
        print(json.dumps({"row": name, **row}) if options.json else shown, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
