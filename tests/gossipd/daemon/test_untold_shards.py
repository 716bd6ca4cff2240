"""How long shards wait for the word of another host, by values."""

from __future__ import annotations

from gossipd.core.ids import DeploymentId
from gossipd.daemon.untold_shards import UNTOLD_MAX, UNTOLD_S, UntoldShards

ONE, TWO = (DeploymentId(bytes([number]) * 32) for number in (1, 2))


def nobody(deployment: DeploymentId) -> bool:
    return False


def test_shards_wait_for_an_hour_from_when_they_were_taken_last() -> None:
    untold = UntoldShards()
    untold.taken(ONE, 0.0)
    untold.taken(TWO, 1.0)
    untold.taken(ONE, 10.0)
    assert untold.to_settle(nobody, UNTOLD_S) == []
    assert untold.to_settle(nobody, UNTOLD_S + 1.0) == [TWO]
    assert untold.to_settle(nobody, UNTOLD_S + 10.0) == [TWO, ONE]
    assert untold.told(TWO)
    assert not untold.told(TWO)
    assert untold.to_settle(nobody, UNTOLD_S + 10.0) == [ONE]


def test_shards_that_a_statement_names_are_settled_at_once() -> None:
    untold = UntoldShards()
    untold.taken(ONE, 0.0)
    untold.taken(TWO, 0.0)
    assert untold.to_settle(lambda deployment: deployment == TWO, 1.0) == [TWO]


def test_of_too_many_the_oldest_wait_no_longer() -> None:
    untold = UntoldShards()
    ones = [DeploymentId(number.to_bytes(32, "big")) for number in range(UNTOLD_MAX + 2)]
    for number, one in enumerate(ones):
        untold.taken(one, float(number))
    assert untold.to_settle(nobody, float(len(ones))) == ones[:2]
