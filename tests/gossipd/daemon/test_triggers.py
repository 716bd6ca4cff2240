"""What ``gossipd trigger`` is answered: the last statement on a deployment, and an order passed on."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from gossipd.control.authenticator import Identity
from gossipd.daemon.triggers import Triggers
from gossipd.deployment.commands import Answer
from gossipd.deployment.statement import Statement, Verb
from tests.gossipd.deployment.scripted_host import ONE, ScriptedHost, said


def triggers(host: ScriptedHost, driver: object = None) -> Triggers:
    as_any: Any = driver
    budgets: Any = SimpleNamespace(next_ms=lambda deployment: 7)
    return Triggers(statements=host.statements, lifecycle=host.brain.lifecycle, driver=as_any, budgets=budgets)


def test_a_model_is_found_by_name_and_version() -> None:
    host = ScriptedHost()
    host.hear(said(epoch=3))
    state = triggers(host).trigger_state(None, "org/model@1")
    assert (state.deployment, state.epoch, state.verb, state.manifest_bytes) == (
        ONE.id, 3, "deploy", len(ONE.envelope),
    )  # fmt: skip
    host.hear(said(epoch=3, verb=Verb.CANCEL))
    assert triggers(host).trigger_state(ONE.id, "").verb == "cancel"


@pytest.mark.parametrize("model", ["org/model@2", "org/model@", "org/model@" + "9" * 299, "org/model@²"])
def test_a_model_that_is_not_known_is_not_found(model: str) -> None:
    host = ScriptedHost()
    host.hear(said())
    assert triggers(host).trigger_state(None, model).code == "E_NOT_FOUND"


def test_of_a_deployment_that_nobody_spoke_of_nothing_is_known() -> None:
    state = triggers(ScriptedHost()).trigger_state(ONE.id, "")
    assert (state.epoch, state.verb, state.manifest_bytes, state.code) == (0, "", 0, "")


async def test_an_order_is_answered_with_its_sentence() -> None:
    async def trigger(statement: Statement, envelope: bytes | None) -> Answer:
        assert (statement, envelope) == (said(), b"envelope")
        return Answer(1, "org/model@1 is known already", is_changed=False)

    made = triggers(ScriptedHost(), SimpleNamespace(trigger=trigger))
    answer = await made.trigger_order(Identity(client=b"c" * 32), said(), b"envelope", None)
    assert answer == ("org/model@1 is known already", True)
