"""A small cluster with a liar of each sort: no word of theirs is believed, and every honest host gets the models."""

from __future__ import annotations

import pytest

from tests.sim.liars.__main__ import BARS
from tests.sim.liars.host import CHUNK_SORTS
from tests.sim.liars.world import WORDS, play


@pytest.mark.parametrize("sort", CHUNK_SORTS)
def test_a_liar_keeps_no_honest_host_from_its_models(sort: str) -> None:
    found = play(1, hosts=16, liars=3, seconds=24.0, sorts=[WORDS, sort])
    assert {bar: found[bar] for bar in BARS} == dict.fromkeys(BARS, 0)
    assert found["complete_rows"]
    assert len(found["lies"]) >= 16
    assert found["sybils"] and found["lies"]["sybil_complete"]
    assert sort not in found["looked"] or found["looked"][sort]
