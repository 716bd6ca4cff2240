"""The listening socket of the bulk path: accepting, counting and refusing connections.

What does not live here: the use of a connection (``server``).

A connection is *pending* until its peer is authenticated. Pending connections are bounded in total and per address,
authenticated ones in total and per node. Connections over a bound are closed without a reply, which costs the other
side as much as ours. When the process is out of descriptors, accepting pauses instead of spinning.
"""

from __future__ import annotations

import contextlib
import resource
import socket
import threading
from collections import Counter
from collections.abc import Callable

from gossipd.runtime.thread_priority import lower_priority
from gossipd.transfer.channel import EXHAUSTED, EXHAUSTED_PAUSE_S, family_of, prepare
from gossipd.transfer.settings import BulkSettings
from gossipd.transfer.traffic import Traffic
from membership.member import NodeId

# As many as may be pending; the kernel limits it to net.core.somaxconn.
_BACKLOG = 128


class BulkListener:
    """Accepts in one thread. ``serve`` owns each admitted socket, in its own thread, and calls ``left`` at the end."""

    def __init__(self, settings: BulkSettings, traffic: Traffic, serve: Callable[[socket.socket, str], None]) -> None:
        self._settings = settings
        self._traffic = traffic
        self._serve = serve
        self._lock = threading.Lock()
        self._pending: Counter[str] = Counter()
        self._known: Counter[NodeId] = Counter()
        self._closing = threading.Event()
        self._listener: socket.socket | None = None
        self._accepting: threading.Thread | None = None

    def open(self, host: str, port: int) -> tuple[str, int]:
        """Listen and accept. Returns the address. Raises OSError."""
        listener = socket.socket(family_of(host), socket.SOCK_STREAM)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            prepare(listener, self._settings)
            listener.bind((host, port))
            listener.listen(_BACKLOG)
        except OSError:
            listener.close()
            raise
        self._listener = listener
        self._accepting = threading.Thread(target=self._accept, name="bulk-accept", daemon=True)
        self._accepting.start()
        name = listener.getsockname()
        return str(name[0]), int(name[1])

    def close(self, timeout_s: float) -> None:
        """Stop accepting; admitted connections are not touched."""
        if self._closing.is_set():
            return
        self._closing.set()
        if self._listener is not None and self._accepting is not None:
            with contextlib.suppress(OSError):
                self._listener.shutdown(socket.SHUT_RDWR)  # wakes accept; closing alone would not
            self._accepting.join(timeout_s)
            self._listener.close()

    def known(self, address: str, node: NodeId) -> bool:
        """A pending connection was authenticated as ``node``'s; False if that node has too many."""
        with self._lock:
            self._no_longer_pending(address)
            self._known[node] += 1
            return self._known[node] <= self._settings.connections_in_per_peer_max

    def left(self, address: str, node: NodeId | None) -> None:
        """A connection ended; ``node`` is None if it was still pending."""
        with self._lock:
            if node is None:
                self._no_longer_pending(address)
            else:
                self._known[node] -= 1
                if not self._known[node]:
                    del self._known[node]

    @property
    def connections(self) -> int:
        with self._lock:
            return self._pending.total() + self._known.total()

    def _accept(self) -> None:
        assert self._listener is not None
        lower_priority()  # inherited by the serving threads, which this thread starts
        while not self._closing.is_set():
            try:
                sock, name = self._listener.accept()
            except OSError as error:
                if self._closing.is_set():
                    return
                if error.errno in EXHAUSTED:
                    self._traffic.error("E_HANDLES")
                    self._closing.wait(EXHAUSTED_PAUSE_S)
                continue  # other errors concern one connection, which is gone
            self._admit(sock, str(name[0]))

    def _admit(self, sock: socket.socket, address: str) -> None:
        with self._lock:
            pending = self._pending.total()
            is_full = (
                pending + self._known.total() >= self._connections_max()
                or pending >= self._settings.pending_max
                or self._pending[address] >= self._settings.pending_per_address_max
            )
            if not is_full:
                self._pending[address] += 1
        if is_full:
            self._traffic.error("E_CONNECTIONS")
            sock.close()
            return
        try:
            threading.Thread(target=self._serve, args=(sock, address), name="bulk-serve", daemon=True).start()
        except RuntimeError:  # the system's limit on threads
            self._traffic.error("E_THREADS")
            sock.close()
            self.left(address, None)

    def _connections_max(self) -> int:
        """A connection holds a socket, and up to two files while it sends."""
        files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        return min(self._settings.connections_in_max, max(1, (files - self._settings.descriptors_reserved) // 3))

    def _no_longer_pending(self, address: str) -> None:
        self._pending[address] -= 1
        if not self._pending[address]:
            del self._pending[address]
