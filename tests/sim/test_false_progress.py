"""Hosts that lie about the progress of others, in a simulated cluster with real signatures: nobody shows it.

What lives here: liars of each sort, and two rules that are looked after at every record: no host shows another as
complete that has not said so, and no liar keeps true records away. What does not: the judgement by values
(``tests/gossipd/deployment/test_signed_progress``).
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, cast

import pytest
from msgspec.structs import replace

from gossipd.core.ids import DeploymentId
from gossipd.daemon.cluster_roster import ClusterRoster
from gossipd.daemon.gossip_rules import GossipRules
from gossipd.deployment.progress_record import HostState, Progress, progress_key
from gossipd.deployment.progress_table import ClusterProgress
from gossipd.deployment.signed_progress import ProgressKey, ProgressWriter, read_progress, sign_progress
from gossipd.deployment.statement_store import StatementStore
from membership import wire
from membership.events import Event, PayloadHeard, PayloadKind
from membership.member import NodeId
from membership.record import BOOT_MAX
from tests.sim.campaign.wires import Wires

HOSTS, LIARS, OLDER = 16, (7,), (11,)
"""``OLDER``: hosts of 0.1.0, which neither sign nor read signed records."""
ID = progress_key(DeploymentId(bytes(range(32))))
BEGAN_S, TELL_S, CHUNKS = 1_700_000_000, 1.0, 256
DONE = Progress(state=HostState.COMPLETE, chunks_verified=CHUNKS, started_s=BEGAN_S, elapsed_s=4)


class VirtualClocks:
    """The simulation's."""

    def __init__(self, wires: Wires) -> None:
        self._wires = wires

    def wall_s(self) -> float:
        return BEGAN_S + self._wires.now

    def monotonic_s(self) -> float:
        return self._wires.now


class Host:
    """What one host believes, and what it says of itself: ever more chunks, never all."""

    def __init__(self, cluster: Cluster, index: int) -> None:
        self.cluster, self.index = cluster, index
        self.table = ClusterProgress()
        self.chunks = 0
        self.host_count, self.own = HOSTS, cluster.wires.hosts[index].node

    def rules(self) -> GossipRules:
        """The daemon's own."""
        wires = self.cluster.wires
        nothing: Any = None
        rules = GossipRules(
            StatementStore(), cast(ClusterRoster, self), self.table, nothing, nothing, clocks=VirtualClocks(wires)
        )
        rules.latest_boot = lambda: BOOT_MAX  # type: ignore[method-assign]  # the simulation's are in milliseconds
        return rules

    def progress_writer(self, node: NodeId) -> ProgressWriter | None:
        index = self.cluster.wires.by_node.get(node)
        if index is None:
            return None
        signs = index not in OLDER and self.index not in OLDER
        return ProgressWriter(self.cluster.wires.hosts[index].public, signs, BEGAN_S)

    def heard(self, event: PayloadHeard) -> None:
        """As ProgressPublisher does."""
        key = ProgressKey.decode(event.key)
        if self.index in OLDER and key.is_signed:
            return
        writer = self.progress_writer(key.node)
        if not key.is_signed and writer is not None and writer.signs:
            return
        self.table.record(
            key.node, ID, event.version, read_progress(key, event.payload), now=self.cluster.wires.now,
            is_signed=key.is_signed,
        )  # fmt: skip

    def tell(self) -> None:
        """The next true record, in both forms while there is an older host."""
        wires = self.cluster.wires
        self.chunks += 1
        progress = Progress(state=HostState.DOWNLOADING, chunks_verified=self.chunks, started_s=BEGAN_S)
        node, version = wires.hosts[self.index].node, int((BEGAN_S + wires.now) * 1000)
        self.table.record(node, ID, version, progress, now=wires.now, is_signed=True)
        for is_signed in (True, False):
            key = ProgressKey(node, ID, is_signed)
            if self.index in OLDER and is_signed:
                continue
            payload = self.cluster.signed(self.index, key, version, progress) if is_signed else progress.to_bytes()
            wires.swim(self.index).publish(PayloadKind.PROGRESS, key.encode(), version, payload, wires.now)
        wires._flush(self.index)


