"""The lab's network: a namespace for each host, a bridge for each rack, a core bridge, storage behind its own link.

::

    host ns  eth0 ── h<i>  bridge rack<r>  u<r> ── c<r>  bridge core  s0 ── eth0  storage ns
             tbf     tbf                   tbf     tbf               tbf     tbf

The bridges are in one namespace ("the switches"), so that nothing of the machine's own network is touched, and
everything is gone when the namespaces are deleted. Every host's link and the storage link are shaped by tbf both ways;
rack uplinks only where ``uplink_mbit`` says so. Bytes are read from the switches' ports: what crossed a wire,
headers and retransmissions included.

tbf, as measured here: it splits super-packets unless its burst holds one (64 KiB; we use 128), a queue of about 50 ms
keeps bufferbloat small and TCP at the full rate, and it banks one burst of credit while idle, which is why every run
measures one plain download first and divides by that, not by the nominal rate. There is no netem on the machines
this was written for. TCP on a slow link sends super-packets of 3 to 6 KB (a millisecond's worth); the links of thirty
hosts made 50,000 a second of them, each with its timer. So frames are large, and in the hosts' namespaces TCP is told
to send at least ``SEGMENTS_MIN`` at once, for every system under test alike. A queue holds at least
``QUEUE_SEGMENTS_MIN``: with 50 ms of a slow link, three or four of what TCP sends at once, 16 hosts at 12 Mbit/s sent
4.5 % of storage's bytes and 6.8 % of the racks' twice for 1.0 and 5.8 %, in the same time.

Congestion control is ``congestion`` for all systems alike: CUBIC by default, which is Linux's own default, so that a
figure does not depend on what a machine was set to. It matters where a dozen flows share such a link: with BBR 8 hosts
at 25 Mbit/s took 1.19 to 1.24 downloads, as storage sent 6 to 9 % twice and racks 9 %; with Reno 1.14, 5 % and 5 % (the
simulator, which sends nothing twice: 1.11). Tried against it, and left: receive windows of the link's share for 20 ms
(1.13 and 1.20, and 4 to 6 % between racks, but an eighth more CPU at 100 Mbit/s, where the CPU is the limit); what
nginx sends too much, no window of ours bounds. A namespace may only be given an algorithm that the machine allows to
everybody: one that it has and does not allow, as CUBIC where BBR is the default, is allowed while the lab is built.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

BURST_BYTES = 128 * 1024
QUEUE_SECONDS = 0.05
MTU = 9000  # jumbo frames, as data centres have them
QUEUE_SEGMENTS_MIN = 64  # what 50 ms of a link of 100 Mbit/s hold, about
# 36 KB: 3 ms of a link of 100 Mbit/s, 14 ms at 20 Mbit/s. With 7 storage sent 1.6 and 2.8 % twice.
SEGMENTS_MIN = 4
CONGESTION = "cubic"  # Linux's default since 2.6.19, RFC 9438
NEIGHBOURS_MIN = 32  # a flat network with more members outgrows the kernel's default neighbour table
_TCP = Path("/proc/sys/net/ipv4")
_SEARCH = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"


def host_name(number: int) -> str:
    """What a host is called, from 1."""
    return f"node-{number}"


class LabError(RuntimeError):
    """The lab cannot be set up, or a system under test did not do its part."""


@dataclass(frozen=True)
class Station:
    """One host, or storage."""

    name: str
    namespace: str
    address: str
    rack: int
    """Index of the rack; -1 for storage."""
    port: str
    """The switches' end of its link."""

    @property
    def command(self) -> tuple[str, ...]:
        """Put before a command line to run it there."""
        return ("ip", "netns", "exec", self.namespace)


@dataclass(frozen=True)
class Counters:
    """Bytes since the fabric was made: out of storage, into racks from the core, into each host."""

    external: int
    crossrack: int
    hosts: dict[str, int]

    def since(self, before: Counters) -> Counters:
        hosts = {name: count - before.hosts[name] for name, count in self.hosts.items()}
        return Counters(self.external - before.external, self.crossrack - before.crossrack, hosts)


def missing() -> str | None:
    """What this machine lacks for the lab; None when nothing."""
    if os.geteuid() != 0:
        return "root (the lab makes network namespaces)"
    for program in ("ip", "tc", "nginx"):
        if not shutil.which(program, path=_SEARCH):
            return f"the program {program} (Debian: iproute2, nginx-light)"
    return None


