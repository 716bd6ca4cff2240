"""Members that hold the cluster key and lie: what they may do is all that a real one could."""

from __future__ import annotations

from collections import Counter
from functools import partial
from random import Random

from msgspec.structs import replace

from membership import wire
from membership.fakes import OpenSeal
from membership.member import NodeId, Record, node_id
from membership.node import ACCUSE_LABEL, ALIVE_LABEL
from membership.record import BOOT_MAX, sign_record
from tests.membership.simulated_cluster import RING, SimulatedCluster

SORTS = ("accuse", "accuse", "frame", "forge", "revive", "boot", "notice", "event", "sybil")
NOBODY = ("192.0.2.9", 7946)


class Liars:
    """Some hosts whose brains work, and from whose addresses lies are sent as well."""

    sorts: tuple[str, ...] = SORTS
    sybil_payload = b""
    """What made-up members say on their records; empty: what their victim says."""

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
        """Records and statements held by anybody that their subject never signed: they carry a rack, or a key, of the
        liars' choice."""
        brains = [host.swim for host in self.cluster.hosts if host.swim is not None]
        records = sum(member.record.rack == "forged" for swim in brains for member in swim.members())
        return records + sum(b"forged" in swim._event_store._statements for swim in brains)

    def third_party_datagrams(self) -> int:
        """What was sent to an address that a made-up member names, and where nobody is."""
        return self.cluster.unreachable[NOBODY]

    def _lie(self, index: int) -> None:
        cluster = self.cluster
        host = cluster.hosts[index]
        victim = cluster.hosts[self._rng.randrange(len(cluster.hosts))]
        sort = self._rng.choice(self.sorts)
        if victim is not host and victim.swim is not None:
            self.told[sort] += 1
            item = b"" if sort == "boot" else self._item(sort, index, victim.swim.self_record())
            for _ in range(3):
                target = cluster.hosts[self._rng.randrange(len(cluster.hosts))]
                if sort == "notice":
                    target = victim
                if sort == "boot" and target is not victim:
                    sealed = self._as_somebody_else(victim.swim.self_record(), target.node)
                else:
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

    def _as_somebody_else(self, victim: Record, receiver: NodeId) -> bytes:
        """Everybody's sealing keys follow from the cluster's."""
        boot = victim.boot + self._rng.choice((0, 1, 60_000, 2**40, BOOT_MAX - victim.boot))
        seal = OpenSeal(RING, victim.node, boot)
        seal._counter = self._rng.choice((0, 2**40, 2**64 - 2))
        return seal.seal(wire.PROBE_HEAD.pack(wire.PING, 1, 0, 0, 0), receiver)

    def _sybil(self, index: int, victim: Record) -> bytes:
        """A member that does not exist, at a third party's address or a member's."""
        cluster = self.cluster
        public = cluster.keys.make(self._rng)
        cluster.by_node[node_id(public)] = index  # its death is the liar's
        host, port = self._rng.choice((NOBODY, victim.address))
        number = self.told["sybil"]
        rack = self._rng.choice((f"sybil-{number % 50}", victim.rack))
        record = replace(
            victim, public_key=public, name=f"sybil-{index}-{number}", rack=rack, host=host, port=port,
            payload=self.sybil_payload or victim.payload,
        )  # fmt: skip
        return wire.item(wire.RECORD, sign_record(record, RING.cluster_id, cluster.keys.signer(public))[1])

    def _item(self, sort: str, index: int, victim: Record) -> bytes:
        cluster = self.cluster
        host = cluster.hosts[index]
        sign = cluster.keys.signer(host.public)
        handle, label = victim.node[:8], RING.cluster_id
        row = cluster.swim(index).member(victim.node)
        incarnation = 0 if row is None else row.incarnation
        if sort == "sybil":
            return self._sybil(index, victim)
        if sort == "event":
            return wire.event(1, victim.node, 2**63 - 1, b"forged", b"forged")
        if sort == "notice":
            return wire.notice(
                wire.STATE_SUSPECT, handle, victim.boot, self._rng.choice((wire.INCARNATION_MAX - 1, 99))
            )
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
