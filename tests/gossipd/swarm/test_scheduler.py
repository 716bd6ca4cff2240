"""Which chunk of whom: imports first, rare before common, idle holders before busy ones, never a shunned one."""

from __future__ import annotations

from random import Random

from gossipd.core.events import FailReason
from gossipd.swarm.availability import Availability
from gossipd.swarm.demand import Demand
from gossipd.swarm.peers import Peers
from gossipd.swarm.pipelining import Pipelining
from gossipd.swarm.rendezvous import BUCKETS
from gossipd.swarm.scheduler import Scheduler
from tests.gossipd.swarm.planning import SETTINGS, node, view


class Table:
    """A scheduler with rack mates 1 and 2, and 9 in another rack; all first in line."""

    def __init__(self) -> None:
        self.peers = Peers(SETTINGS, Random(1))
        for number in (1, 2):
            self.peers.seen(view(number))
        self.peers.seen(view(9, "b"))
        self.seen = Availability(50, held=0)
        self.wants = Demand(self.seen, SETTINGS)
        self.wants.want(range(50))
        self.wants.set_places([0] * BUCKETS, [0] * BUCKETS, 0.0, 1.0)
        self.pipelining = Pipelining()
        self.scheduler = Scheduler(self.seen, self.wants, self.peers, self.pipelining, settings=SETTINGS, rng=Random(2))

    def hear(self, number: int, *chunks: int, free: int = 4) -> None:
        near = number < 9
        for chunk in self.seen.add(node(number), chunks, near=near):
            self.wants.consider(chunk, 0.0, 1.0)
        self.peers.hears(node(number), free, 0.0)

    def pick(self, count: int = 1, now: float = 0.0, *, imports_max: int = 16) -> list[tuple[int, bytes]]:
        return [(one.chunk, one.node) for one in self.scheduler.pick(count, now, 0.02, imports_max=imports_max)]


def test_what_the_rack_waits_for_goes_first() -> None:
    table = Table()
    table.hear(1, 3)
    table.hear(9, 7)
    assert table.pick(2) == [(7, node(9)), (3, node(1))]


def test_no_more_come_from_other_racks_than_there_is_room_for_and_the_rest_from_the_own() -> None:
    table = Table()
    table.hear(1, 3)
    table.hear(9, 7, 8)
    assert table.pick(3, imports_max=0) == [(3, node(1))]
    assert not table.scheduler.all_busy, "nobody was busy: it is the window that is shut"
    assert len(table.pick(3, imports_max=1)) == 1


def test_imports_that_no_rack_peer_waits_for_leave_room_for_what_the_rack_holds() -> None:
    table = Table()
    table.wants.set_places([0] * BUCKETS, [0] * BUCKETS, 0.0, 1.0, lone=[True] * BUCKETS)
    table.hear(1, 3)
    table.hear(9, 7, 8)
    picked = table.scheduler.pick(2, 0.0, 0.02, imports_max=16, own_max=1)
    assert [one.node for one in picked] == [node(9), node(1)]


def test_what_busy_rack_peers_hold_is_asked_of_other_racks_where_the_link_lacks_uplinks() -> None:
    table = Table()
    table.hear(1, 3, free=0)
    table.hear(9, 3)
    assert table.scheduler.pick(1, 0.0, 0.02, imports_max=16) == []
    assert [(one.chunk, one.node) for one in table.scheduler.pick(2, 0.0, 0.02, imports_max=16, far_max=2)] == [
        (3, node(9))
    ]
    table = Table()
    table.hear(1, 3)
    table.hear(9, 3)
    assert [one.node for one in table.scheduler.pick(1, 0.0, 0.02, imports_max=16, far_max=2)] == [node(1)]
    table = Table()
    table.hear(1, 3, free=0)
    table.hear(9, 3)
    table.scheduler.behind = frozenset({node(9)})
    assert table.scheduler.pick(1, 0.0, 0.02, imports_max=16, far_max=2) == [], "its own equals wait for a slow uplink"


def test_an_idle_holder_is_asked_before_a_busy_one() -> None:
    table = Table()
    table.hear(1, 3, free=1)
    table.hear(2, 3, free=4)
    busy = table.peers.get(node(1))
    assert busy is not None
    for _ in range(2):
        busy.asked += 1
    assert table.pick() == [(3, node(2))]


def test_a_holder_without_free_slots_is_left_alone_until_the_news_is_old() -> None:
    table = Table()
    table.hear(1, 3, free=0)
    assert table.pick() == []
    assert table.scheduler.all_busy
    assert table.pick(now=1.0) == [(3, node(1))]


def test_a_chunk_is_never_picked_twice() -> None:
    table = Table()
    table.hear(1, 3, 4)
    table.hear(2, 3, 4)
    picked = table.pick(5)
    assert sorted(chunk for chunk, _ in picked) == [3, 4]
    assert table.pick(5) == []


