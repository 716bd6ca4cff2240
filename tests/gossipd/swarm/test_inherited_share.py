"""When a new owner of storage reads begins, while the former one goes on or has stopped."""

from __future__ import annotations

from gossipd.swarm.inherited_share import InheritedShare
from tests.gossipd.swarm.planning import OWN, SETTINGS, node

OTHER, THIRD = node(1), node(2)
GRACE_S = SETTINGS.read_grace_s
BEFORE = ((OWN, OTHER), (OTHER, OWN), (THIRD, OWN), (OTHER, OWN))
AFTER = ((OWN, OTHER), (OWN, OTHER), (THIRD, OWN), (OWN, OTHER))  # buckets 1 and 3 were the other's


def inherited() -> InheritedShare:
    share = InheritedShare(OWN, GRACE_S)
    share.changed(AFTER, BEFORE, 100.0, is_other_rule=False)
    return share


def test_what_has_stayed_ours_is_read_at_once_and_the_rest_after_a_wait() -> None:
    share = inherited()
    assert [share.awaited_owner(bucket, 100.0) for bucket in (0, 1, 3)] == [None, (OTHER,), (OTHER,)]
    assert share.awaited_owner(1, 100.0 + GRACE_S) is None


def test_each_read_that_the_former_owner_begins_is_waited_for() -> None:
    share = inherited()
    for step in range(1, 20):
        share.begun(OTHER, 3, 100.0 + step * GRACE_S / 2)
    assert share.awaited_owner(1, 100.0 + 10.4 * GRACE_S) == (OTHER,)
    assert share.awaited_owner(1, 100.0 + 10.5 * GRACE_S) is None


def test_reads_of_others_or_elsewhere_or_later_are_not_waited_for() -> None:
    share = inherited()
    share.begun(THIRD, 1, 100.5)
    share.begun(OTHER, 0, 100.5)
    share.begun(OTHER, 2, 100.5)
    assert share.awaited_owner(1, 100.0 + GRACE_S) is None
    share.begun(OTHER, 1, 100.1 + GRACE_S)  # this host may have begun
    assert share.awaited_owner(1, 100.2 + GRACE_S) is None


def test_a_former_owner_is_to_be_asked_once() -> None:
    share = inherited()
    assert share.take_unasked() == {OTHER}
    assert share.take_unasked() == set()
    share.changed(AFTER, AFTER, 200.0, is_other_rule=False)
    assert share.take_unasked() == set()


def test_under_another_rule_all_that_is_owned_is_new_and_nobody_is_asked() -> None:
    share = InheritedShare(OWN, GRACE_S)
    share.changed(AFTER, AFTER, 100.0, is_other_rule=True)
    assert share.awaited_owner(0, 100.0) == share.awaited_owner(1, 100.0) == ()
    assert share.awaited_owner(0, 100.0 + GRACE_S) is None
    assert share.take_unasked() == set()


def test_what_goes_back_to_its_owner_is_not_waited_for_any_more() -> None:
    share = inherited()
    share.changed(BEFORE, AFTER, 100.2, is_other_rule=False)
    assert share.awaited_owner(1, 100.3) is None
    share.begun(OTHER, 1, 100.4)
    share.changed(AFTER, BEFORE, 150.0, is_other_rule=False)
    assert share.awaited_owner(3, 149.9 + GRACE_S) == (OTHER,)
