"""What the deployment brain is told of members: who is a host, and who may only be made up."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from gossipd.daemon.cluster_roster import ClusterRoster
from membership import events as membership_events
from membership.events import DownReason
from tests.gossipd.daemon.test_member_directory import OWN, Hearing, member

ONE, NOBODY = member(1), member(2)
EVERYWHERE = cast(Any, SimpleNamespace(is_target=lambda name, rack: True))


def roster() -> tuple[Hearing, ClusterRoster]:
    """This host, one that has spoken, and one that has not."""
    hearing = Hearing()
    hearing.hear(*(membership_events.MemberUp(one) for one in (member(9), ONE, NOBODY)))
    hearing.hear(membership_events.MemberAnswered(ONE.record.node))
    return hearing, ClusterRoster(hearing.directory, cast(Any, SimpleNamespace(clients=())))


def test_a_member_counts_as_a_host_until_it_was_asked_in_vain() -> None:
    hearing, found = roster()
    directory, nobody = hearing.directory, NOBODY.record.node
    assert directory.unanswered() == {nobody}
    assert (found.host_count, found.live()) == (3, {ONE.record.node, nobody})
    revision = directory.revision
    directory.note_unheard([nobody])
    assert directory.revision > revision
    assert (found.host_count, found.live()) == (2, {ONE.record.node})
    assert set(found.targets(EVERYWHERE)) == {OWN, ONE.record.node}
    assert found.vouchers() == {one.record.public_key for one in (member(9), ONE, NOBODY)}, "its key stays known"
    assert NOBODY.record.public_key in found.signers


def test_a_member_that_answers_at_last_is_a_host_at_once() -> None:
    hearing, found = roster()
    hearing.directory.note_unheard([NOBODY.record.node])
    hearing.hear(membership_events.MemberAnswered(NOBODY.record.node))
    assert NOBODY.record.node in found.live()
    assert (found.host_count, hearing.directory.unanswered()) == (3, set())


def test_dead_and_forgotten_members_leave_no_trace_among_those_made_up() -> None:
    hearing, found = roster()
    nobody = NOBODY.record.node
    hearing.hear(membership_events.MemberDown(NOBODY, DownReason.LONE))
    assert hearing.directory.unanswered() == {nobody}, "many dead ones would make this host a minority"
    hearing.directory.note_unheard([nobody])
    assert found.host_count == 2
    hearing.hear(membership_events.MemberForgotten(nobody, NOBODY.record.name))
    assert (found.host_count, hearing.directory.unheard) == (2, frozenset())


def test_a_made_up_member_of_an_old_version_makes_nobody_tell_twice() -> None:
    hearing, found = roster()
    assert not found.all_sign_progress(), "neither of the two says that it does"
    hearing.directory.note_unheard([ONE.record.node, NOBODY.record.node])
    assert found.all_sign_progress()
