"""Lets the kernel drop attempts to connect to a listening socket, by the address they come from.

What lives here: the kernel's filter of a listening TCP socket. What does not: whose attempts (``flooding_addresses``).

An attempt is a segment with SYN and without ACK. It is dropped without an answer, so that its sender waits before it
tries again. All other segments pass: accepted sockets inherit the filter.
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Collection, Iterable
from ipaddress import IPv4Address, IPv6Address

from membership.socket_filter import ALL, Operation, Step, attach, detach

_NETWORK = 0xFFF00000  # SKF_NET_OFF in linux/filter.h: what follows is counted from the IP header
_FLAGS_AT, _SYN, _SYN_ACK = 13, 0x02, 0x12  # of the TCP header, at which a filter of a TCP socket begins
_VERSION_AT, _IPV4_SOURCE_AT, _IPV6_SOURCE_AT = _NETWORK, _NETWORK + 12, _NETWORK + 8
_IPV6_WORDS = 4
_DROP, _PASS = (Operation.RETURN, 0, 0, 0), (Operation.RETURN, 0, 0, ALL)


class ConnectionFilter:
    """Of one listening socket, by its descriptor, which another may own. Without filters in the system all get in."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._dropped: tuple[str, ...] = ()

    def drop(self, addresses: tuple[str, ...]) -> None:
        """Drop attempts from these IP addresses from now on, and no others; quick when they are the same as before."""
        if addresses == self._dropped:
            return
        self._dropped = addresses
        try:
            with socket.socket(fileno=os.dup(self._descriptor)) as same:
                if addresses:
                    attach(same, program(addresses))
                else:
                    detach(same)
        except OSError:
            return  # not a Linux with filters, or the socket is about to close


def program(addresses: Collection[str]) -> list[Step]:
    """Classic BPF: nothing of an attempt from one of ``addresses``, all of everything else."""
    ipv4_steps = _of_ipv4(address for address in addresses if ":" not in address)
    ipv6_steps = _of_ipv6(address for address in addresses if ":" in address)
    return [
        (Operation.LOAD_BYTE, 0, 0, _FLAGS_AT),
        (Operation.AND, 0, 0, _SYN_ACK),
        (Operation.JUMP_EQUAL, 1, 0, _SYN),
        _PASS,
        (Operation.LOAD_BYTE, 0, 0, _VERSION_AT),
        (Operation.AND, 0, 0, 0xF0),
        (Operation.JUMP_EQUAL, 1, 0, 0x40),
        (Operation.JUMP, 0, 0, len(ipv4_steps)),
        *ipv4_steps,
        *ipv6_steps,
    ]


def _of_ipv4(addresses: Iterable[str]) -> list[Step]:
    steps: list[Step] = [(Operation.LOAD_WORD, 0, 0, _IPV4_SOURCE_AT)]
    for address in addresses:
        steps += [(Operation.JUMP_EQUAL, 0, 1, int(IPv4Address(address))), _DROP]
    return [*steps, _PASS]


def _of_ipv6(addresses: Iterable[str]) -> list[Step]:
    steps: list[Step] = []
    for at in range(_IPV6_WORDS):
        steps += [(Operation.LOAD_WORD, 0, 0, _IPV6_SOURCE_AT + 4 * at), (Operation.STORE, 0, 0, at)]
    for address in addresses:
        for at, word in enumerate(struct.unpack(f">{_IPV6_WORDS}I", IPv6Address(address).packed)):
            to_the_next = 2 * (_IPV6_WORDS - 1 - at) + 1
            steps += [(Operation.LOAD_STORED, 0, 0, at), (Operation.JUMP_EQUAL, 0, to_the_next, word)]
        steps.append(_DROP)
    return [*steps, _PASS]
