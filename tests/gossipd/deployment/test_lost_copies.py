"""Copies that a rack has lost are made again: by whom, when, and that no sequence of losses ends with too few."""

from __future__ import annotations

from random import Random
from types import SimpleNamespace
from typing import Any, cast

import pytest
from msgspec.structs import replace

from gossipd.core.ids import DeploymentId
from gossipd.core.reasons import HostReason
from gossipd.deployment.eviction_plan import keepers
from gossipd.deployment.lost_copies import CopyRules, LostCopies, RackView
from gossipd.deployment.progress_record import HostState
from gossipd.deployment.statement import Verb
from membership.member import NodeId

ONE, TWO = DeploymentId(b"1" * 32), DeploymentId(b"2" * 32)
NODES = [NodeId(bytes([number]) * 16) for number in range(8)]
AFTER_S = 60.0
FIRST, SECOND, THIRD = keepers(ONE, NODES[:3], 3)


def due(lost: LostCopies, copies: int, now: float, *, replicas: int = 2) -> bool:
    view = RackView(copies, frozenset(NODES[:3]))
    return lost.due({ONE: view}, replicas=replicas, after_s=AFTER_S, now=now) == [ONE]


def test_a_copy_that_is_missing_for_a_while_is_made_by_the_first_host() -> None:
    first, second = LostCopies(FIRST), LostCopies(SECOND)
    assert [due(first, 1, now) for now in (0.0, 59.0, 60.0)] == [False, False, True]
    assert [due(second, 1, now) for now in (0.0, 60.0, 119.0)] == [False] * 3, "it waits for the first"
    assert due(second, 1, 120.0), "which did not"


def test_as_many_hosts_begin_as_copies_are_missing() -> None:
    for node, begins in ((FIRST, True), (SECOND, True), (THIRD, False)):
        lost = LostCopies(node)
        due(lost, 0, 0.0)
        assert due(lost, 0, 60.0) is begins


def test_a_host_that_is_back_in_time_ends_the_wait() -> None:
    lost = LostCopies(FIRST)
    assert [due(lost, copies, now) for copies, now in ((1, 0.0), (2, 50.0), (1, 60.0), (1, 119.0))] == [False] * 4
    assert due(lost, 1, 120.0)
    assert not due(lost, 1, 120.0, replicas=0), "the operator wants none"


def test_what_is_missing_for_longest_comes_first() -> None:
    lost, view = LostCopies(NODES[0]), RackView(0, frozenset(NODES[:1]))
    lost.due({TWO: view}, replicas=1, after_s=AFTER_S, now=0.0)
    lost.due({TWO: view, ONE: view}, replicas=1, after_s=AFTER_S, now=1.0)
    assert lost.due({TWO: view, ONE: view}, replicas=1, after_s=AFTER_S, now=99.0) == [TWO, ONE]


class Rack:
    """Hosts that have the version, fetch it, or have evicted it; each decides by what it sees, which may be old."""

    FETCH_S = 30.0

    def __init__(self, seed: int, *, replicas: int) -> None:
        self.random, self.replicas, self.now = Random(seed), replicas, 0.0
        self.alive = set(NODES)
        self.complete = set(NODES)
        self.fetching: dict[NodeId, float] = {}
        self.lost = {node: LostCopies(node) for node in NODES}
        self.without_room: set[NodeId] = set()
        self.begun = 0

    def evict(self) -> None:
        """Every host whose disk is too full, by the rule that it is held to."""
        for node in sorted(self.alive & self.complete):
            holders = self.alive & self.complete
            if node not in keepers(ONE, holders, self.replicas):
                self.complete.discard(node)

    def break_something(self) -> None:
        node = self.random.choice(NODES)
        draw = self.random.random()
        if draw < 0.5 and len(self.alive) > 3:
            self.alive.discard(node)
            self.fetching.pop(node, None)
        elif draw < 0.7:
            self.alive.add(node)
            if self.random.random() < 0.5:
                self.complete.discard(node)  # its disk was replaced, and it had evicted it before
        elif draw < 0.85:
            self.without_room ^= {node} if len(self.without_room - {node}) < 2 else {node} & self.without_room
        else:
            self.evict()

    def step(self, seconds: float) -> None:
        self.now += seconds
        for node in [node for node, until_s in self.fetching.items() if until_s <= self.now]:
            del self.fetching[node]
            self.complete.add(node)
        evicted = self.alive - self.complete - self.fetching.keys()
        copies = len(self.alive & self.complete) + len(self.fetching)
        for node in sorted(evicted):
            view = RackView(copies, frozenset(evicted))
            if self.lost[node].due({ONE: view}, replicas=self.replicas, after_s=AFTER_S, now=self.now):
                if node in self.without_room:
                    continue
                self.fetching[node] = self.now + self.FETCH_S
                self.begun += 1