class Fabric:
    """Made by ``fabric``; addresses are 10.77.<rack>.<host>/16, storage is 10.77.255.1."""

    def __init__(
        self, racks: Sequence[int], *, mbit: float, uplink_mbit: float | None, congestion: str = CONGESTION
    ) -> None:
        self.mbit = mbit
        self.congestion = congestion
        """What every host's TCP uses."""
        self._tag = f"gl{os.getpid() % 100000}"
        self.switches = f"{self._tag}-sw"
        self.storage = Station("storage", f"{self._tag}-st", "10.77.255.1", -1, "s0")
        self.hosts: list[Station] = []
        self.racks = len(racks)
        self._uplink_mbit = uplink_mbit
        for rack, count in enumerate(racks):
            for position in range(count):
                number = len(self.hosts) + 1
                address = f"10.77.{rack + 1}.{position + 1}"
                self.hosts.append(Station(host_name(number), f"{self._tag}-h{number}", address, rack, f"h{number}"))

    def build(self) -> None:
        """Namespaces, bridges, links, rates."""
        for namespace in (self.switches, *(one.namespace for one in (self.storage, *self.hosts))):
            _run("ip", "netns", "add", namespace)
        _batch(self.switches, ["link set lo up", *self._bridges()])
        for hook in ("iptables", "ip6tables", "arptables"):
            _set_in(self.switches, f"net/bridge/bridge-nf-call-{hook}", 0)
        with _allowed(self.congestion):
            for station in (self.storage, *self.hosts):
                self._connect(station)
        for rack in range(self.racks):
            if self._uplink_mbit is not None:
                _shape(self.switches, f"u{rack}", self._uplink_mbit)
                _shape(self.switches, f"c{rack}", self._uplink_mbit)
        if len(self.hosts) + 1 > NEIGHBOURS_MIN:
            _raise_neighbour_limit(16 * len(self.hosts))

    def shape(self, station: Station, mbit: float) -> None:
        """Both directions of one link."""
        _shape(self.switches, station.port, mbit)
        _shape(station.namespace, "eth0", mbit)

    def counters(self) -> Counters:
        """Now."""
        links = json.loads(_output("ip", "-n", self.switches, "-j", "-s", "link", "show"))
        ports = {link["ifname"]: link["stats64"] for link in links}
        return Counters(
            external=ports["s0"]["rx"]["bytes"],
            crossrack=sum(ports[f"u{rack}"]["rx"]["bytes"] for rack in range(self.racks)),
            hosts={host.name: ports[host.port]["tx"]["bytes"] for host in self.hosts},
        )

    def cut(self, station: Station) -> None:
        """Take the host's cable out."""
        _run("ip", "-n", self.switches, "link", "set", station.port, "down")

    def part(self, rack: int, *, is_parted: bool) -> None:
        """Take the cable of a rack's uplink out, or put it in again."""
        _run("ip", "-n", self.switches, "link", "set", f"u{rack}", "down" if is_parted else "up")

    def remove(self) -> None:
        """Delete every namespace; links go with them."""
        for station in (*self.hosts, self.storage):
            subprocess.run(["ip", "netns", "del", station.namespace], stderr=subprocess.DEVNULL)
        subprocess.run(["ip", "netns", "del", self.switches], stderr=subprocess.DEVNULL)

    def _bridges(self) -> list[str]:
        lines = ["link add core type bridge forward_delay 0 stp_state 0", "link set core up"]
        for rack in range(self.racks):
            lines += [
                f"link add rack{rack} type bridge forward_delay 0 stp_state 0",
                f"link add u{rack} mtu {MTU} type veth peer name c{rack} mtu {MTU}",
                f"link set u{rack} master rack{rack} up",
                f"link set c{rack} master core up",
                f"link set rack{rack} up",
            ]
        return lines

    def _connect(self, station: Station) -> None:
        bridge = "core" if station.rack < 0 else f"rack{station.rack}"
        _batch(
            self.switches,
            [
                f"link add {station.port} mtu {MTU} type veth peer name eth0 mtu {MTU} netns {station.namespace}",
                f"link set {station.port} master {bridge} up",
            ],
        )
        _batch(
            station.namespace,
            ["link set lo up", f"addr add {station.address}/16 dev eth0", "link set eth0 up"],
        )
        _set_in(station.namespace, "net/ipv4/tcp_min_tso_segs", SEGMENTS_MIN)
        _set_in(station.namespace, "net/ipv4/tcp_congestion_control", self.congestion)
        self.shape(station, self.mbit)


@contextmanager
def fabric(
    racks: Sequence[int], *, mbit: float, uplink_mbit: float | None = None, congestion: str = CONGESTION
) -> Iterator[Fabric]:
    """A network for the length of a ``with``. Raises LabError when the machine cannot have one."""
    lack = missing()
    if lack is not None:
        raise LabError(f"the lab needs {lack}")
    made = Fabric(racks, mbit=mbit, uplink_mbit=uplink_mbit, congestion=congestion)
    try:
        made.build()
        yield made
    finally:
        made.remove()


def _shape(namespace: str, device: str, mbit: float) -> None:
    bits = int(mbit * 1e6)
    limit = max(QUEUE_SEGMENTS_MIN * MTU, int(bits / 8 * QUEUE_SECONDS))
    _run(
        "tc", "-n", namespace, "qdisc", "replace", "dev", device, "root", "tbf",
        "rate", f"{bits}bit", "burst", f"{BURST_BYTES}b", "limit", f"{limit}b",
    )  # fmt: skip


def _set_in(namespace: str, name: str, value: int | str) -> None:
    """A kernel parameter of one namespace, where this kernel has it."""
    path = f"/proc/sys/{name}"
    _run("ip", "netns", "exec", namespace, "sh", "-c", f"[ ! -e {path} ] || echo {value} > {path}")


@contextmanager
def _allowed(congestion: str) -> Iterator[None]:
    """For a while, namespaces may choose this algorithm. Raises LabError when the machine has not got it."""
    available = (_TCP / "tcp_available_congestion_control").read_text().split()
    if congestion not in available:
        raise LabError(f"this machine has no TCP congestion control {congestion!r}; it has {', '.join(available)}")
    allowed = _TCP / "tcp_allowed_congestion_control"
    before = allowed.read_text()
    allowed.write_text(f"{before.strip()} {congestion}")
    try:
        yield
    finally:
        allowed.write_text(before)


def _raise_neighbour_limit(least: int) -> None:
    for name in ("gc_thresh1", "gc_thresh2", "gc_thresh3"):
        path = Path("/proc/sys/net/ipv4/neigh/default") / name
        if path.exists() and int(path.read_text()) < least:
            path.write_text(str(least))


def _batch(namespace: str, lines: Sequence[str]) -> None:
    done = subprocess.run(
        ["ip", "-n", namespace, "-batch", "-"], input="\n".join(lines), text=True, capture_output=True
    )
    if done.returncode:
        raise LabError(f"ip -n {namespace} failed: {done.stderr.strip()}")


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise LabError(f"{' '.join(command)} failed: {done.stderr.strip()}")


def _output(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout
