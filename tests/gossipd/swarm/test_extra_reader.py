"""When a host reads storage beside the source readers, because its own link idles, and when it stops."""

from __future__ import annotations

from itertools import pairwise
from random import Random

import pytest

from gossipd.core.chunkset import ChunkSet
from gossipd.core.targets import Targets
from gossipd.swarm.arrival_rates import LinkUse
from gossipd.swarm.extra_reader import ExtraReader
from gossipd.swarm.local_replica import LocalReplica
from gossipd.swarm.peers import Peers
from gossipd.swarm.rendezvous import BUCKETS, scores
from gossipd.swarm.roles import Roles
from gossipd.swarm.source_read_planner import SourceReadPlanner
from tests.gossipd.swarm.planning import DEPLOYMENT, OWN, SETTINGS, node, shape, view

SEED = node(1)
CHUNKS = 2_000
BUSY = LinkUse(95.0, 100.0, is_waiting=True)
IDLE = LinkUse(50.0, 100.0, is_waiting=True)
QUEUED = LinkUse(50.0, 100.0, is_waiting=False)


class Watched:
    """This host, in a cluster whose only seed is host 1 and reads; each step is a quarter of a second."""

    def __init__(self, *others: int) -> None:
        self.now, self.held, self.step_s, self.chunk_time_s = 100.0, 0.0, 0.25, 0.01
        self.peers = Peers(SETTINGS, Random(1), OWN)
        self.own = view(0)
        for number in (1, *others):
            self.peers.seen(view(number, term=5 if number == 1 else 0))
        self.reader = SourceReadPlanner(OWN, shape(CHUNKS), DEPLOYMENT, SETTINGS, Random(1))
        self.reader.set_readers(((SEED,),) * BUCKETS, by_chunk=False, now=self.now)
        self.extra = ExtraReader(DEPLOYMENT, self.now)
        self.roles = Roles(self.own, Targets(), DEPLOYMENT, SETTINGS, shape=shape(CHUNKS))
        self.seeds(SEED)

    def seeds(self, *seeds: bytes) -> None:
        self.roles.refresh(self.own, self.peers, frozenset(), frozenset(seeds), self.now)  # type: ignore[arg-type]

    def run(self, seconds: float, use: LinkUse = IDLE, *, per_s: float = 50.0, may_read: bool = True) -> list[float]:
        """The times, from now, at which the verdict changes; a host that reads ends a read in each step."""
        begun, changes = self.now, []
        while self.now < begun + seconds:
            self.now += self.step_s
            self.held += per_s * self.step_s
            self.reader.claimed(SEED, (int(self.now * 4) % CHUNKS,), self.now)
            if self.extra.is_active:
                self.reader.read_ended(0.1, 0.02)
            before = self.extra.is_active
            told = self.extra.look(
                use, self.reader, self.own, self.roles, self.peers,
                held=int(self.held), may_read=may_read, chunk_time_s=self.chunk_time_s, now=self.now,
            )  # fmt: skip
            if self.extra.is_active is not before:
                changes.append(self.now - begun)
            assert told is (self.extra.is_active is not before)
        return changes


def first_of(order: int) -> list[int]:
    """Hosts that stand before this one in the order of tries."""
    own = scores(OWN, DEPLOYMENT, 1)
    return [number for number in range(2, 200) if scores(node(number), DEPLOYMENT, 1) > own][:order]


def test_a_host_whose_link_idles_soon_tries_and_goes_on_when_more_comes() -> None:
    watched = Watched()
    (tried_s,) = watched.run(3.0)
    assert tried_s <= 2.0
    assert watched.run(60.0, BUSY, per_s=95.0) == []
    assert watched.extra.is_active


def test_a_try_that_brings_nothing_ends_and_the_next_comes_much_later() -> None:
    watched = Watched()
    (tried_s,) = watched.run(2.0)
    ended_s, again_s, *_ = watched.run(20.0)
    assert ended_s <= 5.0
    assert again_s - ended_s >= 4 * tried_s


def test_where_a_chunk_takes_seconds_a_try_is_judged_by_many_chunks() -> None:
    watched = Watched()
    watched.chunk_time_s = 2.0
    (tried_s,) = watched.run(60.0, per_s=0.25)
    assert tried_s >= 10 * watched.chunk_time_s
    assert watched.run(40.0, per_s=0.25) == [], "ten chunks more or less are chance"
    assert len(watched.run(250.0, per_s=0.25)) >= 1, "but a try that brings nothing ends"


@pytest.mark.parametrize(
    "use", [BUSY, QUEUED, LinkUse(0.0, 100.0, is_waiting=True), LinkUse(50.0, 0.0, is_waiting=True)]
)
def test_a_host_whose_link_is_used_or_not_known_never_tries(use: LinkUse) -> None:
    assert Watched().run(120.0, use) == []


def test_nothing_is_tried_where_reads_are_held_back() -> None:
    assert Watched().run(120.0, may_read=False) == []
    watched = Watched()
    watched.run(3.0)
    assert len(watched.run(1.0, may_read=False)) == 1, "and a try ends"
    assert not watched.extra.is_active


def test_hosts_try_one_after_the_other() -> None:
    waits = [Watched(*first_of(place)).run(20.0)[0] for place in range(5)]
    assert all(later - earlier >= 0.5 for earlier, later in pairwise(waits)), waits


def test_a_host_that_hears_another_try_waits_twice_as_long_from_then() -> None:
    watched = Watched(2)
    waits_s = watched.run(10.0)[0]
    watched = Watched(2)
    watched.run(waits_s - 0.5)
    watched.reader.claimed(node(2), (1_999,), watched.now)
    assert watched.run(10.0)[0] >= waits_s + 1.0


def test_a_host_that_becomes_a_seed_reads_as_such() -> None:
    watched = Watched()
    watched.run(3.0)
    watched.seeds(SEED, OWN)
    assert len(watched.run(30.0)) == 1
    assert not watched.extra.is_active


def test_a_try_ends_at_once_when_storage_refuses() -> None:
    watched = Watched()
    watched.run(2.0)
    assert watched.extra.is_active
    watched.reader.read_failed(watched.now)
    use = watched.extra.look(
        IDLE,
        watched.reader,
        watched.own,
        watched.roles,
        watched.peers,
        held=0,
        may_read=True,
        chunk_time_s=0.01,
        now=watched.now,
    )
    assert use
    assert not watched.extra.is_active


def test_an_extra_reader_owns_nothing_and_stands_last_in_every_list() -> None:
    watched = Watched()
    lines = ((SEED, node(2)),) * BUCKETS
    assert watched.extra.lines(lines, OWN) == lines
    watched.run(3.0)
    assert watched.extra.lines(lines, OWN) == ((SEED, node(2), OWN),) * BUCKETS


def plans(reader: SourceReadPlanner, *, is_extra: bool) -> list[int]:
    replica = LocalReplica(DEPLOYMENT, shape(CHUNKS, extent=4), ChunkSet(CHUNKS), now=0.0)
    return [chunk for run in reader.plan(replica, 0.0, is_extra=is_extra) for chunk in run]


def test_what_it_reads_lies_beyond_what_the_owners_read_now() -> None:
    owner, extra = (
        SourceReadPlanner(own, shape(CHUNKS, extent=4), DEPLOYMENT, SETTINGS, Random(3)) for own in (SEED, OWN)
    )
    for reader in (owner, extra):
        reader.set_readers(((SEED, OWN),) * BUCKETS, by_chunk=False, now=0.0)
        reader.readable = True
    owned, more = plans(owner, is_extra=False), plans(extra, is_extra=True)
    assert owned and more and not {*owned} & {*more}
    assert len(more) == len({*more}), "each chunk once, though nothing is known to be under way yet"
    assert plans(extra, is_extra=False) == []


def test_near_the_end_an_extra_reader_begins_nothing() -> None:
    extra = SourceReadPlanner(OWN, shape(CHUNKS), DEPLOYMENT, SETTINGS, Random(3))
    extra.set_readers(((SEED, OWN),) * BUCKETS, by_chunk=False, now=0.0)
    extra.readable = True
    extra.rebuild((1 << CHUNKS) - (1 << 20))
    assert not extra.can_read_extra
    assert plans(extra, is_extra=True) == []
