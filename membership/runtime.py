"""Runs one brain under trio: a UDP socket, a clock, two tasks. With ``socket_filter``, the only file that does I/O.

The tasks share the brain without a lock, because neither awaits while it holds it: one receives, the other sleeps until
the next deadline or ``wake``. After every wake-up all waiting datagrams are handed over before any timer runs: a host
that was stopped must find the answers that were waiting, not the silence. They are handed over in batches, between
which other tasks have their turn. Sending never blocks; a full socket buffer loses the datagram.

A program that turns in a rhythm of its own may drive this too (``catch_up``), and say so as an ``Attendant``: then the
two tasks do not wake up for each datagram and each deadline, which costs more than the work itself. Only while more
waits than a batch the first task reads, too: a batch in each turn would leave the rest of a flood in the socket, where
answers to probes grow old.
"""

from __future__ import annotations

import errno
import math
import socket
from collections.abc import Callable
from ipaddress import ip_address
from typing import Protocol

import trio

from membership.events import Event, SendDatagram
from membership.seal import DATAGRAM_BYTES_MAX, VERSION
from membership.socket_filter import SocketFilter
from membership.swim import Swim
from membership.unsealed_rate import UnsealedRate

# A second of the worst join storm (2,000 datagrams) fits; Linux grants up to net.core.rmem_max.
RECEIVE_BUFFER_BYTES = 4 * 1024 * 1024
_HOSTS_MAX = 65536
_BATCH = 512  # datagrams handled before other tasks get a turn
_BATCH_S = 0.005  # likewise: one that brings six signed words costs a hundred times one that brings none
_TIMERS_WAIT_S = 0.2  # for what is still in the socket; more would make a host that is flooded fail to probe


def open_udp_socket(host: str, port: int) -> socket.socket:
    """A bound, non-blocking UDP socket with a large receive buffer; ``host`` is numeric. Raises OSError."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    udp = socket.socket(family, socket.SOCK_DGRAM)
    try:
        udp.setblocking(False)
        udp.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER_BYTES)
        udp.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, RECEIVE_BUFFER_BYTES // 4)
        udp.bind((host, port))
    except OSError:
        udp.close()
        raise
    return udp


class Attendant(Protocol):
    """Calls ``catch_up`` some dozen times a second, at times."""

    def awake(self) -> trio.Event | None:
        """What ends the present such time; None when there is none."""


class SwimRuntime:
    """Runs one ``Swim`` on one socket."""

    def __init__(
        self, swim: Swim, udp_socket: socket.socket, *, on_event: Callable[[Event], None],
        attendant: Attendant | None = None,
    ) -> None:  # fmt: skip
        """``swim`` was given trio's clock. ``on_event``: called at once; must not block."""
        self._swim = swim
        self._socket = udp_socket
        self._on_event = on_event
        self._attendant = attendant
        self._rest = trio.CancelScope()  # in which the timer's task sleeps
        self._attended = trio.CancelScope()  # in which the receiver's task leaves the socket to the attendant
        self._numeric: set[str] = set()
        self._unsealed = UnsealedRate()
        self._due_s = -math.inf  # the brain's deadline after it was called last
        self._heard_s = -math.inf  # when the last datagram came: the brain's time does not go back
        self._has_heard = False  # one came since ``catch_up`` began
        self._behind_s = math.inf  # since when the socket is not empty after a batch
        self._filter = SocketFilter(udp_socket)
        self.send_errors = 0

    def wake(self) -> None:
        """After any direct call of the brain: send what it queued, deliver its events, reconsider the deadline."""
        self.flush()
        self._reconsider()

    async def run(self, *, task_status: trio.TaskStatus[SwimRuntime] = trio.TASK_STATUS_IGNORED) -> None:
        """Run until cancelled; ``nursery.start`` gives this object, whose ``wake`` follows direct calls of the
        brain."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._receive)
            nursery.start_soon(self._keep_time)
            self.flush()
            task_status.started(self)

    async def _receive(self) -> None:
        while True:
            if self._behind_s == math.inf:
                with trio.CancelScope() as self._attended:
                    await self._wait_while_attended()
            try:
                await trio.lowlevel.wait_readable(self._socket)
            except OSError:
                return
            self._drain_socket(trio.current_time())
            self.flush()
            self._reconsider()

    async def _wait_while_attended(self) -> None:
        ended = None if self._attendant is None else self._attendant.awake()
        if ended is not None:
            await ended.wait()

    def _reconsider(self) -> None:
        # Another end of the rest wakes nobody now; an answered probe puts it off.
        self._due_s = self._rest.deadline = self._swim.next_deadline()

    async def _keep_time(self) -> None:
        while True:
            await self._wait_while_attended()
            with trio.CancelScope(deadline=self._swim.next_deadline()) as self._rest:
                await trio.sleep_forever()
            self.catch_up(trio.current_time())

    def catch_up(self, now: float) -> None:
        """Handle what waits in the socket, and only when that was all, or has been too much for some time, the timers
        that are due."""
        self._has_heard = False
        is_empty = self._drain_socket(now)
        if is_empty and not self._has_heard and now < self._due_s:
            return  # nothing has come and nothing is due, as in most of an attendant's turns
        if not is_empty:
            self._attended.cancel()
        if is_empty or now - self._behind_s >= _TIMERS_WAIT_S:
            self._swim.handle_timer(max(now, self._heard_s))
        self.flush()
        self._reconsider()

    def _drain_socket(self, now: float) -> bool:
        """One batch; whether nothing is left."""
        is_empty = self._take_batch(now)
        self._behind_s = math.inf if is_empty else min(self._behind_s, now)
        if self._unsealed.is_flood(self._swim.unsealed, now):
            self._filter.admit(VERSION, self._swim.key_tags)
        elif dropped := self._filter.admit_all():
            self._swim.count_filtered(dropped)
        return is_empty

    def _take_batch(self, begun_s: float) -> bool:
        for _ in range(_BATCH):
            try:
                datagram, sender = self._socket.recvfrom(DATAGRAM_BYTES_MAX + 1)
            except BlockingIOError:
                return True
            except OSError:
                self.send_errors += 1  # an ICMP error of a datagram sent earlier
                continue
            now = self._heard_s = trio.current_time()
            self._has_heard = True
            self._swim.handle_datagram(datagram, (sender[0], sender[1]), now)
            if now - begun_s >= _BATCH_S:
                break
        return False

    def flush(self) -> None:
        """Send and deliver what the brain has queued."""
        for output in self._swim.drain():
            if isinstance(output, SendDatagram):
                self._send(output)
            else:
                self._on_event(output)

    def _send(self, output: SendDatagram) -> None:
        host = output.address[0]
        if host not in self._numeric and not self._is_numeric(host):
            self.send_errors += 1
            return
        try:
            self._socket.sendto(output.datagram, output.address)
        except OSError as error:
            # Unreachable, buffer full, interface down: the network's fault, which the brain judges.
            self.send_errors += 1
            if error.errno in (errno.EBADF, errno.EMSGSIZE):
                raise

    def _is_numeric(self, host: str) -> bool:
        # A name would be looked up inside sendto, which blocks for seconds: a node that advertises one is not reached.
        try:
            ip_address(host)
        except ValueError:
            return False
        if len(self._numeric) >= _HOSTS_MAX:
            self._numeric.clear()
        self._numeric.add(host)
        return True
