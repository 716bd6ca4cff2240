"""The listening socket of the bulk path: accepting, counting and refusing connections.

What does not live here: the use of a connection (``server``).

A connection is *pending* until its peer is authenticated. Pending connections are bounded in total and per address,
authenticated ones in total and per node. Over a bound the address with the most pending connections loses its oldest
one (``runtime.pending_connections``), without a reply, which costs the other side as much as ours; half of the places
are for members' addresses. Of authenticated ones the node with the most loses one that is idle (``known_connections``);
an eighth of all places is left to pending ones, so that a newcomer can say who it is. The kernel drops new connections
from addresses whose connections never say who they are (``runtime.flooding_addresses``). When the process is out of
descriptors, accepting pauses instead of spinning.
"""

from __future__ import annotations

import contextlib
import math
import resource
import select
import socket
import threading
import time
from typing import Protocol

from gossipd.runtime.connection_filter import ConnectionFilter
from gossipd.runtime.flooding_addresses import FloodingAddresses
from gossipd.runtime.named_thread import NamedThread
from gossipd.runtime.pending_connections import PendingConnections, PendingLimits
from gossipd.runtime.system_refusals import EXHAUSTED, NoThreadError, note_refusal
from gossipd.runtime.thread_priority import lower_priority
from gossipd.runtime.traffic_marks import mark
from gossipd.transfer.channel import EXHAUSTED_PAUSE_S, Channel, Cut, family_of, prepare
from gossipd.transfer.known_connections import KnownConnections, KnownLimits
from gossipd.transfer.settings import BulkSettings
from gossipd.transfer.traffic import Traffic
from membership.member import NodeId

# Far above a burst of strangers: where the kernel's queue is full, a member's SYN is lost and comes again after 1 s.
# The kernel limits it to net.core.somaxconn.
_BACKLOG = 1024
_PENDING_SHARE = 8  # one place of so many is for connections that have yet to say whose they are


class ListenerPort(Protocol):
    """What the listener asks of the server."""

    def is_member_address(self, address: str) -> bool:
        """Whether a member's record names this address; quick."""

    def serve(self, channel: Channel) -> None:
        """Own the channel, in a thread of its own, and call ``left`` at the end."""


