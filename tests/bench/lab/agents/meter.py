"""How many bytes came in at ports of the switches that were to or from one number of TCP or UDP.

``meter NUMBER INTERFACE...``: in the switches' namespace, where a port receives what its host has sent. It answers
each ``go`` with one JSON object, interface to bytes since the first: whole frames as they crossed the wire, so headers,
acknowledgements, handshakes and what was sent again count.

The kernel picks the packets by a filter on a packet socket of each port, so that bulk bytes cost nothing here. tc's
own filters would count without a process, but not every kernel has them.
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import socket
import struct
import sys
from collections.abc import Iterable, Sequence

LOOK_S = 0.5
_ETH_P_IP = 0x0800
_ETH_P_ALL = 0x0003  # a bridge takes packets before those who ask for one protocol see them
_SO_ATTACH_FILTER = 26  # include/uapi/asm-generic/socket.h; Python 3.11 does not name it
_SOL_PACKET, _PACKET_STATISTICS, _PACKET_IGNORE_OUTGOING = 263, 6, 23  # include/uapi/linux/if_packet.h
_SO_RCVBUFFORCE = 33
_BUFFER_BYTES = 16 * 1024 * 1024  # some 20,000 packets; in half a second come some hundred
_SNAP = 0x40000

# include/uapi/linux/bpf_common.h: load half a word or a byte, load X with the length of the IP header, jump, return.
_LDH, _LDB, _LDH_X, _LDX_IP, _JEQ, _RET = 0x28, 0x30, 0x48, 0xB1, 0x15, 0x06


def filter_of(number: int) -> Sequence[tuple[int, int, int, int]]:
    """IPv4, TCP or UDP, one of whose ports is ``number``; not for fragments, which this lab does not make."""
    return (
        (_LDH, 0, 0, 12),
        (_JEQ, 0, 8, _ETH_P_IP),
        (_LDB, 0, 0, 23),
        (_JEQ, 1, 0, socket.IPPROTO_TCP),
        (_JEQ, 0, 5, socket.IPPROTO_UDP),
        (_LDX_IP, 0, 0, 14),
        (_LDH_X, 0, 0, 14),
        (_JEQ, 3, 0, number),
        (_LDH_X, 0, 0, 16),
        (_JEQ, 1, 0, number),
        (_RET, 0, 0, 0),
        (_RET, 0, 0, _SNAP),
    )


def watch(interface: str, number: int) -> socket.socket:
    """A packet socket that gets what comes in there."""
    packets = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)  # protocol 0: nothing before it is bound
    steps = filter_of(number)
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
    packets.setsockopt(
        socket.SOL_SOCKET, _SO_ATTACH_FILTER, struct.pack("HxxxxxxP", len(steps), ctypes.addressof(code))
    )
    packets.setsockopt(_SOL_PACKET, _PACKET_IGNORE_OUTGOING, 1)
    packets.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _BUFFER_BYTES)
    packets.setblocking(False)
    packets.bind((interface, _ETH_P_ALL))
    return packets


def drain(packets: socket.socket) -> int:
    """Bytes of the packets that wait there."""
    count = 0
    scratch = bytearray(1)
    while True:
        try:
            count += packets.recv_into(scratch, 1, socket.MSG_TRUNC)  # the packet's length, not what was copied
        except BlockingIOError:
            return count


def lost(sockets: Iterable[socket.socket]) -> int:
    """Packets that found no room, which would make the figure too small."""
    return sum(struct.unpack("II", each.getsockopt(_SOL_PACKET, _PACKET_STATISTICS, 8))[1] for each in sockets)


def main(number: str, *interfaces: str) -> None:
    """Until stdin closes."""
    sockets = {name: watch(name, int(number)) for name in interfaces}
    print("ready", flush=True)
    totals: dict[str, int] | None = None
    while True:
        is_asked = bool(select.select([0], [], [], LOOK_S)[0])
        arrived = {name: drain(each) for name, each in sockets.items()}
        if totals is not None:
            totals = {name: count + arrived[name] for name, count in totals.items()}
        if is_asked:
            words = os.read(0, 4096).count(b"\n")  # not sys.stdin, whose buffer select does not see
            if not words:
                return
            totals = totals or dict.fromkeys(sockets, 0)
            for _ in range(words):
                print(json.dumps({"bytes": totals, "lost": lost(sockets.values())}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
