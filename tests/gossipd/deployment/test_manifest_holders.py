"""Of the members that live, those that have spoken to this host are asked for a manifest first, and mostly."""

from __future__ import annotations

from collections import Counter
from random import Random

from gossipd.deployment.manifest_holders import Holders, ManifestGivers
from membership.member import NodeId

REAL = [NodeId(bytes([1, number]) + bytes(14)) for number in range(8)]
MADE_UP = [NodeId(bytes([2, number]) + bytes(14)) for number in range(200)]
LIVE = {*REAL, *MADE_UP}


def holders(*known: NodeId, any_share: float = 0.2) -> Holders:
    made = Holders(Random(7), any_share=any_share)
    for node in known:
        made.add(node)
    return made


def test_the_first_that_told_is_asked_first_though_it_never_answered() -> None:
    assert holders(MADE_UP[0]).choose(LIVE, set(REAL)) == MADE_UP[0]
    assert holders(MADE_UP[0], REAL[0]).choose(LIVE, set(REAL)) == REAL[0]


def test_made_up_members_get_the_share_of_any_and_no_more() -> None:
    for known in ((), (MADE_UP[0],), tuple(MADE_UP), (*MADE_UP[:50], REAL[1])):
        made = holders(*known)
        made.choose(LIVE, set(REAL))
        asked = Counter(made.choose(LIVE, set(REAL)) in REAL for _ in range(1_000))
        assert 750 < asked[True] < 850, known


def test_a_host_that_heard_nobody_yet_asks_those_it_knows_of() -> None:
    made = holders(REAL[0])
    assert {made.choose(set(REAL[:1]), set()) for _ in range(20)} == {REAL[0]}
    assert {holders().choose({REAL[2]}, set()) for _ in range(5)} == {REAL[2]}
    assert holders().choose(set(), set()) is None


def test_of_those_that_told_one_that_gave_before_is_asked_first() -> None:
    made = holders(REAL[0], REAL[1], REAL[2])
    assert made.choose(LIVE, set(REAL), {REAL[2], REAL[5]}) == REAL[2]
    assert made.choose(LIVE, set(REAL), {REAL[2]}) == REAL[2], "until it does not"
    assert holders(REAL[0]).choose(LIVE, set(REAL), {REAL[5]}) == REAL[0], "who told has it sooner than who did not"


def test_givers_are_the_last_few_whose_manifest_was_good() -> None:
    givers = ManifestGivers(3)
    for node in (*REAL[:3], REAL[0], REAL[3]):
        givers.gave(node)
    assert givers.among(REAL) == {REAL[2], REAL[0], REAL[3]}
    givers.failed(REAL[0])
    givers.failed(REAL[7])
    assert givers.among(REAL[:3]) == {REAL[2]}
