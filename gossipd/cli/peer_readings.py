"""Whether other members answer: by UDP there and back, small and large, and on both TCP ports.

What lives here: sealed pings from a socket of the command's own, and connections that send nothing. What does not:
which answers are well (``diagnosis.checks``). A member answers a ping of anybody who has the cluster's key.

How far a host is, the kernel says of a connection's first packets: its answer waits for no daemon's turn, and the
reading of it for no thread of this command.
"""

from __future__ import annotations

import errno
import secrets
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from gossipd.config.kinds import split_contact
from gossipd.diagnosis.checks import PeerReading
from membership import wire
from membership.errors import SealError
from membership.member import NODE_ID_BYTES, NodeId
from membership.seal import BODY_BYTES_MAX, DatagramSeal, KeyRing

PEERS = 3
TIMEOUT_S = 0.4  # in a data centre an answer takes milliseconds
TRIES = 3
_RTT_AT = 68  # of tcpi_rtt in struct tcp_info, microseconds; 0 where the first packet was lost
_FILLER_KIND = 255  # an item that no version knows: it is counted and ignored
_IP_MTU_DISCOVER, _IP_PMTUDISC_DO, _IP_MTU = 10, 2, 14  # linux/in.h; Python 3.11 has no names for them


def chosen(status: Mapping[str, Any], count: int = PEERS) -> list[Mapping[str, Any]]:
    """Other members, of as many racks as possible, this host's among them, the living first."""
    own = status["node"]["id"]
    others = [each for each in status["members"] if each["id"] != own and each["state"] not in ("left", "unheard")]
    others.sort(key=lambda each: (each["state"] != "alive", each["name"]))
    seen: dict[str, int] = {}
    ranked = []
    for each in others:
        seen[each["rack"]] = seen.get(each["rack"], 0) + 1
        is_elsewhere = each["rack"] != status["node"]["rack"]
        ranked.append((each["state"] != "alive", seen[each["rack"]], is_elsewhere, each["name"], each))
    return [each for *_, each in sorted(ranked, key=lambda one: one[:4])][:count]


@dataclass(frozen=True, slots=True)
class Target:
    """A member to be tried, at ``HOST:PORT``; the rack is empty where only an address is known."""

    name: str
    address: str
    rack: str = ""


def read_peers(targets: Sequence[Target], ring: KeyRing, bulk_offset: int) -> tuple[PeerReading, ...]:
    """All targets are tried at once, within some two seconds."""
    with ThreadPoolExecutor(max(1, 4 * len(targets))) as pool:
        tried = []
        for target in targets:
            host, port = split_contact(target.address)
            pings = [pool.submit(ping, host, port, ring, large=large) for large in (False, True)]
            ports = [pool.submit(connect, host, one) for one in (port, port + bulk_offset)]
            tried.append((target, pings, ports))
        found = []
        for target, pings, ports in tried:
            udp, udp_large = (one.result() for one in pings)
            (control, *near), (bulk, *far) = (one.result() for one in ports)
            large_told = udp_large if not udp else None  # where no datagram comes through, its size says nothing
            times = [one for one in (*near, *far) if one is not None]
            found.append(
                PeerReading(
                    name=target.name, rack=target.rack, udp=udp, udp_large=large_told, control=control, bulk=bulk,
                    rtt_s=min(times, default=None),
                )
            )  # fmt: skip
        return tuple(found)


def ping(host: str, port: int, ring: KeyRing, *, large: bool) -> str:
    """One sealed ping and its answer; empty when it came, else why not."""
    node = NodeId(secrets.token_bytes(NODE_ID_BYTES))
    seal = DatagramSeal(ring, node, int(time.time()))
    family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, socket.SOCK_DGRAM) as udp:
        if family == socket.AF_INET:
            udp.setsockopt(socket.IPPROTO_IP, _IP_MTU_DISCOVER, _IP_PMTUDISC_DO)
        udp.settimeout(TIMEOUT_S)
        try:
            udp.connect(address)
            for number in range(TRIES):
                body = wire.PROBE_HEAD.pack(wire.PING, number, 0, 0, 0)
                if large:
                    filler = BODY_BYTES_MAX - len(body) - wire.ITEM_HEAD_BYTES
                    body += wire.ITEM_HEAD.pack(_FILLER_KIND, filler) + bytes(filler)
                udp.send(seal.seal(body, None))
                if _is_answer(udp, seal):
                    return ""
        except OSError as error:
            if error.errno == errno.EMSGSIZE:
                return "the way takes no datagram of 1,400 bytes (MTU)"
            return error.strerror or str(error)
    return f"no answer to {TRIES} datagrams" + (" of 1,400 bytes" if large else "")


def _is_answer(udp: socket.socket, seal: DatagramSeal) -> bool:
    try:
        return seal.open(udp.recv(2048)).body[:1] == bytes((wire.ACK,))
    except (TimeoutError, SealError):
        return False


def path_mtu(host: str, port: int) -> int | None:
    """What the kernel knows of the way there; None for IPv6, where it is not asked, and where there is no way."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
        try:
            udp.connect((host, port))
            return udp.getsockopt(socket.IPPROTO_IP, _IP_MTU)
        except OSError:
            return None


def connect(host: str, port: int) -> tuple[str, float | None]:
    """Whether the port takes a connection: empty when it does; and how long the kernel waited for its answer."""
    try:
        with socket.create_connection((host, port), timeout=TIMEOUT_S * TRIES) as connected:
            told = connected.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _RTT_AT + 4)
            return "", int.from_bytes(told[_RTT_AT:], sys.byteorder) / 1e6 or None
    except TimeoutError:
        return f"port {port}/tcp does not answer", None
    except OSError as error:
        return f"port {port}/tcp: {error.strerror or error}", None
