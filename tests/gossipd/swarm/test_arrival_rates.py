"""Whose link is slower: by the chunks per second that hosts show, not by what they hold."""

from __future__ import annotations

import math

import pytest

from gossipd.swarm.arrival_rates import ArrivalRates
from tests.gossipd.swarm.planning import OWN, node

BUSY, IDLE = 40, 0  # chunks that wait for the own link


class Watched:
    """This host and others, each heard twice a second."""

    def __init__(self) -> None:
        self.rates = ArrivalRates(OWN)
        self.now = 0.0

    def run(self, seconds: float, *, ready: int = IDLE, **per_s: int) -> None:
        """Hosts ``n1``, ``n2``, ... take in so many chunks a second; ``n0`` is this one."""
        for _ in range(round(2 * seconds)):
            self.now += 0.5
            for name, count in per_s.items():
                self.rates.heard(node(int(name[1:])), count // 2, self.now)
            self.rates.look(ready)


def test_a_host_of_half_the_others_rate_is_behind_though_it_holds_most() -> None:
    watched = Watched()
    watched.rates.heard(node(3), 1000, 0.0)
    watched.run(4.0, n1=40, n2=40, n3=20)
    assert watched.rates.behind == {node(3)}


def test_hosts_that_are_nearly_equal_are_not_behind() -> None:
    watched = Watched()
    watched.run(4.0, n1=40, n2=36, n3=30)
    assert watched.rates.behind == frozenset()


@pytest.mark.parametrize(("per_s", "known_s"), [(2, 5.5), (14, 1.5), (16, 2.0), (30, 1.5)])
def test_a_host_is_judged_by_few_chunks_only_where_it_is_far_behind(per_s: int, known_s: float) -> None:
    watched = Watched()
    watched.run(known_s - 0.5, n1=40, n2=40, n3=per_s)
    assert node(3) not in watched.rates.known
    watched.run(0.5, n1=40, n2=40, n3=per_s)
    assert watched.rates.known == {node(1), node(2), node(3)}
    assert watched.rates.behind == ({node(3)} if per_s < 16 else frozenset())


@pytest.mark.parametrize(("per_s", "windows"), [(14, 0), (18, 2), (22, 3), (26, 4), (30, None)])
def test_the_nearer_a_host_is_to_the_others_the_more_windows_show_that_it_is_behind(
    per_s: int, windows: int | None
) -> None:
    watched = Watched()
    watched.run(0.5, n1=40, n2=40, n3=per_s)
    until_behind_s = None
    for step in range(24):
        watched.run(0.5, n1=40, n2=40, n3=per_s)
        if watched.rates.behind:
            until_behind_s = (step + 1) / 2
            break
    window_s = math.ceil(20 / (per_s / 2)) / 2  # a host is heard twice a second
    assert until_behind_s == (None if windows is None else max(1.0, windows * window_s))


def test_a_second_of_a_busy_machine_makes_no_host_slow() -> None:
    watched = Watched()
    watched.run(1.5, n1=60, n2=50, n3=34)
    assert watched.rates.known == {node(1), node(2), node(3)}
    assert watched.rates.behind == frozenset()
    watched.run(1.5, n1=30, n2=40, n3=56)
    assert watched.rates.behind == frozenset()


@pytest.mark.parametrize("before", [IDLE, BUSY])
@pytest.mark.parametrize("ready", [IDLE, BUSY])
def test_this_host_is_behind_only_while_chunks_wait_for_its_link(before: int, ready: int) -> None:
    watched = Watched()
    watched.run(4.0, ready=before, n0=20, n1=40, n2=40)
    watched.run(4.0, ready=ready, n0=20, n1=40, n2=40)
    assert watched.rates.is_own_behind is (ready == BUSY)


def test_the_best_rate_counts_also_when_nothing_comes_for_a_while() -> None:
    watched = Watched()
    watched.run(4.0, n1=40, n2=40, n3=40)
    watched.run(4.0, n1=40, n2=40, n3=4)
    assert watched.rates.behind == frozenset()


def test_a_verdict_stands_until_the_rate_is_well_above_its_limit() -> None:
    watched = Watched()
    watched.run(4.0, n1=40, n2=40, n3=20)
    watched.run(4.0, n1=40, n2=40, n3=30)
    assert watched.rates.behind == {node(3)}
    watched.run(4.0, n1=40, n2=40, n3=36)
    assert watched.rates.behind == frozenset()


def test_a_liar_among_five_makes_nobody_slow() -> None:
    watched = Watched()
    watched.run(4.0, n1=4000, n2=40, n3=40, n4=40, n5=40)
    assert watched.rates.behind == frozenset()


def test_a_host_that_is_back_is_measured_from_its_first_message() -> None:
    watched = Watched()
    watched.run(4.0, n1=40, n2=40, n3=20)
    watched.rates.forget(node(3))
    assert watched.rates.behind == frozenset()
    watched.rates.heard(node(3), 5000, watched.now)
    watched.run(0.5, n1=40, n2=40)
    assert node(3) not in watched.rates.known


def test_a_slower_host_knows_the_hosts_like_it_and_a_quick_one_has_none() -> None:
    watched = Watched()
    watched.run(4.0, ready=BUSY, n0=20, n1=40, n2=40, n3=40, n4=22, n5=10)
    assert watched.rates.behind == {OWN, node(4), node(5)}
    assert watched.rates.alike == {node(4)}, "that one at half this host's rate is no relief to the quick ones"
    watched.rates.forget(node(4))
    assert watched.rates.alike == frozenset()
    quick = Watched()
    quick.run(4.0, ready=BUSY, n0=40, n1=40, n2=40, n4=20)
    assert quick.rates.alike == frozenset()


def test_the_link_idles_where_less_comes_than_it_has_shown_and_nothing_waits_for_it() -> None:
    watched = Watched()
    assert not watched.rates.link_use(100.0).is_idle, "nothing is known"
    watched.run(8.0, ready=IDLE, n0=50)
    assert watched.rates.link_use(100.0).is_idle
    assert not watched.rates.link_use(55.0).is_idle
    watched.run(8.0, ready=BUSY, n0=50)
    assert not watched.rates.link_use(100.0).is_idle


def test_a_quick_host_lacks_uplinks_where_much_waits_and_others_are_slow() -> None:
    watched = Watched()
    watched.run(4.0, ready=BUSY, n0=40, n1=40, n2=40, n3=20)
    assert watched.rates.lacks_uplinks(BUSY)
    assert not watched.rates.lacks_uplinks(IDLE)
    watched = Watched()
    watched.run(4.0, ready=BUSY, n0=20, n1=40, n2=40, n3=40)
    assert not watched.rates.lacks_uplinks(BUSY), "its own link is the slow one"
    watched = Watched()
    watched.run(4.0, ready=BUSY, n0=40, n1=40, n2=40)
    assert not watched.rates.lacks_uplinks(BUSY), "all are alike"


def test_uplinks_of_half_the_rate_are_useful_and_those_of_a_tenth_are_not() -> None:
    watched = Watched()
    watched.run(8.0, n1=40, n2=40, n3=40, n4=20, n5=4)
    assert watched.rates.behind == {node(4), node(5)}
    assert watched.rates.useful == {node(4)}
    watched.rates.forget(node(4))
    assert watched.rates.useful == frozenset()
