"""A stranger in a process of its own: ``python -m tests.attacks.stranger TCP_PORTS UDP_PORTS``, ports with commas.

It keeps 2,000 connections to each TCP port, of which every other one says nothing and the rest a byte now and then of
what a member would say, and makes those again that are closed; and it sends 20,000 datagrams of noise a second to the
UDP ports. A TCP port that is a UDP port too speaks ZMTP, the others TLS. It runs until it is ended, at the lowest
priority, and then prints what it did as one line of JSON. What does not live here: what that costs (``flood``).
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import select
import signal
import socket
import sys
import time
from collections import deque

CONNECTIONS = 2_000  # to each port
DATAGRAMS_PER_S = 20_000
_TURN_S = 0.01
_DIALS_PER_TURN = 100
_ADDRESSES = 64  # of the loopback network: one address has too few ports, and is one address
_NOISE = bytes(range(200))
_DRIP_S = 4.0  # from a byte to the next
_ZMTP = b"\xff\0\0\0\0\0\0\0\x01\x7f\x03\x01CURVE".ljust(64, b"\0")
_TLS = b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03".ljust(64, b"\x07")


class Stranger:
    """All sockets of the flood."""

    def __init__(self, tcp_ports: list[int], udp_ports: list[int]) -> None:
        self._poll = select.epoll()
        self._socks: dict[int, tuple[socket.socket, int]] = {}
        self._missing = [port for port in tcp_ports for _ in range(CONNECTIONS)]
        self._udp = [self._to(port) for port in udp_ports]
        self._openings = {port: _ZMTP if port in udp_ports else _TLS for port in tcp_ports}
        self._drips: deque[tuple[float, socket.socket, int]] = deque()  # when, whose, and how many bytes it has said
        self._due = 0
        self.counts = {"connects": 0, "closed": 0, "bytes": 0, "datagrams": 0, "most_open": 0}

    def _to(self, port: int) -> socket.socket:
        sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        sock.setblocking(False)
        sock.connect(("127.0.0.1", port))
        return sock

    def run(self) -> None:
        """Until the process is told to end."""
        began_s = time.monotonic()
        while True:
            self._dial()
            self._drip(time.monotonic())
            self._send(int((time.monotonic() - began_s) * DATAGRAMS_PER_S) - self._due)
            for descriptor, _ in self._poll.poll(_TURN_S, maxevents=256):
                self._drop(descriptor)
            self.counts["most_open"] = max(self.counts["most_open"], len(self._socks))

    def _dial(self) -> None:
        for _ in range(min(_DIALS_PER_TURN, len(self._missing))):
            port = self._missing.pop()
            sock = socket.socket()
            sock.setblocking(False)
            number = self.counts["connects"]
            self.counts["connects"] += 1
            try:
                sock.bind((f"127.0.1.{number % _ADDRESSES + 1}", 0))
                sock.connect(("127.0.0.1", port))
            except BlockingIOError:
                pass
            except OSError:
                sock.close()
                self._missing.insert(0, port)
                continue
            self._socks[sock.fileno()] = sock, port
            self._poll.register(sock, select.EPOLLIN | select.EPOLLHUP | select.EPOLLRDHUP)
            if number % 2:
                self._drips.append((time.monotonic(), sock, 0))

    def _drip(self, now: float) -> None:
        while self._drips and self._drips[0][0] <= now:
            _, sock, said = self._drips.popleft()
            if sock.fileno() not in self._socks:
                continue  # it was closed
            opening = self._openings[self._socks[sock.fileno()][1]]
            with contextlib.suppress(OSError):  # not connected yet
                count = sock.send(opening[said : said + 1])
                said += count
                self.counts["bytes"] += count
            self._drips.append((now + _DRIP_S, sock, said))

    def _drop(self, descriptor: int) -> None:
        sock, port = self._socks[descriptor]
        try:
            if sock.recv(4096):  # a greeting, which is left without an answer
                return
        except BlockingIOError:
            return
        except OSError:
            pass  # reset: it is closed as well
        self._poll.unregister(descriptor)
        del self._socks[descriptor]
        sock.close()
        self.counts["closed"] += 1
        self._missing.insert(0, port)

    def _send(self, count: int) -> None:
        """So many are due; of those that are far behind some are given up, and not counted."""
        self._due += max(0, count)
        for number in range(min(count, DATAGRAMS_PER_S // 10)):
            with contextlib.suppress(OSError):  # its buffer is full
                self._udp[number % len(self._udp)].send(_NOISE)
                self.counts["datagrams"] += 1


def main() -> None:
    os.nice(19)
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    tcp, udp = ([int(one) for one in word.split(",")] for word in sys.argv[1:3])
    stranger = Stranger(tcp, udp)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    began_s = time.monotonic()
    try:
        stranger.run()
    finally:
        took_s = {"seconds": round(time.monotonic() - began_s, 1), "cpu_s": round(time.process_time(), 1)}
        print(json.dumps(stranger.counts | took_s), flush=True)


if __name__ == "__main__":
    main()
