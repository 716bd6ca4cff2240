"""A storage server with limits and faults: connections, requests per second, bytes per second, and answers that break.

``limited_storage(root, rules)`` runs it in a thread, for tests that count. ``python -m tests.limited_storage ROOT
RULES`` runs it as a process of its own, for times: it prints its port, and ends when its standard input is closed. GET
``/.counts`` tells what it has seen. It speaks HTTP/1.1 with ranges, and counts by requests, so that each run is alike.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import sys
import threading
import time
import urllib.request
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

PIECE_BYTES = 16 * 1024
_STOP_S_MAX = 5.0


@dataclass(frozen=True)
class Rules:
    """What the server does. Zero is no limit, or never."""

    connection_bytes_per_s: float = 0.0
    total_bytes_per_s: float = 0.0
    connections: int = 0  # answered at once; more are refused
    counts_sockets: bool = False  # each open connection counts, also while it is idle
    requests_per_s: float = 0.0
    burst: int = 1
    status: int = 503  # of refusals
    retry_after_s: int = 0
    reset_each: int = 0  # each so manieth body ends in the middle
    refuse_each: int = 0  # each so manieth request is refused during ``refuse_for_s`` of each ``refuse_period_s``
    refuse_for_s: float = 0.0
    refuse_period_s: float = 10.0
    drip_each: int = 0  # each so manieth body comes at 200 B/s
    lies: bool = False  # each body has a wrong byte
    begin_bytes_min: int = 1024  # shorter bodies are never broken, nor counted for it


@dataclass
class Counts:
    """What the server saw. ``most_at_once``: requests, or open connections where they count."""

    requests: int = 0
    refused: int = 0
    sent_bytes: int = 0
    most_at_once: int = 0


class Storage:
    """The server; lives in one event loop."""

    def __init__(self, root: Path, rules: Rules) -> None:
        self.root = root
        self.rules = rules
        self.counts = Counts()
        self._began: float | None = None
        self._at_once = 0
        self._bodies = 0
        self._taken: deque[float] = deque()
        self._sent_until = 0.0  # by the limit of all
        self._tokens = float(rules.burst)
        self._tokens_at = time.monotonic()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection."""
        by_socket = self.rules.counts_sockets
        if by_socket:
            self._enter()
        try:
            while await self._answer(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError, TimeoutError, asyncio.CancelledError):
            pass
        finally:
            if by_socket:
                self._at_once -= 1
            writer.close()

    def _enter(self) -> None:
        self._at_once += 1
        self.counts.most_at_once = max(self.counts.most_at_once, self._at_once)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        except asyncio.LimitOverrunError:
            return False
        path = head[0].split(" ")[1].lstrip("/")
        if path == ".counts":
            body = json.dumps(asdict(self.counts)).encode()
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
            await writer.drain()
            return False
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:])}
        self.counts.requests += 1
        self._began = self._began or time.monotonic()
        if not self.rules.counts_sockets:
            self._enter()
        try:
            if self._refuses():
                self.counts.refused += 1
                retry = f"Retry-After: {self.rules.retry_after_s}\r\n" if self.rules.retry_after_s else ""
                writer.write(f"HTTP/1.1 {self.rules.status} No\r\n{retry}Content-Length: 0\r\n\r\n".encode())
                await writer.drain()
                return not self.rules.counts_sockets
            return await self._send(path, headers, writer)
        finally:
            if not self.rules.counts_sockets:
                self._at_once -= 1

    def _refuses(self) -> bool:
        rules, now = self.rules, time.monotonic()
        if rules.connections and self._at_once > rules.connections:
            return True
        if rules.refuse_each and (now - (self._began or now)) % rules.refuse_period_s < rules.refuse_for_s:
            return self.counts.requests % rules.refuse_each == 0
        if rules.requests_per_s:
            self._tokens = min(float(rules.burst), self._tokens + (now - self._tokens_at) * rules.requests_per_s)
            self._tokens_at = now
            if self._tokens < 1.0:
                return True
            self._tokens -= 1.0
        return False

    async def _send(self, path: str, headers: dict[str, str], writer: asyncio.StreamWriter) -> bool:
        file = self.root / path
        if not file.is_file():
            writer.write(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
            await writer.drain()
            return True
        size = file.stat().st_size
        first, _, last = headers.get("range", f"bytes=0-{size - 1}").removeprefix("bytes=").partition("-")
        start, stop = int(first), min(size, int(last) + 1)
        with file.open("rb") as opened:
            opened.seek(start)
            body = bytearray(opened.read(stop - start))
        writer.write(
            f'HTTP/1.1 206 Partial Content\r\nContent-Length: {len(body)}\r\nETag: "one"\r\n'
            f"Content-Range: bytes {start}-{stop - 1}/{size}\r\n\r\n".encode()
        )
        end, rate = len(body), self.rules.connection_bytes_per_s
        if len(body) >= self.rules.begin_bytes_min:
            self._bodies += 1
            if self.rules.lies:
                body[len(body) // 2] ^= 1
            if self.rules.reset_each and self._bodies % self.rules.reset_each == 0:
                end = len(body) // 2
            if self.rules.drip_each and self._bodies % self.rules.drip_each == 0:
                rate = 200.0
        await self._pour(memoryview(body)[:end], rate, writer)
        if end < len(body):
            sock: socket.socket = writer.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            await asyncio.sleep(0.02)  # a reset overtakes what lies in buffers
            writer.transport.abort()
            return False
        return True

    async def _pour(self, body: memoryview, rate: float, writer: asyncio.StreamWriter) -> None:
        began, sent = time.monotonic(), 0
        while sent < len(body):
            step = min(len(body) - sent, PIECE_BYTES, max(1, int(rate / 20)) if rate else PIECE_BYTES)
            due = began + (sent + step) / rate if rate else 0.0
            if self.rules.total_bytes_per_s:
                self._sent_until = max(time.monotonic() - 0.02, self._sent_until) + step / self.rules.total_bytes_per_s
                due = max(due, self._sent_until)
            if (pause_s := due - time.monotonic()) > 0:
                await asyncio.sleep(pause_s)
            writer.write(body[sent : sent + step])
            await writer.drain()
            if writer.is_closing():
                raise ConnectionResetError
            self.counts.sent_bytes += step
            sent += step


@contextmanager
def limited_storage(root: Path, rules: Rules) -> Iterator[tuple[str, Storage]]:
    """The server in a thread: its address, and itself."""
    loop = asyncio.new_event_loop()
    storage = Storage(root, rules)
    server = loop.run_until_complete(_listen(storage))
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", storage
    finally:
        asyncio.run_coroutine_threadsafe(_stop(server), loop).result(_STOP_S_MAX)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(_STOP_S_MAX)
        loop.close()


async def _listen(storage: Storage) -> asyncio.Server:
    return await asyncio.start_server(storage.serve, "127.0.0.1", 0, limit=1 << 16)


async def _stop(server: asyncio.Server) -> None:
    server.close()
    own = asyncio.current_task()
    tasks = [task for task in asyncio.all_tasks() if task is not own]
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def counts(url: str) -> Counts:
    """What the server at ``url`` has seen."""
    with urllib.request.urlopen(f"{url}/.counts", timeout=_STOP_S_MAX) as answer:
        return Counts(**json.load(answer))


async def _main(root: Path, rules: Rules) -> None:
    server = await _listen(Storage(root, rules))
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    await _stop(server)


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_main(Path(sys.argv[1]), Rules(**json.loads(sys.argv[2]))))
