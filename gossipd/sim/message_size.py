"""How many bytes a control message is on the wire: whole frames, and the frame that acknowledges each.

What lives here: sizes. What does not: the number of messages (``control_sent``). A message is an Ethernet header (14),
IPv4 (20), TCP with time stamps (32), a ZMTP frame (flags and length, 2), a CURVE message (command name 8, nonce 8,
authenticator 16, flags 1; RFC 26/CurveZMQ), and a frame of the control plane (``wire.control_frame``): version, array
header and kind (3), the stream's number (up to 3), the fields in msgpack. Deltas go one way per connection, so no
message carries their acknowledgement along: the receiver sends an empty segment (66) for each, as seen on a loopback.

Not counted: handshakes, tokens for bulk connections in clear, and what is sent a second time.
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
_STREAM = 3  # a number of 16 bits, chosen by the sender
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
    """An answer to a subscription; two empty fields stand behind the slots."""
    held = len(chunks.to_wire())
    count = 1 if chunks.size < 128 else 2 if chunks.size < 256 else 3 if chunks.size < 65_536 else 5
    return _message_bytes(_DEPLOYMENT + _STREAM + count + (2 if held < 256 else 3) + held + _SLOTS + 2)


def request_bytes() -> int:
    """A subscription, or its end."""
    return _message_bytes(_DEPLOYMENT)
