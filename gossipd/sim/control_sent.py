"""What control costs a host: the sum over messages, links and membership, as the mean of the living hosts.

What lives here: that sum. What does not: the length of a message (``message_size``), traffic that does not depend on
the fetches (``steady_traffic``), and counting, which each host does.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from gossipd.sim.host import SimHost
from gossipd.sim.steady_traffic import LINK_BYTES_S, MEMBERSHIP_REST_BYTES_S, progress_bytes_s
from membership.member import NodeId


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


def control_sent(hosts: Mapping[NodeId, SimHost], now: float, *, membership_runs: bool) -> ControlSent:
    """The bytes sent until ``now``.

    Args:
        membership_runs: membership counts what it sends; else it is taken to be at rest.
    """
    living = [host for host in hosts.values() if host.alive]
    messages = sum(host.control_bytes for host in living) / len(living)
    links = sum(hosts[peer].alive for host in living for peer in host.linked) / len(living)
    membership = MEMBERSHIP_REST_BYTES_S * now
    if membership_runs:
        membership = sum(host.membership_bytes for host in living) / len(living)
    membership += progress_bytes_s(len(living)) * now
    return ControlSent(now, messages, links * LINK_BYTES_S * now, membership)