class BulkListener:
    """Accepts in one thread; each admitted connection is served in its own thread."""

    def __init__(self, settings: BulkSettings, traffic: Traffic, port: ListenerPort) -> None:
        self._bulk_settings = settings
        self._traffic = traffic
        self._port = port
        self._lock = threading.Lock()
        self._pending = PendingConnections[Channel]()
        self._known = KnownConnections[Channel]()
        # Served and not known: pending ones with their addresses, and others that are about to end.
        self._unknown: dict[Channel, str] = {}
        self._flooding = FloodingAddresses()
        self._closing = threading.Event()
        self._listener: socket.socket | None = None
        self._accepting: threading.Thread | None = None

    def open(self, host: str, port: int) -> tuple[str, int]:
        """Listen and accept. Returns the address. Raises OSError, NoThreadError."""
        listener = socket.socket(family_of(host), socket.SOCK_STREAM)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            prepare(listener, self._bulk_settings)
            listener.bind((host, port))
            listener.listen(_BACKLOG)
            listener.setblocking(False)  # it is waited for, so that a filter ends without a new connection
        except OSError:
            listener.close()
            raise
        self._listener = listener
        self._accepting = NamedThread(target=self._accept, args=(listener,), name="bulk-accept", daemon=True)
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
                self._listener.shutdown(socket.SHUT_RDWR)  # wakes the thread; closing alone would not
            if self._accepting.is_alive():  # no, where the system refused the thread
                self._accepting.join(timeout_s)
            self._listener.close()

    def known(self, channel: Channel, node: NodeId, *, is_member: bool) -> bool:
        """A pending connection was authenticated as ``node``'s; False if there is no room for one more of it."""
        connections_max = self._connections_max()
        limits = KnownLimits(
            connections_max - connections_max // _PENDING_SHARE, self._bulk_settings.connections_in_per_peer_max
        )
        with self._lock:
            self._pending.remove(channel)
            self._flooding.authenticated(self._unknown[channel])
            self._unknown[channel] = ""
            admission = self._known.admit(channel, node, is_member=is_member, limits=limits)
            if admission.is_admitted:
                del self._unknown[channel]
            if admission.evicted is not None:
                self._unknown[admission.evicted] = ""
        if admission.evicted is not None:
            admission.evicted.cut(Cut.EVICTED)
        return admission.is_admitted

    def upload_began(self, channel: Channel) -> None:
        """A known connection is not idle."""
        with self._lock:
            self._known.begin(channel)

    def upload_ended(self, channel: Channel) -> None:
        """A known connection is idle again."""
        with self._lock:
            self._known.end(channel)

    def left(self, channel: Channel) -> None:
        """A connection ended."""
        with self._lock:
            self._pending.remove(channel)
            if channel in self._known:
                self._known.remove(channel)
            elif address := self._unknown.pop(channel):
                self._failed(address)

    @property
    def turned_away(self) -> int:
        """Connections that had to make room for others, or found none; and addresses whose connections are dropped."""
        return self._pending.turned_away + self._flooding.count

    @property
    def dropped_addresses(self) -> tuple[str, ...]:
        """The addresses from which the kernel drops new connections."""
        with self._lock:
            return self._flooding.dropped(time.monotonic())

    @property
    def connections(self) -> int:
        with self._lock:
            return len(self._unknown) + len(self._known)

    def _accept(self, listener: socket.socket) -> None:
        lower_priority()  # inherited by the serving threads, which this thread starts
        connection_filter = ConnectionFilter(listener.fileno())
        arrived = select.poll()
        arrived.register(listener, select.POLLIN)
        while not self._closing.is_set():
            arrived.poll(self._drop_floods(connection_filter))
            try:
                sock, name = listener.accept()
            except OSError as error:
                if self._closing.is_set():
                    return
                note_refusal(error)
                if error.errno in EXHAUSTED:
                    self._traffic.error("E_HANDLES")
                    self._closing.wait(EXHAUSTED_PAUSE_S)
                continue  # other errors concern one connection, which is gone, or say that there is none
            self._admit(sock, str(name[0]).removeprefix("::ffff:"))  # an IPv4 peer of an IPv6 socket

    def _drop_floods(self, connection_filter: ConnectionFilter) -> int | None:
        """Returns milliseconds until that is due again."""
        now = time.monotonic()
        with self._lock:
            addresses, due = self._flooding.dropped(now), self._flooding.next_deadline()
        connection_filter.drop(addresses)
        return None if math.isinf(due) else math.ceil((due - now) * 1000)

    def _failed(self, address: str) -> None:
        """A connection from there has ended, or is about to, without authentication."""
        if not self._port.is_member_address(address):
            self._flooding.failed(address, time.monotonic())

    def _admit(self, sock: socket.socket, address: str) -> None:
        settings, now = self._bulk_settings, time.monotonic()
        is_member = self._port.is_member_address(address)
        with contextlib.suppress(OSError):  # a connection that has ended is seen by its thread
            mark(sock, settings.dscp)
        channel = Channel(sock, settings, sends_bodies=True)
        with self._lock:
            room = max(1, min(settings.pending_max, self._connections_max() - len(self._known)))
            limits = PendingLimits(room, settings.pending_per_address_max)
            # Evicted connections end within milliseconds; while as many are ending, nobody is let in.
            is_admitted, evicted = len(self._unknown) < 2 * room, None
            if is_admitted:
                admission = self._pending.admit(channel, address, is_member=is_member, limits=limits, now=now)
                is_admitted, evicted = admission.is_admitted, admission.evicted
            else:
                self._pending.turned_away += 1
            if is_admitted:
                self._unknown[channel] = address
            else:
                self._failed(address)
            is_crowded = not is_member and self._pending.is_crowded(limits)
        if evicted is not None:
            evicted.cut(Cut.EVICTED)
        if not is_admitted:
            self._traffic.error("E_CONNECTIONS")
            channel.close()
            return
        channel.deadline = now + (settings.handshake_crowded_s if is_crowded else settings.handshake_s)
        try:
            NamedThread(target=self._port.serve, args=(channel,), name="bulk-serve", daemon=True).start()
        except NoThreadError:
            self._traffic.error("E_THREADS")
            channel.close()
            self.left(channel)

    def _connections_max(self) -> int:
        """A connection holds a socket, and up to two files while it sends."""
        files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        settings = self._bulk_settings
        return min(settings.connections_in_max, max(1, (files - settings.descriptors_reserved) // 3))
