"""How many bytes a control message is on the wire, headers included.

From the control plane's own codec: a frame of 4 bytes, the msgpack array, a CURVE message (33 bytes of box and
command head), 54 bytes of Ethernet-less IP and TCP with time stamps (52) and ZMTP (2).
"""

from __future__ import annotations

from gossipd.core.chunkset import ChunkSet
from gossipd.core.events import SendDelta

_HEADERS = 4 + 33 + 54
_DEPLOYMENT = 34


def datagram_bytes(sealed_bytes: int) -> int:
    """One sealed datagram of membership, on Ethernet."""
    return 14 + 20 + 8 + sealed_bytes


def _gap_bytes(chunks: tuple[int, ...]) -> int:
    total, before = 1 if len(chunks) < 16 else 3, 0
    for chunk in chunks:
        gap = abs(chunk - before)
        total += 1 if gap < 128 else 2 if gap < 256 else 3 if gap < 65_536 else 5
        before = chunk
    return total


def delta_bytes(command: SendDelta) -> int:
    """One delta to one peer."""
    lists = _gap_bytes(command.added) + _gap_bytes(command.dropped) + _gap_bytes(command.reading)
    return _HEADERS + 8 + lists


def holdings_bytes(chunks: ChunkSet) -> int:
    """An answer to a subscription."""
    return _HEADERS + 12 + _DEPLOYMENT + len(chunks.to_wire())


def request_bytes() -> int:
    """A subscription, or its end."""
    return _HEADERS + 4 + _DEPLOYMENT