class Cluster:
    """All hosts know one another."""

    def __init__(self) -> None:
        self.wires = Wires(HOSTS, racks=4, seed=1, checkers=())
        self.hosts = [Host(self, index) for index in range(HOSTS)]
        self.wires.on_event = self._heard
        for index, host in enumerate(self.hosts):
            self.wires.rules = host.rules()
            self.wires.start(index)
        for index in range(HOSTS):
            self.wires.swim(index).adopt_view([self.wires.swim(other) for other in range(HOSTS)])

    def _heard(self, index: int, event: Event) -> None:
        if not isinstance(event, PayloadHeard):
            return
        self.hosts[index].heard(event)
        shown = {other for other in range(HOSTS) if self.state(index, other) is HostState.COMPLETE}
        assert index in (*LIARS, *OLDER) or shown <= {*LIARS, *OLDER}, f"{index} shows {shown} as complete"

    def state(self, index: int, other: int) -> HostState | None:
        row = self.hosts[index].table.host(self.wires.hosts[other].node, ID)
        return None if row is None else row.progress.state

    def signed(self, by: int, key: ProgressKey, version: int, progress: Progress) -> bytes:
        return sign_progress(self.wires.secrets[self.wires.hosts[by].public], key, version, progress)

    def run(self, seconds: float, lie: Callable[[int], None] = lambda liar: None) -> None:
        """All tell, and the liars lie, once a second."""
        until = self.wires.now + seconds
        while self.wires.now < until:
            for host in self.hosts:
                if host.index not in LIARS:
                    host.tell()
            for liar in LIARS:
                lie(liar)
            self.wires.run(self.wires.now + TELL_S)

    def say(self, liar: int, key: bytes, version: int, payload: bytes) -> None:
        """A liar's brain passes the item on as if it had believed it."""
        origin = self.wires.hosts[liar].node
        item = wire.event(2, origin, version, key, payload)
        for index in range(HOSTS):
            if index not in LIARS:
                self.wires.swim(index)._items.take([item], self.wires.now, origin)
                self.wires._flush(index)

    def version(self, ahead_s: float = 0.0) -> int:
        return int((BEGAN_S + self.wires.now + ahead_s) * 1000)


def unsigned(cluster: Cluster, liar: int, ahead_s: float = 1.5) -> None:
    for index, host in enumerate(cluster.wires.hosts):
        if index not in (*LIARS, *OLDER):
            key = ProgressKey(host.node, ID, is_signed=False)
            cluster.say(liar, key.encode(), cluster.version(ahead_s), DONE.to_bytes())


def signed_by_the_liar(cluster: Cluster, liar: int) -> None:
    for index, host in enumerate(cluster.wires.hosts):
        if index not in (*LIARS, *OLDER):
            key, version = ProgressKey(host.node, ID, is_signed=True), cluster.version(1.5)
            cluster.say(liar, key.encode(), version, cluster.signed(liar, key, version, DONE))


def from_the_future(cluster: Cluster, liar: int) -> None:
    unsigned(cluster, liar, ahead_s=1e9)
    key = ProgressKey(cluster.wires.hosts[liar].node, ID, is_signed=True)
    version = cluster.version(1e9)
    cluster.say(liar, key.encode(), version, cluster.signed(liar, key, version, DONE))


def about_very_much(cluster: Cluster, liar: int) -> None:
    rng = Random(cluster.version())
    for _ in range(60):
        key = ProgressKey(cluster.wires.hosts[liar].node, rng.randbytes(8), is_signed=True)
        version = cluster.version()
        cluster.say(liar, key.encode(), version, cluster.signed(liar, key, version, DONE))


def said_again(cluster: Cluster, liar: int) -> None:
    """A true record of another host under a later number, and under another deployment."""
    victim = cluster.hosts[0]
    node = cluster.wires.hosts[0].node
    key, version = ProgressKey(node, ID, is_signed=True), cluster.version()
    true = cluster.signed(0, key, version, replace(DONE, state=HostState.DOWNLOADING, chunks_verified=victim.chunks))
    for later in (1, 1000, 2**40):
        cluster.say(liar, key.encode(), version + later, true)
    cluster.say(liar, replace(key, deployment=b"another.").encode(), version, true)


@pytest.mark.parametrize("lie", [unsigned, signed_by_the_liar, from_the_future, about_very_much, said_again])
def test_no_liar_makes_a_host_complete_or_hides_what_it_says(lie: Callable[[Cluster, int], None]) -> None:
    cluster = Cluster()
    cluster.run(4.0)
    cluster.run(6.0, lambda liar: lie(cluster, liar))
    cluster.run(4.0)
    honest = [host for host in cluster.hosts if host.index not in (*LIARS, *OLDER)]
    late = [
        other.chunks - row.progress.chunks_verified
        for host in honest
        for other in honest
        if (row := host.table.host(cluster.wires.hosts[other.index].node, ID)) is not None
    ]
    assert len(late) == len(honest) ** 2
    assert sum(late) / len(late) < 2, "as without liars"


def test_an_older_host_hears_the_unsigned_form_of_all_others() -> None:
    cluster = Cluster()
    cluster.run(10.0)
    [older] = OLDER
    heard = [
        row.progress.chunks_verified
        for other in range(HOSTS)
        if other not in LIARS and (row := cluster.hosts[older].table.host(cluster.wires.hosts[other].node, ID))
    ]
    assert len(heard) == HOSTS - len(LIARS)
    assert min(heard) >= 4
