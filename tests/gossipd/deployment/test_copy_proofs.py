"""What a host counts for that was asked to show its copy, by values."""

from __future__ import annotations

from gossipd.core.ids import DeploymentId
from gossipd.deployment.copy_proofs import (
    FAILED_S,
    PROMISED_AGAIN_S,
    PROMISED_S,
    PROOFS_MAX,
    SHOWN_S,
    SHOWN_TO_WATCH_S,
    CopyProofs,
)
from membership.member import NodeId

ONE, TWO = DeploymentId(b"1" * 32), DeploymentId(b"2" * 32)
A, B = NodeId(b"a" * 16), NodeId(b"b" * 16)


def test_who_has_shown_its_copy_is_asked_again_after_a_while() -> None:
    proofs = CopyProofs()
    assert proofs.to_ask(ONE, [A, B], 0.0) == [A, B]
    proofs.note(ONE, A, is_shown=True, now=0.0)
    assert proofs.to_ask(ONE, [A, B], SHOWN_S - 1) == [B]
    assert proofs.to_ask(TWO, [A], 0.0) == [A], "that says nothing of another version"
    assert proofs.to_ask(ONE, [A], SHOWN_S) == [A]
    assert proofs.to_ask(ONE, [A], SHOWN_S, shown_s=SHOWN_TO_WATCH_S) == []


def test_who_has_failed_does_not_count_for_a_while() -> None:
    proofs = CopyProofs()
    proofs.note(ONE, A, is_shown=False, now=0.0)
    assert proofs.has_failed(ONE, A, FAILED_S - 1)
    assert not proofs.has_failed(ONE, A, FAILED_S)
    assert not proofs.has_failed(TWO, A, 0.0)
    assert proofs.to_ask(ONE, [A], FAILED_S) == [A]
    assert proofs.has_failed(ONE, A), "until it has shown it"
    proofs.note(ONE, A, is_shown=True, now=FAILED_S)
    assert not proofs.has_failed(ONE, A)


def test_proofs_are_bounded_and_the_oldest_goes() -> None:
    proofs = CopyProofs()
    for number in range(PROOFS_MAX + 1):
        proofs.note(ONE, NodeId(number.to_bytes(16)), is_shown=True, now=0.0)
    assert proofs.to_ask(ONE, [NodeId((0).to_bytes(16)), NodeId((1).to_bytes(16))], 0.0) == [NodeId((0).to_bytes(16))]


def test_a_copy_on_its_way_counts_for_some_hours_of_a_day_until_it_is_shown() -> None:
    proofs = CopyProofs()
    times = (0.0, PROMISED_S - 1, PROMISED_S, PROMISED_AGAIN_S - 1, PROMISED_AGAIN_S, PROMISED_AGAIN_S + PROMISED_S)
    assert [proofs.is_promised(ONE, A, now) for now in times] == [True, True, False, False, True, False]
    assert proofs.is_promised(ONE, B, PROMISED_S)
    proofs.note(ONE, A, is_shown=True, now=times[-1])
    assert proofs.is_promised(ONE, A, times[-1]), "it has kept its word"
    for number in range(PROOFS_MAX + 1):
        proofs.is_promised(TWO, NodeId(number.to_bytes(16)), 0.0)
    assert len(proofs._promised_s) == PROOFS_MAX