def test_one_peer_never_holds_all_fetches() -> None:
    table = Table()
    table.hear(1, *range(20), free=20)
    assert len(table.pick(10)) == SETTINGS.fetches_per_peer_max


def test_a_shunned_peer_is_not_asked() -> None:
    table = Table()
    table.hear(1, 3)
    table.peers.reached(node(1), False)
    assert table.pick() == []


def test_a_slow_holder_is_not_asked_while_another_is_only_busy() -> None:
    table = Table()
    table.scheduler.slow = frozenset({node(1)})
    table.hear(1, 3)
    table.hear(2, 3, free=0)
    assert table.pick() == []
    table.peers.reached(node(2), False)
    assert table.pick() == [(3, node(1))], "the other one is out of reach"


def test_a_slow_holder_is_asked_when_the_only_other_is_the_one_that_is_late() -> None:
    table = Table()
    table.scheduler.slow = frozenset({node(1)})
    table.hear(1, 3)
    table.hear(2, 3)
    found = table.scheduler.supplier([node(1), node(2)], 0.0, 0.02, but=node(2))
    assert found is not None and found[1].view.node == node(1)


def test_what_only_slow_hosts_hold_is_asked_of_them() -> None:
    table = Table()
    table.scheduler.slow = frozenset({node(1)})
    table.hear(1, 3)
    assert table.pick() == [(3, node(1))]


def test_the_same_generator_gives_the_same_picks() -> None:
    runs = []
    for _ in range(2):
        table = Table()
        table.hear(1, *range(20))
        table.hear(2, *range(10, 30))
        runs.append(table.pick(6))
    assert runs[0] == runs[1]


def test_a_busy_peer_is_asked_for_what_follows_one_of_our_fetches_there_before_an_idle_one() -> None:
    table = Table()
    table.hear(1, 3, 4, free=0)
    table.hear(2, 3, 4, free=4)
    table.pipelining.add(node(1), 9)
    first, second = table.scheduler.pick(2, 0.0, 0.02, imports_max=16)
    assert (first.node, first.behind) == (node(1), 9)
    assert (second.node, second.behind) == (node(2), None), "one fetch is followed by one"


def test_a_slower_host_asks_its_equals_before_a_quick_host_that_it_could_follow() -> None:
    table = Table()
    table.hear(1, 3, 4, free=4)
    table.hear(2, 3, 4, free=4)
    table.pipelining.add(node(1), 9)
    table.scheduler.equals = frozenset({node(2)})
    first, _ = table.scheduler.pick(2, 0.0, 0.02, imports_max=16)
    assert (first.node, first.behind) == (node(2), None)


def test_a_slower_host_asks_a_quick_one_for_what_its_equals_lack() -> None:
    table = Table()
    table.hear(1, 3)
    table.scheduler.equals = frozenset({node(2)})
    assert table.pick() == [(3, node(1))]


def test_nothing_follows_a_fetch_from_a_peer_that_is_shunned() -> None:
    table = Table()
    table.hear(1, 3)
    table.pipelining.add(node(1), 9)
    table.peers.failed(node(1), FailReason.CORRUPT, 0.0)
    assert table.pick() == []


def test_a_second_fetch_of_a_late_chunk_follows_nothing() -> None:
    table = Table()
    table.hear(1, 3, free=0)
    table.pipelining.add(node(1), 9)
    assert table.scheduler.supplier([node(1)], 0.0, 10.0) is None


def test_the_last_chunks_follow_nothing_that_may_be_slow() -> None:
    table = Table()
    table.wants.wanted -= set(range(5, 50))
    table.hear(1, 3, 4, free=0)
    table.hear(2, 3, 4, free=4)
    table.pipelining.add(node(1), 9)
    assert [one.behind for one in table.scheduler.pick(1, 0.0, 0.02, imports_max=16)] == [9], "five are left"
    table.pipelining.add(node(1), 10)
    (last,) = table.scheduler.pick(1, 0.0, 0.02, imports_max=16)
    assert (last.node, last.behind) == (node(2), None)


def test_what_could_follow_is_not_taken_by_one_of_the_last_chunks_that_goes_there_anyway() -> None:
    table = Table()
    table.wants.wanted -= set(range(2, 50))
    table.hear(1, 0, free=4)
    table.pipelining.add(node(1), 9)
    (last,) = table.scheduler.pick(1, 0.0, 0.02, imports_max=16)
    assert (last.node, last.behind) == (node(1), None)


def test_nothing_follows_a_fetch_from_a_peer_that_has_shown_itself_slow() -> None:
    table = Table()
    for elapsed_s, number in ((0.1, 2), (0.1, 2), (2.0, 1)):
        table.peers.delivered(node(number), elapsed_s, 0.0)
    table.hear(1, 3, free=0)
    table.pipelining.add(node(1), 9)
    assert table.pick() == []
