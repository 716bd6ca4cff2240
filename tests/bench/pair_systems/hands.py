"""gossipd's own data path: the real store, server, client and worker threads, with a trio loop beside them.

The loop does what the daemon's does for every chunk, hear of it and start the next fetch, and measures its own lag.
"""

from __future__ import annotations

import contextlib
import math
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import trio

from gossipd.core.events import ChunkStored
from gossipd.core.ids import LOCAL
from gossipd.manifest.manifest import FileEntry, Manifest, ManifestDraft, open_manifest, seal_manifest
from gossipd.runtime.buffer_pool import BufferPool
from gossipd.runtime.rate_limit import RateLimit
from gossipd.store.chunk_store import ChunkStore
from gossipd.transfer.client import BulkClient
from gossipd.transfer.server import BulkServer
from gossipd.transfer.settings import BulkSettings, Encryption
from gossipd.transfer.tokens import IssuedTokens
from gossipd.wire.transfer import TOKEN_BYTES
from membership.member import node_id
from tests.bench.pair_systems.endpoint import (
    RECEIVER_KEY,
    SENDER_KEY,
    Plan,
    Usage,
    await_word,
    credentials,
    digests,
    main,
    say,
)
from tests.gossipd.transfer.server_port import QuietPort

SENDER = node_id(SENDER_KEY.public.ed25519)
RECEIVER = node_id(RECEIVER_KEY.public.ed25519)
POOL_BYTES = 128 * 1024 * 1024
LAG_TICK_S = 0.005
FETCH_S = 60.0


def manifest_of(plan: Plan) -> Manifest:
    draft = ManifestDraft(
        name="bench",
        version=1,
        created_s=0,
        files=(FileEntry("model.bin", plan.nbytes, 0o644),),
        chunk_bytes=plan.chunk_bytes,
        digests=b"".join(digests(plan)),
        sources=("http://127.0.0.1/bench",),
    )
    return open_manifest(seal_manifest(draft, SENDER_KEY), [SENDER_KEY.public.ed25519])


class Lag:
    """How late a trio loop is, sampled all the time it runs."""

    def __init__(self) -> None:
        self.samples: list[float] = []

    async def watch(self) -> None:
        while True:
            due = trio.current_time() + LAG_TICK_S
            await trio.sleep_until(due)
            self.samples.append(trio.current_time() - due)

    def p99(self) -> float:
        ordered = sorted(self.samples)
        return ordered[max(0, math.ceil(len(ordered) * 0.99) - 1)] if ordered else 0.0


class Node:
    """The hands of one daemon."""

    def __init__(self, plan: Plan, root: Path, *, is_sender: bool, tell: Callable[[object], None]) -> None:
        self.manifest = manifest_of(plan)
        root.mkdir(parents=True)
        self.store = ChunkStore(root, on_event=tell)
        self.held = self.store.open(self.manifest)
        settings = BulkSettings(encryption=Encryption(plan.encryption))
        own = credentials(is_sender=is_sender) if settings.encryption is Encryption.TLS else None
        self.tokens = IssuedTokens()
        self.server = BulkServer(
            reader=self.store,
            settings=settings,
            port=QuietPort(),
            throttle=RateLimit(),
            credentials=own,
            tokens=self.tokens,
        )
        self.client = BulkClient(
            settings=settings,
            pool=BufferPool(POOL_BYTES),
            throttle=RateLimit(),
            credentials=own,
            get_token=None if own else lambda _node: ask_token(plan),
        )
        self.fetchers = ThreadPoolExecutor(plan.fetches)

    def fill(self, plan: Plan) -> None:
        """Put the source's bytes into the store, and have it over with syncing them."""
        body = memoryview(bytearray(plan.chunk_bytes))
        with open(plan.source, "rb") as file:
            for chunk in range(plan.chunk_count):
                count = file.readinto(body)
                self.store.put(self.manifest.id, chunk, body[:count], LOCAL, 0.0)
        self.store.commit()

    def fetch(self, plan: Plan, chunk: int) -> None:
        """As the daemon's performer does it; any error ends the benchmark."""
        endpoint = ("127.0.0.1", plan.ports[0])
        began = time.monotonic()
        with self.client.fetch_chunk(
            SENDER, endpoint, self.manifest.id, chunk, plan.length(chunk), timeout_s=FETCH_S
        ) as lease:
            self.store.put(self.manifest.id, chunk, lease.view, SENDER, time.monotonic() - began)

    def close(self) -> None:
        self.client.close()
        self.fetchers.shutdown()
        self.server.close()
        self.store.close()


def ask_token(plan: Plan) -> bytes:
    with socket.create_connection(("127.0.0.1", plan.ports[1])) as sock:
        return sock.recv(TOKEN_BYTES, socket.MSG_WAITALL)


def give_tokens(listener: socket.socket, tokens: IssuedTokens) -> None:
    while True:
        sock, _ = listener.accept()
        with sock:
            sock.sendall(tokens.issue(RECEIVER))


@contextlib.contextmanager
def send(plan: Plan) -> Iterator[tuple[int, ...]]:
    node = Node(plan, Path(plan.target, "sender"), is_sender=True, tell=lambda _event: None)
    node.fill(plan)
    _, port = node.server.start("127.0.0.1", 0)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=give_tokens, args=(listener, node.tokens), daemon=True).start()
        yield port, listener.getsockname()[1]
    node.close()


def receive(plan: Plan) -> dict[str, float]:
    return trio.run(receive_all, plan)


async def receive_all(plan: Plan) -> dict[str, float]:
    loop = trio.lowlevel.current_trio_token()
    news, heard = trio.open_memory_channel[object](math.inf)

    def tell(event: object) -> None:
        loop.run_sync_soon(news.send_nowait, event)

    node = Node(plan, Path(plan.target, "receiver"), is_sender=False, tell=tell)
    lag = Lag()
    waiting = deque(range(plan.chunk_count))
    running: list[Future[None]] = []

    def start() -> None:
        running.append(node.fetchers.submit(node.fetch, plan, waiting.popleft()))

    say(ready=True)
    await trio.to_thread.run_sync(await_word, "go")
    usage = Usage.mark()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(lag.watch)
        for _ in range(min(plan.fetches, plan.chunk_count)):
            start()
        stored = 0
        async for event in heard:
            if isinstance(event, ChunkStored):
                stored += 1
                if stored == plan.chunk_count:
                    break
                if waiting:
                    start()
        report = usage.report(chunks_wrong=0.0, loop_lag_p99_s=lag.p99())
        nursery.cancel_scope.cancel()
    for future in running:
        future.result()
    node.close()
    return report


if __name__ == "__main__":
    main(send, receive)
