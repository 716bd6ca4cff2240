"""How many bytes a control message is on the wire: whole frames, and the frame that acknowledges each.

An Ethernet header (14), IPv4 (20), TCP with time stamps (32). In it a ZMTP frame (flags and length, 2) with a CURVE
message (command name 8, nonce 8, authenticator 16, flags 1; RFC 26/CurveZMQ), and in that one frame of the control
plane's own codec (``wire.control_frame``): version, array header and kind (3), the stream's running number (up to 3),
the fields in msgpack. A delta of one chunk was seen as 114 bytes on a loopback, 13 of them codec, as here.

Between two hosts news go one way per connection, so nothing carries their acknowledgement along: on that loopback each
delta was answered by an empty segment (66), 15, 30, 100 or 200 ms apart. The receiver sends it.

Not counted: the handshake when a link is made (some 1.5 KB), tokens for bulk connections in clear, what is sent again.
"""

from __future__ import annotations

from gossipd.core.chunkset import ChunkSet
from gossipd.core.events import SendDelta

_ETHERNET, _IP, _TCP, _UDP = 14, 20, 32, 8
_SEGMENT = _ETHERNET + _IP + _TCP
_SEGMENT_BYTES_MAX = 1500 - _IP - _TCP
_ZMTP = 2 + 8 + 8 + 16 + 1
_HEAD = 3 + 3
_DEPLOYMENT = 2 + 32
_STREAM = 3  # a number of 16 bits that the sender has drawn
_SLOTS = 1

ACKNOWLEDGEMENT_BYTES = _SEGMENT
"""What the receiver of a control message sends."""


def datagram_bytes(sealed_bytes: int) -> int:
    """One sealed datagram of membership."""
    return _ETHERNET + _IP + _UDP + sealed_bytes


def _message_bytes(fields: int) -> int:
    size = _ZMTP + _HEAD + fields
    return size + _SEGMENT * -(-size // _SEGMENT_BYTES_MAX)


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
    return _message_bytes(_STREAM + lists + _SLOTS)


def holdings_bytes(chunks: ChunkSet) -> int:
    """An answer to a subscription; behind the slots stand two empty fields."""
    held = len(chunks.to_wire())
    count = 1 if chunks.size < 128 else 2 if chunks.size < 256 else 3 if chunks.size < 65_536 else 5
    return _message_bytes(_DEPLOYMENT + _STREAM + count + (2 if held < 256 else 3) + held + _SLOTS + 2)


def request_bytes() -> int:
    """A subscription, or its end."""
    return _message_bytes(_DEPLOYMENT)
