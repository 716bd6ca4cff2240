"""What a socket's monitor tells: zmq_socket_monitor(3), version 1.

What lives here: parsing. What does not: who watches, and what follows. pyzmq's own function comes with its asyncio.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

import zmq

_HEAD = struct.Struct("=Hi")


class MonitorReport(NamedTuple):
    """``value``: a descriptor, an errno or a protocol error, as the event has it. ``endpoint``: the local address."""

    event: zmq.Event
    value: int
    endpoint: str


def monitor_report(frames: list[bytes]) -> MonitorReport:
    """Of a message received from a monitor socket of libzmq in this process."""
    head, endpoint = frames
    event, value = _HEAD.unpack(head)
    return MonitorReport(zmq.Event(event), value, endpoint.decode("ascii", "replace"))
