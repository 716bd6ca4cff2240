"""How fast a sender that gives way to others may send: by how long its packets wait in the queues of the path.

What lives here: the decision, by values. What does not: reading the kernel and setting its pace (``channel``), and when
(``watchdog``).

A round trip longer than the shortest one is time in queues, ours or behind others' packets; either way somebody waits.
So the pace falls while that time is above a target, or while packets are lost, and rises again below it. An idle path
is used nearly in full, as a queue that never empties needs no more than a few packets; a flow that fills the queue, as
every ordinary TCP flow does, takes what it wants down to ``rate_min``. This is LEDBAT (RFC 6817) with a pace for its
window.

The target is a constant for the noise of hosts, and the time that the packets need which a sender hands over at once:
they wait for each other. LEDBAT's 100 ms are for home routers; switches hold a few. The kernel's round trip is a mean
of some eight answers, so after a fall the next one waits for fresh ones, and a look without an answer decides nothing.
The rate is counted from what was acknowledged, as the kernel's own follows bursts.

Rejected: a congestion control of the kernel that yields (LP, Vegas, NV), as hosts do not have them loaded and BBR and
CUBIC do not yield; receive windows, as a receiver sees no queue, only that bytes come slowly.
"""

from __future__ import annotations

import struct

from msgspec import Struct

UNPACED = 2**64 - 1  # the kernel's word for it
TARGET_S = 0.001  # round trips of hosts that compute vary by as much
BURST_SEGMENTS = 1  # of the two that TCP sends at once at least, the one that waits for the other
RISE_MAX = 0.2  # of the pace, a look: 20 looks a second double it within a quarter of a second
FALL = 0.1  # of the pace, for every target that the queue has too much
FALL_MAX = 0.3  # CUBIC's answer to a loss
FALL_LOOKS = 4  # with an answer, from a fall to the next
HEADROOM = 2.0  # a pace above what is delivered is not used: the sender has no more, or the other limits it
SMOOTHING = 0.3  # of the newest look in the rate
GAP_S = 0.5  # without a look: nothing was sent

# Of struct tcp_info in include/uapi/linux/tcp.h: tcpi_snd_mss, tcpi_rtt, tcpi_total_retrans, tcpi_bytes_acked,
# tcpi_min_rtt; all there since Linux 4.6.
_PATH = struct.Struct("=16xI48xI28xI16xQ20xI")
PATH_BYTES = _PATH.size


class PathReading(Struct, frozen=True):
    """What the kernel knows of one connection's path."""

    segment_bytes: int
    rtt_s: float
    rtt_min_s: float
    retransmitted: int
    """Segments, since the connection began."""
    acked_bytes: int
    """Since the connection began."""


def read_path(tcp_info: bytes) -> PathReading | None:
    """None where the kernel says less than that, or has no round trip yet."""
    if len(tcp_info) < PATH_BYTES:
        return None
    segment_bytes, rtt_us, retransmitted, acked_bytes, rtt_min_us = _PATH.unpack_from(tcp_info)
    if not rtt_us:
        return None
    return PathReading(segment_bytes, rtt_us / 1e6, rtt_min_us / 1e6, retransmitted, acked_bytes)


class SendPace:
    """Of one connection."""

    def __init__(self, *, rate_min: int) -> None:
        """``rate_min``: bytes per second that are sent whatever else uses the path."""
        self.rate = UNPACED
        """Bytes per second."""
        self._rate_min = rate_min
        self._last: PathReading | None = None
        self._looked_s = 0.0
        self._delivered = 0.0  # bytes per second
        self._looks_until_fall = 0

    def heard(self, path: PathReading, now: float) -> bool:
        """Judge the path; whether the pace is another now."""
        last, elapsed_s = self._last, now - self._looked_s
        if last is not None and path.acked_bytes == last.acked_bytes and elapsed_s < GAP_S:
            return False
        self._last, self._looked_s = path, now
        if last is None or elapsed_s >= GAP_S or elapsed_s <= 0:
            return False
        rate = (path.acked_bytes - last.acked_bytes) / elapsed_s
        self._delivered += (rate - self._delivered) * (SMOOTHING if self._delivered else 1.0)
        before = self.rate
        self._judge(path, has_lost=path.retransmitted > last.retransmitted)
        return self.rate != before

    def _judge(self, path: PathReading, *, has_lost: bool) -> None:
        self._looks_until_fall -= 1
        usable = max(1.0, min(self.rate, self._delivered))
        excess = (path.rtt_s - path.rtt_min_s) / (TARGET_S + BURST_SEGMENTS * path.segment_bytes / usable) - 1
        if has_lost or excess > 0:
            if self._looks_until_fall <= 0:
                fall = FALL_MAX if has_lost else min(FALL_MAX, FALL * excess)
                base = self._delivered if self.rate == UNPACED else min(self.rate, HEADROOM * self._delivered)
                self.rate = max(self._rate_min, int(base * (1 - fall)))
                self._looks_until_fall = FALL_LOOKS
        elif self.rate != UNPACED:
            risen = int(self.rate * (1 - RISE_MAX * max(excess, -1.0)))
            self.rate = max(self.rate, min(risen, int(HEADROOM * self._delivered)))
