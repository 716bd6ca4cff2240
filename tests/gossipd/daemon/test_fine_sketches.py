"""Sketches of 256 bins: which member is answered, when a host is asked, and what is known of one that is silent."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
import trio

from gossipd.core.chunkset import ChunkSet
from gossipd.core.ids import DeploymentId
from gossipd.core.sketch import KnownHoldings
from gossipd.core.targets import Targets
from gossipd.daemon import fine_sketches
from gossipd.daemon.fine_sketches import (
    ALL_ANSWERS_BURST,
    ANSWERS_BURST,
    ASK_EVERY_S,
    FAILED_PAUSE_S,
    LOOKED_S,
    QUESTIONS_MAX,
    Asked,
    FineSketches,
    SketchAnswers,
    SketchQuestions,
)
from gossipd.wire import control
from membership.member import NodeId
from tests.gossipd.control.nodes import nodes, until

MODEL, OTHER = DeploymentId(b"m" * 32), DeploymentId(b"o" * 32)
OWN, A, B, STRANGER = (NodeId(letter * 16) for letter in (b"w", b"a", b"b", b"s"))
CHUNKS = 512
TOLD = control.Sketch(bytes([254] * 128 + [0] * 128), CHUNKS // 2)
TARGETS = Targets(racks=("rack-1",))


def answers() -> SketchAnswers:
    """Of a host that has the first half of MODEL; all but STRANGER are targets."""
    known = KnownHoldings(ChunkSet(CHUNKS, (1 << CHUNKS // 2) - 1), ChunkSet.full(CHUNKS), None)
    planner = SimpleNamespace(holdings=lambda which, node: known if (which, node) == (MODEL, OWN) else None)
    lifecycle = SimpleNamespace(manifest_of=lambda which: SimpleNamespace(targets=TARGETS))
    directory = SimpleNamespace(own=OWN, is_target=lambda node, targets: targets == TARGETS and node != STRANGER)
    return SketchAnswers(cast(Any, planner), cast(Any, lifecycle), cast(Any, directory))


def test_a_target_is_told_what_this_host_has_in_256_bins() -> None:
    assert answers().answer(A, MODEL, 10.0) == TOLD


def test_a_member_that_is_no_target_or_asks_for_what_is_not_open_is_refused() -> None:
    told = answers()
    assert told.answer(STRANGER, MODEL, 10.0) == control.Refused("E_NOT_A_TARGET")
    assert told.answer(A, OTHER, 10.0) == control.Refused("E_NOT_FOUND")
    told.lifecycle = cast(Any, SimpleNamespace(manifest_of=lambda which: None))
    assert told.answer(A, MODEL, 10.0) == control.Refused("E_NOT_A_TARGET")


def test_who_asks_too_often_is_declined_and_another_is_answered() -> None:
    told = answers()
    found = [told.answer(A, MODEL, 10.0) for _ in range(ANSWERS_BURST + 2)]
    assert found == [TOLD] * ANSWERS_BURST + [control.Refused("E_BUSY")] * 2
    assert told.answer(A, MODEL, 10.9) == control.Refused("E_BUSY")
    assert told.answer(B, MODEL, 10.9) == TOLD
    assert [told.answer(A, MODEL, at) for at in (11.9, 12.9)] == [TOLD] * 2, "once a second is not too often"


def test_many_members_together_cost_a_bounded_number_of_answers() -> None:
    told = answers()
    found = [told.answer(NodeId(number.to_bytes(16, "big")), MODEL, 10.0) for number in range(2 * ALL_ANSWERS_BURST)]
    assert found.count(TOLD) == ALL_ANSWERS_BURST


def test_a_host_is_asked_once_a_second_however_many_look() -> None:
    questions = SketchQuestions()
    asked = []
    for tenth in range(35):
        now = 100 + tenth / 10
        for _ in range(5):
            found, is_due = questions.look((A, MODEL), now)
            if is_due:
                asked.append(tenth)
                questions.ended((A, MODEL), Asked.ANSWERED, now, TOLD)
    assert asked == [0, 10, 20, 30]
    assert (found.outcome, found.answer, found.heard_s) == (Asked.ANSWERED, TOLD, 103.0)


def test_a_question_that_is_under_way_is_not_asked_a_second_time() -> None:
    questions = SketchQuestions()
    assert questions.look((A, MODEL), 100.0)[1]
    found, is_due = questions.look((A, MODEL), 100 + 10 * LOOKED_S)
    assert (found.outcome, is_due) == (Asked.WAITING, False)


@pytest.mark.parametrize("outcome", [Asked.DECLINED, Asked.SILENT, Asked.UNREACHABLE])
def test_a_host_that_gave_no_answer_is_left_alone_for_a_while(outcome: Asked) -> None:
    questions = SketchQuestions()
    questions.look((A, MODEL), 100.0)
    questions.ended((A, MODEL), outcome, 101.0)
    found, is_due = questions.look((A, MODEL), 100.9 + FAILED_PAUSE_S)
    assert (found.outcome, found.answer, is_due) == (outcome, None, False)
    assert questions.look((A, MODEL), 101.0 + FAILED_PAUSE_S)[1]


def test_an_answer_stays_while_later_ones_fail() -> None:
    questions = SketchQuestions()
    for now, outcome, answer in ((100.0, Asked.ANSWERED, TOLD), (101.5, Asked.SILENT, None)):
        assert questions.look((A, MODEL), now)[1]
        questions.ended((A, MODEL), outcome, now, answer)
    found, _ = questions.look((A, MODEL), 102.0)
    assert (found.outcome, found.answer, found.heard_s) == (Asked.SILENT, TOLD, 100.0)


def test_two_models_of_one_host_share_its_allowance() -> None:
    questions, asked = SketchQuestions(), 0
    for tenth in range(101):
        for which in ((A, MODEL), (A, OTHER)):
            if questions.look(which, 100 + tenth / 10)[1]:
                asked += 1
                questions.ended(which, Asked.ANSWERED, 100 + tenth / 10, TOLD)
    assert asked <= 10 / ASK_EVERY_S + ANSWERS_BURST


def test_more_hosts_than_may_be_are_not_asked_until_others_are_looked_at_no_more() -> None:
    questions = SketchQuestions()
    for number in range(QUESTIONS_MAX):
        assert questions.look((NodeId(bytes([number] * 16)), MODEL), 100.0)[1]
        questions.ended((NodeId(bytes([number] * 16)), MODEL), Asked.ANSWERED, 100.0, TOLD)
    found, is_due = questions.look((A, MODEL), 101.0)
    assert (found.outcome, is_due) == (Asked.FULL, False)
    assert questions.look((A, MODEL), 100.0 + LOOKED_S)[1]


async def test_a_host_is_asked_over_a_real_connection_and_one_that_is_older_is_silent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fine_sketches, "ASK_EVERY_S", 0.05)
    monkeypatch.setattr(fine_sketches, "FAILED_PAUSE_S", 0.05)
    monkeypatch.setattr(fine_sketches, "LOOKED_S", 1000.0)  # however slow this machine is
    async with nodes(3) as (own, new, old), trio.open_nursery() as nursery:
        new.host.answer = lambda asked: TOLD if asked == control.SketchWanted(MODEL) else None
        sketches = FineSketches(own.plane, nursery)
        assert sketches.look(new.host.node, MODEL).outcome is Asked.WAITING
        await until(lambda: sketches.look(new.host.node, MODEL).answer == TOLD)
        monkeypatch.setattr(fine_sketches, "ASK_TIMEOUT_S", 0.1)
        await until(lambda: sketches.look(old.host.node, MODEL).outcome is Asked.SILENT)
        monkeypatch.setattr(fine_sketches, "ASK_TIMEOUT_S", 3.0)
        await until(lambda: sketches.look(STRANGER, MODEL).outcome is Asked.UNREACHABLE)
        new.host.answer = lambda asked: control.Refused("E_BUSY")
        await until(lambda: sketches.look(new.host.node, MODEL).outcome is Asked.DECLINED)
        assert sketches.look(new.host.node, MODEL).answer == TOLD