@pytest.mark.parametrize("seed", range(60))
def test_whatever_is_lost_a_rack_with_room_has_its_copies_again(seed: int) -> None:
    rack = Rack(seed, replicas=1 + seed % 3)
    for _ in range(40):
        rack.break_something()
        rack.step(rack.random.choice((1.0, 5.0, 20.0, 90.0)))
    able = rack.alive - rack.without_room | (rack.alive & rack.complete)
    for _ in range(int((len(NODES) + 2) * AFTER_S / 5)):
        rack.step(5.0)
    copies = len(rack.alive & rack.complete)
    assert copies >= min(rack.replicas, len(able))
    begun = rack.begun
    for _ in range(100):
        rack.step(5.0)
    assert (rack.begun, rack.fetching) == (begun, {}), "nothing more is fetched"
    rack.evict()
    assert len(rack.alive & rack.complete) == min(rack.replicas, copies), "what is too much may go again"


def test_hosts_that_see_the_same_make_no_copy_too_many() -> None:
    for replicas in (1, 2, 3):
        rack = Rack(1, replicas=replicas)
        rack.evict()
        rack.alive -= set(sorted(rack.complete)[:1])
        for _ in range(100):
            rack.step(5.0)
        assert (len(rack.alive & rack.complete), rack.begun) == (replicas, 1)


RULES = CopyRules(replicas=1, after_s=AFTER_S, versions_kept=2, wanted_in_part=(), disk_bytes=100, free_bytes=100,
                  high_percent=0)  # fmt: skip


class Version:
    """A record of version ``number`` of m, of 10 bytes."""

    def __init__(self, number: int, state: HostState = HostState.EVICTED) -> None:
        self.id, self.state, self.told_state = DeploymentId(bytes([number]) * 32), state, state
        self.statement = SimpleNamespace(verb=Verb.DEPLOY)
        self.manifest: Any = SimpleNamespace(version=number, bytes_total=10)
        self.is_live, self.is_paused, self.stall, self.reason = False, False, None, HostReason.NONE


class Table(list[Version]):
    """All versions of m on a host whose rack has no copy of any."""

    def get(self, deployment: DeploymentId) -> Version | None:
        return next((one for one in self if one.id == deployment), None)

    def find(self, name: str) -> list[Version]:
        return self

    def model_of(self, deployment: DeploymentId) -> tuple[str, int]:
        return "m", deployment[0]

    def taken(self, rules: CopyRules = RULES) -> int | None:
        """The version, after so long that all are due."""
        lost, views = LostCopies(NODES[0]), {one.id: RackView(0, frozenset(NODES[:1])) for one in self}
        lost.next(cast(Any, self), views, rules, 0.0)
        record = lost.next(cast(Any, self), views, rules, AFTER_S)
        return None if record is None else record.id[0]


def test_one_version_is_taken_while_nothing_else_is_under_way() -> None:
    assert Table([Version(1), Version(2)]).taken() == 1
    busy = Version(3, HostState.DOWNLOADING)
    busy.is_live = True
    table = Table([Version(1), busy])
    assert table.taken() is None
    busy.reason = HostReason.NO_SPACE
    assert table.taken() == 1, "one that waits for an operator holds up nothing"


def test_it_must_fit_below_the_high_watermark() -> None:
    for used, high, taken in ((90, 0, 1), (91, 0, None), (79, 90, 1), (80, 90, None)):
        rules = replace(RULES, free_bytes=100 - used, high_percent=high)
        assert Table([Version(1)]).taken(rules) == taken, (used, high)
    small = Version(2)
    small.manifest.bytes_total = 5
    assert Table([Version(1), small]).taken(replace(RULES, free_bytes=7)) == 2, "the next that fits"
    unread = Version(1)
    unread.manifest = None
    assert Table([unread]).taken() == 1, "its size is seen when the manifest is read"


def test_what_is_over_or_wanted_in_part_or_surplus_stays_evicted() -> None:
    cancelled = Version(1)
    cancelled.statement.verb = Verb.CANCEL
    assert Table([cancelled, Version(2, HostState.REMOVED)]).taken() is None
    assert Table([Version(1)]).taken(replace(RULES, wanted_in_part={"m"})) is None
    surplus = Table([Version(1), Version(2, HostState.COMPLETE), Version(3, HostState.COMPLETE)])
    assert surplus.taken() is None, "keep_versions would delete it at once"
    assert surplus.taken(replace(RULES, versions_kept=3)) == 1
    assert surplus.taken(replace(RULES, versions_kept=3, replicas=0)) is None
