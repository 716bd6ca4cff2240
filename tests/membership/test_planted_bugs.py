"""Each rule catches a brain that breaks it: one small wrong change per rule, planted here and nowhere else."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from msgspec.structs import replace

from membership import node as node_module
from membership import wire
from membership.digest import Digest
from membership.event_store import EventStore
from membership.events import MemberUp, PayloadKind
from membership.judge import Judge
from membership.node import MembershipNode
from membership.record_merger import RecordMerger
from membership.settings import SwimSettings
from membership.suspicion import Suspicion
from membership.tombstones import Tombstones, _Stone
from membership.verified_cache import VerifiedCache
from tests.bench.liars import Liars
from tests.membership.checkers import (
    DatagramsFit,
    DeathNeedsTwoRacks,
    DigestIsTrue,
    EventsAreNews,
    EverythingIsBounded,
    FrozenPassNoVerdict,
    HealthyStayAlive,
    NothingGoesBack,
    RecordsAreTheirOwners,
    Rule,
    TimeMovesOn,
    Violation,
)
from tests.membership.simulated_cluster import FORWARDER, SimulatedCluster

Patch = pytest.MonkeyPatch


def cluster_with(rule: Rule, members: int = 20, settings: SwimSettings | None = None) -> SimulatedCluster:
    cluster = SimulatedCluster(members, racks=5, seed=2, checkers=[rule], settings=settings)
    cluster.start_all_known()
    cluster.run(1.0)
    return cluster


def cut_and_back(cluster: SimulatedCluster) -> None:
    for _ in range(3):
        cluster.cut(range(6), together=True, queue=True)
        cluster.run(cluster.now + 12.0)
        cluster.heal()
        cluster.run(cluster.now + 4.0)


def hasty(patch: Patch) -> Callable[[], None]:
    """Verdicts come before anybody can contradict, and from anybody."""
    patch.setattr(Suspicion, "wait_s", lambda *_: 0.01)
    patch.setattr(Judge, "_ask_for_last_word", lambda *_: None)
    settings = replace(SwimSettings(), isolation_freeze=False)
    return lambda: cut_and_back(cluster_with(HealthyStayAlive(set(range(6))), settings=settings))


def revives_by_rumour(patch: Patch) -> Callable[[], None]:
    """An old record makes a dead member alive."""
    right = RecordMerger.on_record

    def wrong(self: RecordMerger, data: bytes, now: float, **options: Any) -> Any:
        claim = right(self, data, now, **options)
        if claim is not None and claim.handle in self._roster.gone:
            self._roster.put(claim, now)
            self._node.tell(MemberUp(self._node.member(claim)))
        return claim

    patch.setattr(RecordMerger, "on_record", wrong)

    def run() -> None:
        cluster = cluster_with(NothingGoesBack())
        stale = cluster.swim(3)._node.own.item
        cluster.crash(3)
        cluster.run(20.0)
        cluster.swim(1)._items.take([stale], cluster.now, FORWARDER)
        cluster._flush(1)

    return run


def believes_any_signature(patch: Patch) -> Callable[[], None]:
    """Signatures are not checked."""
    right = VerifiedCache.__init__

    def wrong(self: VerifiedCache, cluster_id: bytes, verify: Any) -> None:
        right(self, cluster_id, lambda *_: True)

    patch.setattr(VerifiedCache, "__init__", wrong)

    def run() -> None:
        cluster = cluster_with(RecordsAreTheirOwners())
        Liars(cluster, [1, 2], Random(1), every_s=0.1).begin()
        cluster.run(10.0)

    return run


def one_accuser_is_enough(patch: Patch) -> Callable[[], None]:
    """Racks and accusers are not counted."""
    patch.setattr(Suspicion, "is_corroborated", lambda *_: True)
    patch.setattr(Suspicion, "has_room_for", lambda self, *_: not self.accusers)

    def run() -> None:
        cluster = cluster_with(DeathNeedsTwoRacks())
        cluster.crash(3)
        cluster.run(20.0)

    return run


def judges_while_frozen(patch: Patch) -> Callable[[], None]:
    """Isolation is noticed, and then ignored."""
    patch.setattr(MembershipNode, "frozen", property(lambda _: False))
    patch.setattr(Suspicion, "wait_s", lambda *_: 1.0)
    patch.setattr("membership.isolation.Isolation.failed_mostly_since", lambda *_: False)
    return lambda: cut_and_back(cluster_with(FrozenPassNoVerdict()))


def digest_never_forgets(patch: Patch) -> Callable[[], None]:
    """What is taken off the table stays in the sum."""
    right = Digest.change
    patch.setattr(Digest, "change", lambda self, bucket, mark: right(self, bucket, max(0, mark)))

    def run() -> None:
        cluster = cluster_with(DigestIsTrue())
        cluster.crash(3)
        cluster.run(20.0)

    return run


def tombstones_pile_up(patch: Patch) -> Callable[[], None]:
    """The bound is not kept."""

    def wrong(self: Tombstones, handle: bytes, boot: int, now: float) -> None:
        self._stones[handle] = _Stone(boot, now)

    patch.setattr(Tombstones, "add", wrong)

    def run() -> None:
        settings = replace(SwimSettings(), tombstone_count_max=2)
        cluster = cluster_with(EverythingIsBounded(), settings=settings)
        for index in (3, 4, 5, 6):
            cluster.crash(index)
        cluster.run(20.0)
        for index in (3, 4, 5, 6):
            cluster.swim(0).forget(cluster.hosts[index].node, cluster.now)
        cluster._flush(0)
        cluster.run(40.0)

    return run


def datagrams_too_large(patch: Patch) -> Callable[[], None]:
    """The room left is reckoned wrongly."""
    patch.setattr(node_module, "BODY_BYTES_MAX", 4000)

    def run() -> None:
        cluster = cluster_with(DatagramsFit(), settings=replace(SwimSettings(), statement_bytes_per_s=10**6))
        for number in range(40):
            cluster.swim(0).publish(PayloadKind.STATEMENT, b"%d" % number, 1, b"x" * 300, cluster.now)
        cluster._flush(0)
        cluster.run(5.0)

    return run


def wakes_for_ever(patch: Patch) -> Callable[[], None]:
    """Due timers are not taken off."""
    patch.setattr(MembershipNode, "run_timers", lambda *_: None)
    return lambda: cluster_with(TimeMovesOn()).run(5.0)


def tells_twice(patch: Patch) -> Callable[[], None]:
    """Repetition counts as news."""
    patch.setattr(EventStore, "_note_progress", lambda *_, **__: True)

    def run() -> None:
        cluster = cluster_with(EventsAreNews())
        for version in (2, 1):
            cluster.swim(0).publish(PayloadKind.PROGRESS, b"key", version, b"x", cluster.now)
            item = wire.event(2, cluster.hosts[0].node, version, b"key", b"x")
            cluster.swim(1)._items.take([item, item], cluster.now, FORWARDER)
            cluster._flush(1)

    return run


PLANTED = [
    hasty, revives_by_rumour, believes_any_signature, one_accuser_is_enough, judges_while_frozen, digest_never_forgets,
    tombstones_pile_up, datagrams_too_large, wakes_for_ever, tells_twice,
]  # fmt: skip


@pytest.mark.parametrize("plant", PLANTED, ids=lambda plant: plant.__name__)
def test_a_planted_bug_is_caught(plant: Callable[[Patch], Callable[[], None]], monkeypatch: Patch) -> None:
    run = plant(monkeypatch)
    with pytest.raises(Violation):
        run()


@pytest.mark.parametrize("plant", PLANTED, ids=lambda plant: plant.__name__)
def test_without_the_bug_the_same_run_is_clean(plant: Callable[[Patch], Callable[[], None]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        run = plant(patch)
        patch.undo()
        run()
