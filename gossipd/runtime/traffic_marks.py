"""DSCP marks and priorities put on sockets, so that switches and this host's own queues can tell traffic apart.

What lives here: the socket options. What does not: which traffic has which mark (``config``), and ZeroMQ's sockets,
which have an option of their own.
"""

from __future__ import annotations

import socket

from gossipd.core.dscp import UNMARKED, priority_of


def mark(sock: socket.socket, dscp: int) -> None:
    """All packets of ``sock`` carry ``dscp``, 0 to 63. Unmarked is left as the system made it. What a listening socket
    accepts has its mark, in the answer to the first packet already, but not its priority. Raises OSError.
    """
    if dscp == UNMARKED:
        return
    octet = octet_of(dscp)
    if sock.family == socket.AF_INET6:
        sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_TCLASS, octet)
    sock.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, octet)  # of an IPv6 socket too: for its peers with IPv4
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_PRIORITY, priority_of(dscp))  # last: IP_TOS sets it by older rules


def octet_of(dscp: int) -> int:
    """The octet of the IP header that carries the mark; its two low bits are the kernel's, for ECN."""
    return dscp << 2
