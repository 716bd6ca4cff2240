"""Peers whose bulk port this host cannot connect to: a line in the log for each, and the alarm ``E_MANIFEST_PULL``.

What lives here: which failed connection is worth a line, and which failed pulls of manifests are worth an alarm. What
does not: connecting (``transfer``), whom a manifest is asked of and when again (``deployment.pull_turns``).

What fails with one peer is tried with another, so nothing else tells of a port that a firewall closes; and of a
deployment whose manifest does not come this host shows nothing at all.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from typing import Protocol

from msgspec import Struct, field

from gossipd.core.ids import DeploymentId, short
from gossipd.daemon.alarms import Alarms
from gossipd.runtime.logs import get_logger
from gossipd.runtime.look_interval import until_next_look
from gossipd.transfer.dialer import UnreachableError
from gossipd.transfer.errors import TransferError
from membership.member import NodeId, contact_of

LOOK_S = 1.0
LOG_EACH_S = 300.0  # of one peer
PULLS_LEAST, PULLS_S = 3, 10.0  # failed connections for one manifest, and the time since the first, before the alarm
NAMED_MAX = 3
_CURE = "open `net.bulk_port` (TCP) between the hosts; `gossipd doctor --peers` tries it. What waits goes on by itself"
log = get_logger("transfer")


class PeerDirectory(Protocol):
    """Where members are. Quick, from any thread."""

    def bulk_endpoint(self, node: NodeId) -> tuple[str, int] | None: ...

    def name_of(self, node: NodeId) -> str: ...


class UnreachedPeers:
    """Logs peers that cannot be connected to. Thread-safe; remembers those that it has logged of late. Times are
    monotonic seconds."""

    def __init__(self, directory: PeerDirectory) -> None:
        self._directory = directory
        self._lock = threading.Lock()
        self._logged: dict[NodeId, float] = {}

    def failed(self, peer: NodeId, deployment: DeploymentId, error: TransferError, now: float, *, what: str) -> str:
        """A transfer from ``peer`` has failed; returns the peer's address if no connection was made, else nothing.
        ``what``: was wanted of it."""
        endpoint = self._directory.bulk_endpoint(peer)
        if endpoint is None or not isinstance(error, UnreachableError):
            return ""
        address = contact_of(*endpoint)
        if self._is_due(peer, now):
            log.warning(
                "peer not reached", wanted=what, deployment=short(deployment), peer=self._directory.name_of(peer),
                address=address, reason=str(error), cure=_CURE,
            )  # fmt: skip
        return address

    def _is_due(self, peer: NodeId, now: float) -> bool:
        with self._lock:
            if now - self._logged.get(peer, -math.inf) < LOG_EACH_S:
                return False
            self._logged = {each: at_s for each, at_s in self._logged.items() if now - at_s < LOG_EACH_S}
            self._logged[peer] = now
        return True


class _Pulls(Struct):
    began_s: float
    count: int = 0
    addresses: dict[str, None] = field(default_factory=dict)


class FailedPulls:
    """Of each deployment whose manifest did not come, the connections that were not made. Decides; the clock is handed
    in. Bounded by the deployments that the brain looks into, which are bounded by signer."""

    def __init__(self) -> None:
        self._pulls: dict[DeploymentId, _Pulls] = {}

    def failed(self, deployment: DeploymentId, address: str, now: float) -> None:
        """No connection to that address was made."""
        pulls = self._pulls.setdefault(deployment, _Pulls(now))
        pulls.count += 1
        if len(pulls.addresses) < NAMED_MAX:
            pulls.addresses[address] = None

    def came(self, deployment: DeploymentId) -> None:
        """A peer has given an envelope."""
        self._pulls.pop(deployment, None)

    def look(self, now: float, is_coming: Callable[[DeploymentId], bool]) -> str | None:
        """What to tell; None while nothing is wrong. ``is_coming``: whether the manifest is still looked for."""
        self._pulls = {one: pulls for one, pulls in self._pulls.items() if is_coming(one)}
        late = [one for one in self._pulls.values() if one.count >= PULLS_LEAST and now - one.began_s >= PULLS_S]
        named = list(dict.fromkeys(address for pulls in late for address in pulls.addresses))[:NAMED_MAX]
        if not named:
            return None
        return f"manifests of deployments cannot be fetched: no connection to {', '.join(named)}: {_CURE}"


class PullWatch:
    """Rings ``E_MANIFEST_PULL``. One per daemon."""

    def __init__(self, pulls: FailedPulls, is_coming: Callable[[DeploymentId], bool], alarms: Alarms) -> None:
        self._pulls = pulls
        self._is_coming = is_coming
        self._alarms = alarms

    async def run(self) -> None:
        """Never returns."""
        while True:
            await until_next_look(LOOK_S)
            self.look(time.monotonic())

    def look(self, now: float) -> None:
        """Begin, change or end the alarm."""
        sentence = self._pulls.look(now, self._is_coming)
        if sentence is None:
            self._alarms.cured("E_MANIFEST_PULL")
        else:
            self._alarms.ring_as("E_MANIFEST_PULL", sentence)
