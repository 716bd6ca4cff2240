"""Members that have not spoken to this host: which are silent, and what ends that."""

from __future__ import annotations

from gossipd.swarm.unheard_members import UnheardMembers
from membership.member import NodeId
from tests.gossipd.swarm.planning import node, view

A, B = NodeId(b"a" * 16), NodeId(b"b" * 16)


def test_who_was_asked_in_vain_is_silent_until_it_answers() -> None:
    members = UnheardMembers()
    assert members.note(A, has_answered=False)
    assert not members.note(A, has_answered=False)
    assert members.reached(A, reachable=False)
    assert not members.reached(A, reachable=False)
    assert (members.all, members.silent) == ({A}, {A})
    assert members.note(A, has_answered=True)
    assert (members.all, members.silent) == (set(), set())


def test_a_member_that_has_spoken_is_never_silent() -> None:
    members = UnheardMembers()
    assert not members.note(A, has_answered=True)
    assert not members.reached(A, reachable=False)
    assert members.silent == set()


def test_who_was_asked_in_vain_and_who_is_of_an_unheard_rack_gets_no_role() -> None:
    members = UnheardMembers()
    views = {one.node: one for one in (view(1, "own"), view(2, "own"), view(3, "far"), view(4, "far"), view(5, "none"))}
    assert members.without_roles(views, "own") == set()
    for number in (1, 2, 4, 5, 6):
        members.note(node(number), has_answered=False)
    assert members.without_roles(views, "own") == {node(5)}, "6 is no member any more"
    members.reached(node(2), reachable=False)
    assert members.without_roles(views, "own") == {node(2), node(5)}


def test_nothing_is_kept_of_members_that_are_gone() -> None:
    members = UnheardMembers()
    for one in (A, B):
        members.note(one, has_answered=False)
        members.reached(one, reachable=False)
    members.drop(A)
    assert (members.all, members.silent) == ({B}, {B})
    assert members.reached(B, reachable=True)
    assert (members.all, members.silent) == ({B}, set())
