"""The DSCP marks of packets as they go over loopback, read from their IP headers. Needs root, as raw sockets do."""

from __future__ import annotations

import contextlib
import select
import socket
import time
from collections.abc import Callable, Iterator

WAIT_S = 120.0  # for a packet that has been sent already
_DATA_BYTES_MIN = 8


@contextlib.contextmanager
def marks_of(*, receiver: str = "", sender: str = "") -> Iterator[Callable[[int], int]]:
    """Of TCP packets with data to, or from, an address of loopback that nobody else uses. Gives a function: waits for
    one whose source or destination port is this, and returns its mark.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_TCP) as raw:
        if receiver:
            raw.bind((receiver, 0))
        if sender:
            raw.connect((sender, 0))
        yield lambda port: _mark(raw, port)


def _mark(raw: socket.socket, port: int) -> int:
    deadline = time.monotonic() + WAIT_S
    while (left_s := deadline - time.monotonic()) > 0:
        if not select.select([raw], [], [], left_s)[0]:
            break
        packet = raw.recv(65536)
        head = (packet[0] & 0x0F) * 4
        ports = {int.from_bytes(packet[head : head + 2], "big"), int.from_bytes(packet[head + 2 : head + 4], "big")}
        data = len(packet) - head - (packet[head + 12] >> 4) * 4
        if port in ports and data >= _DATA_BYTES_MIN:
            return packet[1] >> 2
    raise AssertionError(f"no packet of port {port} was seen")
