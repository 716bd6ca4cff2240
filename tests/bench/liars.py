"""Members that hold the cluster key and lie: what they may do is all that a real one could."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import partial
from random import Random

from membership import wire
from membership.member import NodeId, Record
from membership.node import ACCUSE_LABEL, ALIVE_LABEL
from membership.record import sign_record
from tests.membership.simulated_cluster import RING, SimulatedCluster


class Liars:
    """Some hosts whose brains work, and from whose addresses lies are sent as well."""

    def __init__(self, cluster: SimulatedCluster, indexes: list[int], rng: Random, every_s: float = 0.5) -> None:
        self.cluster = cluster
        self.indexes = indexes
        self.told: Counter[str] = Counter()
        self._rng = rng
        self._every_s = every_s

    def begin(self) -> None:
        """From now on, each tells a lie of a random sort every half second."""
        for index in self.indexes:
            self.cluster.at(self.cluster.now + self._rng.random() * self._every_s, partial(self._lie, index))

    def forged_accepted(self) -> int:
        """Records held by anybody that their subject never signed: they carry a rack of the liars' choice."""
        return sum(
            member.record.rack == "forged"
            for host in self.cluster.hosts
            if host.swim is not None
            for member in host.swim.members()
        )

    def _lie(self, index: int) -> None:
        cluster = self.cluster
        host = cluster.hosts[index]
        victim = cluster.hosts[self._rng.randrange(len(cluster.hosts))]
        sort = self._rng.choice(("accuse", "accuse", "frame", "forge", "revive"))
        if victim is not host and victim.swim is not None:
            self.told[sort] += 1
            item = self._item(sort, index, victim.swim.self_record())
            for _ in range(3):
                target = cluster.hosts[self._rng.randrange(len(cluster.hosts))]
                sealed = self._seal(index, bytes((wire.GOSSIP,)) + item, target.node)
                cluster.inject(index, target.address, sealed)
                if self._rng.random() < 0.3:
                    self.told["replay"] += 1
                    cluster.inject(index, target.address, sealed)
        cluster.at(cluster.now + self._every_s, lambda: self._lie(index))

    def _seal(self, index: int, body: bytes, receiver: NodeId) -> bytes:
        seal = self.cluster.hosts[index].seal
        assert seal is not None
        return seal.seal(body, receiver)

    def _item(self, sort: str, index: int, victim: Record) -> bytes:
        cluster = self.cluster
        host = cluster.hosts[index]
        sign = cluster.keys.signer(host.public)
        handle, label = victim.node[:8], RING.cluster_id
        incarnation = next((row.incarnation for row in cluster.swim(index).members() if row.node == victim.node), 0)
        if sort == "accuse":  # signed by itself: valid, and false
            part = wire.accusation_part(host.node[:8], handle, victim.boot, incarnation)
            return wire.item(wire.ACCUSE, part + sign(ACCUSE_LABEL + label + part))
        if sort == "frame":  # in somebody else's name
            other = cluster.hosts[self._rng.randrange(len(cluster.hosts))].node[:8]
            part = wire.accusation_part(other, handle, victim.boot, incarnation)
            return wire.item(wire.ACCUSE, part + sign(ACCUSE_LABEL + label + part))
        if sort == "forge":  # the victim's record, changed
            changed = replace(victim, rack="forged", version=victim.version + 1)
            return wire.item(wire.RECORD, sign_record(changed, label, sign)[1])
        part = wire.claim_part(handle, victim.boot, incarnation + 1)
        return wire.item(wire.ALIVE, part + sign(ALIVE_LABEL + label + part))
