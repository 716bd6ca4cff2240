"""Lines to a stream whose reader may be slow, stopped or gone: nobody who writes waits for it.

What lives here: writing as much as the stream takes now, and keeping or counting the rest. What does not: the form of
lines (``logs``).

A pipe that nobody reads is full after 64 KiB, and the next write would stop the event loop, with the logging lock held,
so that not even a signal ends the daemon. So a line is written in pieces of what the kernel promises to take at once;
what is left waits for the next line or ``flush``, and past a bound whole lines are lost and counted. Rejected: a thread
that writes, which each host would have for the sake of a reader that stands still; a descriptor that does not block,
because it is shared with the programs that the daemon starts.
"""

from __future__ import annotations

import select
import time
from collections import deque
from os import write
from select import PIPE_BUF
from threading import RLock
from typing import TextIO

WAITING_BYTES_MAX = 256 * 1024


class LineStream:
    """Owns no descriptor; ``stream`` is never closed here. Thread-safe."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._lock = RLock()
        self._waiting: deque[bytes] = deque()
        self._waiting_bytes = 0
        self._lost = 0

    def write(self, line: str) -> None:
        """Write the line, or keep it until the reader goes on. A stream that is closed or refuses it loses it."""
        try:
            descriptor = self._stream.fileno()
        except (OSError, ValueError):
            self._write_plainly(line)
            return
        data = f"{line}\n".encode(self._stream.encoding or "utf-8", "backslashreplace")
        with self._lock:
            if self._waiting_bytes + len(data) > WAITING_BYTES_MAX:
                self._lost += 1
            else:
                self._waiting.append(data)
                self._waiting_bytes += len(data)
            self._write_waiting(descriptor)

    def flush(self, wait_s: float = 0.0) -> None:
        """Write what waits, as far as the stream takes it now; a reader that goes on is waited for so long."""
        with self._lock:
            if self._waiting:
                try:
                    self._write_waiting(self._stream.fileno(), time.monotonic() + wait_s)
                except (OSError, ValueError):
                    self._drop()

    def take_lost(self) -> int:
        """How many lines were lost since the last answer; 0 while others still wait."""
        with self._lock:
            if self._waiting:
                return 0
            lost, self._lost = self._lost, 0
            return lost

    def _write_plainly(self, line: str) -> None:
        try:
            self._stream.write(f"{line}\n")
            self._stream.flush()
        except (OSError, ValueError):
            return

    def _write_waiting(self, descriptor: int, until_s: float = 0.0) -> None:
        ready = select.poll()
        ready.register(descriptor, select.POLLOUT)
        try:
            while self._waiting and ready.poll(max(0.0, 1000 * (until_s - time.monotonic()))):
                data = self._waiting.popleft()
                count = write(descriptor, data[:PIPE_BUF])  # as much as a pipe that is ready takes without waiting
                self._waiting_bytes -= count
                if count < len(data):
                    self._waiting.appendleft(data[count:])
        except OSError:
            self._drop()

    def _drop(self) -> None:
        self._waiting.clear()
        self._waiting_bytes = 0
