"""What a host sends all the time while a model moves, whatever it fetches; bytes a second, whole frames.

What lives here: heartbeats of control links, membership at rest, records of progress. What does not: messages
(``message_size``), and membership where it runs (``membership``), which counts its own.

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

from gossipd.sessions.settings import SessionSettings

LINK_BYTES_S = (108 + 106 + 66) / SessionSettings().heartbeat_s
MEMBERSHIP_REST_BYTES_S = 400.0 + 4 * 14
_PROGRESS = ((1, 0.0), (6, 1979.0), (16, 5536.0), (40, 5625.0), (100, 5628.0))


def progress_bytes_s(hosts: int) -> float:
    """Rumours of all hosts' progress, sent by one of ``hosts`` hosts."""
    for (fewer, low), (more, high) in pairwise(_PROGRESS):
        if hosts <= more:
            return low + (high - low) * (hosts - fewer) / (more - fewer)
    return _PROGRESS[-1][1]
