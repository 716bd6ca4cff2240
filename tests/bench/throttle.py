"""How exact the rate limits are, on real sockets.

``python -m tests.bench.throttle [--seconds 8] [--json]``. Each limit alone, at several rates: uploads and downloads
between the real bulk server and client on loopback, four fetches at a time as a peer has them; reads from nginx with
the real reader, four ranges at a time. Bodies are counted, from the first request to the last byte, and thrown away.
``error_<limit>_<MB/s>`` is the rate over the limit, less one; ``error_max`` the largest of them, without its sign.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from blake3 import blake3

from gossipd.core.ids import LOCAL, ChunkIndex, DeploymentId, Supplier
from gossipd.manifest.manifest import FileEntry, Manifest
from gossipd.manifest.source_policy import SourcePolicy
from gossipd.runtime.buffer_pool import BufferPool
from gossipd.runtime.rate_limit import RateLimit
from gossipd.sources.assembly import Delivery
from gossipd.sources.reader import SourceReader
from gossipd.store.chunk_store import ChunkStore
from gossipd.transfer.client import BulkClient
from gossipd.transfer.server import BulkServer
from gossipd.transfer.settings import BulkSettings, Encryption
from gossipd.transfer.tokens import IssuedTokens
from membership.member import node_id
from tests.bench.pair_systems.endpoint import RECEIVER_KEY, SENDER_KEY
from tests.gossipd.sources.models import seal
from tests.gossipd.transfer.server_port import QuietPort
from tests.servers import nginx

RATES = (2e6, 20e6, 200e6)  # bytes a second: a slow office line, 160 Mbit/s, 1.6 Gbit/s
CHUNK_BYTES = 1 << 20
CHUNKS = 16
IN_FLIGHT = 4
POOL_BYTES = 128 << 20
FETCH_S = 60.0

Work = Callable[[int], None]
"""Moves one chunk."""


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.throttle", description=__doc__)
    parser.add_argument("--seconds", type=float, default=8.0, help="how long each measurement takes")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    if not shutil.which("nginx", path="/usr/sbin:/usr/bin:/usr/local/sbin:/usr/local/bin"):
        print("the benchmark needs nginx (Debian: nginx-light)", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix="gossipd-throttle-") as root:
        result = measure(Path(root), options.seconds)
    print(
        json.dumps(result) if options.json else "\n".join(f"{name:24} {value:+.4f}" for name, value in result.items())
    )
    return 0


def measure(root: Path, seconds: float) -> dict[str, float]:
    """The row."""
    served = root / "www"
    served.mkdir()
    body = bytes(range(256)) * (CHUNK_BYTES // 256)
    (served / "model.bin").write_bytes(body * CHUNKS)
    errors: dict[str, float] = {}
    with nginx(served, root / "nginx") as server:
        entry = FileEntry("model.bin", CHUNKS * CHUNK_BYTES, 0o644)
        manifest = seal((entry,), CHUNK_BYTES, blake3(body).digest() * CHUNKS, f"{server.url}/")
        store = ChunkStore(filled(root / "models"), on_event=lambda _event: None)
        store.open(manifest)
        for chunk in range(CHUNKS):
            store.put(manifest.id, chunk, memoryview(body), LOCAL, 0.0)
        for rate in RATES:
            with fetching(store, manifest, upload=RateLimit(rate), download=RateLimit()) as work:
                errors[f"error_upload_{rate / 1e6:g}"] = error_of(work, rate, seconds)
            with fetching(store, manifest, upload=RateLimit(), download=RateLimit(rate)) as work:
                errors[f"error_download_{rate / 1e6:g}"] = error_of(work, rate, seconds)
            with reading(manifest, RateLimit(rate)) as work:
                errors[f"error_source_{rate / 1e6:g}"] = error_of(work, rate, seconds)
        store.close()
    return errors | {"error_max": max(abs(error) for error in errors.values())}


def filled(directory: Path) -> Path:
    directory.mkdir()
    return directory


def error_of(work: Work, rate: float, seconds: float) -> float:
    """Move as many chunks as the limit should let through in that time."""
    count = max(IN_FLIGHT, round(rate * seconds / CHUNK_BYTES))
    with ThreadPoolExecutor(IN_FLIGHT) as workers:
        began = time.perf_counter()
        list(workers.map(work, range(count)))
        took_s = time.perf_counter() - began
    return count * CHUNK_BYTES / took_s / rate - 1


@contextmanager
def fetching(store: ChunkStore, manifest: Manifest, *, upload: RateLimit, download: RateLimit) -> Iterator[Work]:
    settings = BulkSettings(encryption=Encryption.NONE)
    tokens = IssuedTokens()
    receiver = node_id(RECEIVER_KEY.public.ed25519)
    server = BulkServer(
        reader=store, settings=settings, port=QuietPort(), throttle=upload, tokens=tokens
    )  # fmt: skip
    client = BulkClient(
        settings=settings,
        pool=BufferPool(POOL_BYTES),
        throttle=download,
        get_token=lambda _node: tokens.issue(receiver),
    )
    endpoint = server.start("127.0.0.1", 0)
    sender = node_id(SENDER_KEY.public.ed25519)

    def fetch(number: int) -> None:
        client.fetch_chunk(
            sender, endpoint, manifest.id, number % CHUNKS, CHUNK_BYTES, timeout_s=FETCH_S
        ).release()  # fmt: skip

    try:
        yield fetch
    finally:
        client.close()
        server.close()


class Bin:
    """A ChunkWriter that takes everything."""

    def put(
        self, deployment: DeploymentId, chunk: ChunkIndex, body: memoryview, supplier: Supplier, elapsed_s: float
    ) -> bool:
        del deployment, chunk, body, supplier, elapsed_s
        return True


@contextmanager
def reading(manifest: Manifest, throttle: RateLimit) -> Iterator[Work]:
    reader = SourceReader(
        Delivery(Bin(), BufferPool(POOL_BYTES)), throttle=throttle, policy=SourcePolicy.parse(["http://127.0.0.1:*"])
    )

    def read(number: int) -> None:
        outcome = reader.read_chunks(manifest, [number % CHUNKS])
        assert not outcome.failed, outcome.errors

    try:
        yield read
    finally:
        reader.close()


if __name__ == "__main__":
    sys.exit(main())
