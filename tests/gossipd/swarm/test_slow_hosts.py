"""Who is too far behind to be waited for: by what it holds, until it is heard to have caught up."""

from __future__ import annotations

from gossipd.swarm.availability import Availability
from gossipd.swarm.neighbour_subscriptions import NeighbourSubscriptions
from gossipd.swarm.slow_hosts import SlowHosts
from tests.gossipd.swarm.planning import SETTINGS, node

SECONDS = 2.0  # that a chunk takes: news of it are as good as fresh
MARGIN = SETTINGS.behind_chunks + int(2 * SETTINGS.news_lazy_s / SECONDS)


class Watched:
    """This host and its mates 1 to 4, in a model of 1,000 chunks; 9 is in another rack."""

    def __init__(self) -> None:
        self.seen = Availability(1000, held=0)
        self.listened = NeighbourSubscriptions(SETTINGS)
        self.slow_hosts = SlowHosts(SETTINGS)

    def hear(self, at_s: float = 1.0, **counts: int) -> None:
        """Hosts ``n1``, ``n2``, ... hold so many chunks."""
        for name, count in counts.items():
            number = int(name[1:])
            self.seen.add(node(number), range(count), near=number < 9)
            self.listened.heard(node(number), at_s)

    def look(self, held: int, *, at_s: float = 1.0, chunk_time_s: float = SECONDS) -> SlowHosts:
        rack_peers = [node(number) for number in range(1, 5)]
        self.slow_hosts.look(
            self.seen, self.listened, rack_peers, held=held, missing=1000 - held, chunk_time_s=chunk_time_s, now=at_s
        )  # fmt: skip
        return self.slow_hosts


def test_who_holds_far_less_than_we_do_is_slow_wherever_it_is() -> None:
    watched = Watched()
    watched.hear(n1=100, n2=75 - MARGIN, n3=75 - MARGIN - 1, n9=10)
    assert watched.look(100).others == {node(3), node(9)}


def test_where_chunks_take_no_longer_than_news_of_them_more_may_be_on_their_way() -> None:
    watched = Watched()
    watched.hear(n1=75 - MARGIN - 1, n2=75 - SETTINGS.lag_chunks - 1)
    assert watched.look(100, chunk_time_s=0.02).others == {node(2)}


def test_what_was_heard_a_while_ago_is_compared_with_what_was_here_then() -> None:
    watched = Watched()
    watched.look(100, at_s=1.0)
    watched.hear(n1=100, n2=10, at_s=1.0)
    assert watched.look(100, at_s=1.5).others == {node(2)}
    watched.hear(n3=100, at_s=2.5)
    assert watched.look(400, at_s=2.5).others == {node(2), node(3)}, "the first was heard when 100 were here"


def test_who_says_nothing_is_judged_by_what_was_here_two_lazy_news_ago() -> None:
    watched = Watched()
    watched.hear(n1=0, at_s=1.0)
    watched.look(0, at_s=1.0)
    patient_s = 1.0 + 2 * SETTINGS.news_lazy_s
    watched.look(500, at_s=1.5)
    assert watched.look(900, at_s=patient_s + 0.4).others == frozenset()
    assert watched.look(900, at_s=patient_s + 0.6).others == {node(1)}


def test_a_slow_host_that_is_listened_to_no_more_stays_slow_until_it_is_heard_to_have_caught_up() -> None:
    watched = Watched()
    watched.hear(n9=10)
    assert watched.look(100).others == {node(9)}
    del watched.listened.heard_s[node(9)]
    assert watched.look(200).others == {node(9)}
    watched.hear(n9=199)
    assert watched.look(200).others == frozenset()


def test_who_was_never_slow_and_is_not_listened_to_is_not_judged() -> None:
    watched = Watched()
    watched.seen.add(node(9), [1], near=False)
    assert watched.look(500).others == frozenset()


def test_a_host_is_slow_when_half_of_its_mates_are_far_ahead_and_not_when_one_is() -> None:
    watched = Watched()
    watched.hear(n1=400, n2=20, n3=20)
    assert not watched.look(20).is_own
    watched.hear(n2=400)
    assert watched.look(20).is_own
    assert not watched.look(300).is_own
    assert not watched.look(1000).is_own


def test_one_mate_alone_says_nothing_about_us() -> None:
    watched = Watched()
    watched.hear(n1=900, n9=900)
    assert not watched.look(0).is_own
    assert watched.look(0).may_promise(0)


def test_a_host_that_is_some_chunks_behind_its_mates_promises_nothing() -> None:
    watched = Watched()
    watched.hear(n1=50, n2=50, n3=50)
    slow_hosts = watched.look(40)
    assert slow_hosts.may_promise(50 - SETTINGS.behind_chunks)
    assert not slow_hosts.may_promise(50 - SETTINGS.behind_chunks - 1)
    assert not slow_hosts.is_own
