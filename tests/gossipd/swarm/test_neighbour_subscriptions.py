"""Whom we have asked for news: again after silence, a restart or an absence, and not without end."""

from __future__ import annotations

from itertools import pairwise

from gossipd.swarm.neighbour_subscriptions import NeighbourSubscriptions
from membership.member import NodeId
from tests.gossipd.swarm.planning import SETTINGS, node

A, B = node(1), node(2)


def refreshed(
    subs: NeighbourSubscriptions, now: float, *, usable: bool = True, full: bool = False
) -> tuple[list[NodeId], ...]:
    return subs.refresh({A}, {A} if usable else set(), lambda peer: full, now)


def answered(subs: NeighbourSubscriptions, now: float, *, usable: bool = True) -> tuple[list[NodeId], ...]:
    """Refreshed, and a question has its answer at once."""
    found = refreshed(subs, now, usable=usable)
    if found[0]:
        subs.heard(A, now, is_news=False)
    return found


def test_a_neighbour_is_asked_once_while_it_talks() -> None:
    subs = NeighbourSubscriptions(SETTINGS)
    assert refreshed(subs, 0.0) == ([A], [])
    for second in range(1, 20):
        subs.heard(A, float(second))
        assert refreshed(subs, second + 0.5) == ([], [])


def test_a_question_without_an_answer_is_left_to_the_sessions() -> None:
    subs = NeighbourSubscriptions(SETTINGS)
    assert refreshed(subs, 0.0) == ([A], [])
    assert refreshed(subs, 100.0) == ([], [])
    subs.heard(A, 100.0)
    assert refreshed(subs, 105.1) == ([A], [])
    assert refreshed(subs, 1000.0) == ([], [])


def test_a_silent_neighbour_is_asked_again_unless_it_holds_everything() -> None:
    subs = NeighbourSubscriptions(SETTINGS)
    answered(subs, 0.0)
    assert refreshed(subs, 6.0, full=True) == ([], [])
    assert refreshed(subs, 6.0) == ([A], [])
    assert refreshed(subs, 7.0) == ([], [])


def test_a_neighbour_that_has_nothing_to_say_is_asked_later_each_time_and_soon_again_when_it_had() -> None:
    subs = NeighbourSubscriptions(SETTINGS)
    answered(subs, 0.0)
    asked = [tenth / 10 for tenth in range(1, 2000) if answered(subs, tenth / 10)[0]]
    gaps = [round(after - before) for before, after in pairwise(asked)]
    assert gaps[:4] == [10, 20, 40, 40]
    subs.heard(A, 200.0)
    assert refreshed(subs, 204.0) == ([], [])
    assert refreshed(subs, 205.1) == ([A], [])


def test_where_chunks_are_slow_silence_is_asked_about_by_what_they_take_and_no_later_each_time() -> None:
    subs = NeighbourSubscriptions(SETTINGS)
    asked = []
    for second in range(400):
        if subs.refresh({A}, {A}, lambda peer: False, float(second), chunk_time_s=15.0)[0]:
            asked.append(float(second))
            subs.heard(A, float(second))
    assert {after - before for before, after in pairwise(asked)} == {61.0}


def test_two_hosts_whose_messages_are_slow_do_not_ask_each_other_for_ever() -> None:
    ours, theirs = NeighbourSubscriptions(SETTINGS), NeighbourSubscriptions(SETTINGS)
    for subs in (ours, theirs):
        refreshed(subs, 0.0)
        subs.greeted(A, 0.5)
        subs.heard(A, 0.5)
    ours.renew(A)
    asked = 0
    for second in range(2, 40, 2):
        for subs, other in ((ours, theirs), (theirs, ours)):
            if refreshed(subs, float(second))[0]:
                asked += 1
                other.greeted(A, second + 1.5)
            subs.heard(A, second + 1.5)
    assert asked == 2


def test_a_neighbour_that_asks_again_has_restarted() -> None:
    subs = NeighbourSubscriptions(SETTINGS)
    refreshed(subs, 0.0)
    subs.greeted(A, 0.1)
    assert refreshed(subs, 0.5) == ([], [])
    subs.heard(A, 3.0)
    subs.greeted(A, 3.0)
    assert refreshed(subs, 3.1) == ([A], [])


def test_who_has_restarted_is_not_left_alone_for_the_silence_of_its_former_life() -> None:
    subs = NeighbourSubscriptions(SETTINGS)
    answered(subs, 0.0)
    subs.greeted(A, 0.1)
    assert answered(subs, 6.0) == ([A], [])
    assert answered(subs, 17.0) == ([A], []), "asked about its silence twice"
    subs.greeted(A, 19.0)
    assert answered(subs, 19.1) == ([A], [])
    assert answered(subs, 25.0) == ([A], [])


def test_nothing_is_kept_of_a_host_that_is_no_neighbour() -> None:
    subs = NeighbourSubscriptions(SETTINGS)
    answered(subs, 0.0)
    assert answered(subs, 6.0) == ([A], [])
    subs.greeted(A, 6.2)
    subs.greeted(A, 8.0)
    subs.refresh(set(), set(), lambda peer: False, 8.1)
    assert not subs.heard_s
    assert answered(subs, 9.0) == ([A], [])
    assert answered(subs, 14.5) == ([A], [])


def test_who_is_no_neighbour_any_more_is_told() -> None:
    subs = NeighbourSubscriptions(SETTINGS)
    refreshed(subs, 0.0)
    assert subs.refresh(set(), set(), lambda peer: False, 1.0) == ([], [A])
    assert A not in subs


def test_who_comes_back_is_asked_again() -> None:
    subs = NeighbourSubscriptions(SETTINGS)
    refreshed(subs, 0.0)
    subs.forget(A)
    assert refreshed(subs, 0.5, usable=False) == ([], [])
    assert refreshed(subs, 1.0) == ([A], [])


def test_who_was_to_be_asked_again_and_is_no_neighbour_any_more_is_told() -> None:
    subs = NeighbourSubscriptions(SETTINGS)
    answered(subs, 0.0)
    subs.greeted(A, 0.1)
    subs.greeted(A, 2.0)
    assert subs.refresh(set(), set(), lambda peer: False, 2.1) == ([], [A])
    assert subs.refresh(set(), set(), lambda peer: False, 3.0) == ([], [])


def test_who_is_out_of_reach_is_told_when_it_is_no_neighbour_any_more_and_not_before() -> None:
    subs = NeighbourSubscriptions(SETTINGS)
    answered(subs, 0.0)
    subs.forget(A)
    assert refreshed(subs, 0.5, usable=False) == ([], [])
    assert subs.refresh(set(), set(), lambda peer: False, 1.0) == ([], [A])


def test_a_neighbour_may_be_silent_while_few_chunks_come_but_not_for_ever() -> None:
    subs = NeighbourSubscriptions(SETTINGS)
    answered(subs, 0.0)

    def asked(now: float, mean_chunk_s: float) -> list[NodeId]:
        return subs.refresh({A}, {A}, lambda peer: False, now, mean_chunk_s=mean_chunk_s)[0]

    assert asked(7.9, 1.0) == [], "fewer than eight have come"
    assert asked(8.1, 1.0) == [A]
    subs.heard(A, 9.0)
    assert asked(20.9, 100.0) == []
    assert asked(21.1, 100.0) == [A]
