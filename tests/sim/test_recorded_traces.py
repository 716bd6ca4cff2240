"""The simulator does for the same seeds what it did when the traces were recorded."""

from __future__ import annotations

import json

import pytest

from tests.sim.recorded_traces import RECORDED, SCENARIOS, digest


def test_every_scenario_is_recorded() -> None:
    assert list(json.loads(RECORDED.read_text())) == list(SCENARIOS)


@pytest.mark.parametrize("name", SCENARIOS)
def test_trace_is_the_recorded_one(name: str) -> None:
    assert digest(SCENARIOS[name]) == json.loads(RECORDED.read_text())[name], (
        "decisions changed; if that was meant: python -m tests.sim.recorded_traces --record"
    )
