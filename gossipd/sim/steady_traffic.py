"""What a host sends all the time while a model moves, whatever it fetches; bytes a second, whole frames.

What lives here: heartbeats of control links, membership at rest, records of progress. What does not: messages
(``message_size``), and membership where it runs (``membership``), which counts its own.

* A control link sends a heartbeat each ``HEARTBEAT_S``, traffic or none (libzmq): 108 bytes, 106
  of answer, and 66 that acknowledge the answer, as seen on a loopback with nothing else on it.
* Membership at rest is two datagrams a second with their answers: ``python -m tests.bench.membership --scenario quiet``
  says 400 bytes with IP and UDP headers, to which Ethernet adds 14 for each of the four.
* Every host tells everybody how far it is each ``max(1 s, hosts / 50)`` (``daemon.progress_publisher``), by rumour:
  ``python -m tests.bench.membership --members 6,16,40,100,250,1000 --scenario progress``, whose bytes_per_node_s_mean
  are 2,258, 5,717, 5,934, 5,937, 5,937, 5,938, and half of datagrams_per_node_s_mean, those sent, 12.7, 19.6 and then
  10.5. With Ethernet and without membership at rest that is _PROGRESS; from 40 hosts on it is the class's budget
  (``progress_bytes_per_s``), which bounds it.
"""

from __future__ import annotations

from itertools import pairwise

from gossipd.core.timing import HEARTBEAT_S

LINK_BYTES_S = (108 + 106 + 66) / HEARTBEAT_S
MEMBERSHIP_REST_BYTES_S = 400.0 + 4 * 14
_PROGRESS = ((1, 0.0), (6, 1979.0), (16, 5536.0), (40, 5625.0), (100, 5628.0))


def progress_bytes_s(hosts: int) -> float:
    """Rumours of how far everybody is, sent by one of so many hosts."""
    for (fewer, low), (more, high) in pairwise(_PROGRESS):
        if hosts <= more:
            return low + (high - low) * (hosts - fewer) / (more - fewer)
    return _PROGRESS[-1][1]
