"""The network interface that has an address, and what it has carried.

What lives here: asking the kernel for both. What does not: what is made of the counters (``daemon.link_sharing``).

An address that no interface has, as behind a translation of addresses, is taken for one of the default route's.
"""

from __future__ import annotations

import fcntl
import socket
import struct
from ipaddress import IPv6Address, ip_address
from pathlib import Path

from msgspec import Struct

_SIOCGIFADDR = 0x8915  # include/uapi/linux/sockios.h; of an interface's first IPv4 address
_ROUTE, _COUNTERS, _ADDRESSES_6 = Path("/proc/net/route"), Path("/proc/net/dev"), Path("/proc/net/if_inet6")
_RECEIVED, _SENT = 0, 8  # columns of /proc/net/dev


LOOPBACK = "lo"


class InterfaceBytes(Struct, frozen=True):
    """Since the interface began."""

    received: int
    sent: int


def interface_of(address: str) -> str | None:
    """The name of the interface with this address, which of IPv4 must be its first, else of the default route's; None:
    this host has neither, or its kernel does not tell."""
    try:
        return interface_with(address) or _of_default_route()
    except OSError:
        return None


def interface_with(address: str) -> str | None:
    """The name of the interface with this address, which of IPv4 must be its first; None: it is not found."""
    try:
        wanted = ip_address(address)
        if wanted.is_loopback:
            return LOOPBACK  # it has more addresses than it names
        if isinstance(wanted, IPv6Address):
            mapped = wanted.ipv4_mapped
            return _with_ipv6(wanted) if mapped is None else _with_ipv4(str(mapped))
        return _with_ipv4(address)
    except (OSError, ValueError):
        return None


def bytes_of(name: str) -> InterfaceBytes | None:
    """None when the interface has gone, or the kernel does not tell."""
    try:
        lines = _COUNTERS.read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        found, _, rest = line.partition(":")
        if found.strip() == name:
            columns = rest.split()
            return InterfaceBytes(int(columns[_RECEIVED]), int(columns[_SENT]))
    return None


def _with_ipv4(address: str) -> str | None:
    wanted = socket.inet_aton(address)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        for _, name in socket.if_nameindex():
            try:
                answer = fcntl.ioctl(asked, _SIOCGIFADDR, struct.pack("256s", name.encode()))
            except OSError:
                continue  # it has none
            if answer[20:24] == wanted:
                return name
    return None


def _with_ipv6(wanted: IPv6Address) -> str | None:
    for line in _ADDRESSES_6.read_text().splitlines():
        columns = line.split()
        if int(columns[0], 16) == int(wanted):
            return columns[-1]
    return None


def _of_default_route() -> str | None:
    for line in _ROUTE.read_text().splitlines()[1:]:
        columns = line.split()
        if columns[1] == "00000000":
            return columns[0]
    return None
