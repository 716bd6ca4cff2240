"""What control costs a host in bytes on the wire: whole frames, and the frame that acknowledges each.

What lives here: the length of each message, what a host sends all the time whatever it fetches, and the sum as the mean
of the living hosts. What does not: counting, which each host does, and membership where it runs (``membership``).

A message is an Ethernet header (14), IPv4 (20), TCP with time stamps (32), a ZMTP frame (flags and length, 2), a CURVE
message (command name 8, nonce 8, authenticator 16, flags 1; RFC 26/CurveZMQ), and a frame of the control plane
(``wire.control_frame``): version, array header and kind (3), the stream's number (up to 3), the fields in msgpack.
Deltas go one way per connection, so no message carries their acknowledgement along: the receiver sends an empty segment
(66) for each, as seen on a loopback. Not counted: handshakes, tokens for bulk connections in clear, and repetitions.

* A control link sends a heartbeat each ``SessionSettings.heartbeat_s``, traffic or none (libzmq): 108 bytes, 106 of
  answer, and 66 that acknowledge the answer, as seen on a loopback.
* Membership at rest is two datagrams a second with their answers, 400 bytes with IP and UDP headers (``python -m
  tests.bench.membership --scenario quiet``), and 14 of Ethernet for each of the four.
* Every host gossips its progress each ``max(1 s, hosts / 50)`` (``daemon.progress_publisher``). ``_PROGRESS`` is
  ``bytes_per_node_s_mean`` of ``python -m tests.bench.membership --members 6,16,40,100,250,1000 --scenario progress``
  with Ethernet for each datagram sent (half of ``datagrams_per_node_s_mean``), less membership at rest. From 40 hosts
  on the budget of the class (``progress_bytes_per_s``) bounds it.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

from gossipd.core.chunkset import ChunkSet
from gossipd.core.events import SendDelta
from gossipd.sessions.settings import SessionSettings

_ETHERNET, _IP, _TCP, _UDP = 14, 20, 32, 8
_SEGMENT = _ETHERNET + _IP + _TCP
_SEGMENT_BYTES_MAX = 1500 - _IP - _TCP
_ZMTP = 2 + 8 + 8 + 16 + 1
_HEAD = 3 + 3
_DEPLOYMENT = 2 + 32
_STREAM = 3  # a number of 16 bits, chosen by the sender
_SLOTS = 1
LINK_BYTES_S = (108 + 106 + 66) / SessionSettings().heartbeat_s
MEMBERSHIP_REST_BYTES_S = 400.0 + 4 * 14
_PROGRESS = ((1, 0.0), (6, 3050.0), (16, 9320.0), (40, 10_518.0), (100, 10_527.0))
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


def progress_bytes_s(hosts: int) -> float:
    """Rumours of all hosts' progress, sent by one of ``hosts`` hosts."""
    for (fewer, low), (more, high) in pairwise(_PROGRESS):
        if hosts <= more:
            return low + (high - low) * (hosts - fewer) / (more - fewer)
    return _PROGRESS[-1][1]


class ControlSent(NamedTuple):
    """Bytes that a living host has sent, on average, until ``until_s``."""

    until_s: float
    messages: float
    """Messages, and the acknowledgements of those that have come."""
    links: float
    membership: float

    @property
    def bytes_per_s(self) -> float:
        """Control channel and membership together."""
        return (self.messages + self.links + self.membership) / self.until_s if self.until_s else 0.0


def control_sent(now: float, hosts: int, *, messages: int, links: int, membership: int | None) -> ControlSent:
    """What ``hosts`` living hosts have sent together until ``now`` over that many links, as the mean. ``membership`` is
    None where it does not run, and so counts nothing: then it is taken to be at rest."""
    told = MEMBERSHIP_REST_BYTES_S * now if membership is None else membership / hosts
    return ControlSent(now, messages / hosts, links / hosts * LINK_BYTES_S * now, told + progress_bytes_s(hosts) * now)
