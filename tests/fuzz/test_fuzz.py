"""A small, repeatable part of the fuzzing of each surface; the long part is ``python -m tests.fuzz``."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from gossipd.core.errors import GossipdError
from tests.fuzz.__main__ import RSS_BYTES_MAX, is_clean, total
from tests.fuzz.findings import keep, shrink
from tests.fuzz.mutations import mutate_bytes, mutate_value
from tests.fuzz.surface import Case, Finding, Surface, judged, once, run_surface
from tests.fuzz.surfaces import SURFACES
from tests.fuzz.surfaces.control import ControlSurface
from tests.fuzz.surfaces.datagram import DatagramSurface
from tests.fuzz.surfaces.trigger import TriggerSurface

SEED = 20_260_101
INPUTS = 1000


@pytest.fixture(autouse=True)
def _silence() -> Iterator[None]:
    """What the daemon logs about bad input is not looked at here."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("name", SURFACES)
async def test_hostile_input_is_refused_in_words_or_counted(name: str) -> None:
    tally = await run_surface(SURFACES[name], seed=SEED, inputs=INPUTS, until_s=None)
    found = [f"{one.verdict} at input {one.number}: {one.reason}" for one in tally.findings if one.verdict != "slow"]
    assert not found, f"seed {SEED}"
    assert tally.inputs == INPUTS
    assert tally.mutated_before_sealing >= INPUTS / 2, "most would die at the tag"


async def _fed(surface: Surface, inputs: int) -> None:
    rng = Random(SEED)
    for _ in range(inputs):
        await surface.deliver(surface.seal(surface.case(rng)))
        surface.rest()
    surface.close()


async def test_sealed_datagrams_get_past_the_tag_and_change_what_the_brain_believes() -> None:
    surface = DatagramSurface(Random(SEED))
    await _fed(surface, 3000)
    counts = surface.statistics()
    assert counts["datagrams_in"] > 3000 / 2
    for name in ("dropped_bad_items", "dropped_malformed", "dropped_unsealed", "contradictions", "sync_sessions"):
        assert counts[name] > 0, name
    assert counts["signatures_verified"] > 100
    assert counts["members_live"] > 1 and counts["events_kept"] > 10


async def test_changed_frames_reach_the_planner_and_changed_orders_the_register() -> None:
    control = ControlSurface(Random(SEED))
    await _fed(control, 3000)
    assert {"bad_delta", "bad_holdings", "undecodable_fields", "undecodable_msgpack"} <= control.counters.keys()
    assert control.heard > 300
    trigger = TriggerSurface(Random(SEED))
    await _fed(trigger, 3000)
    assert trigger.accepted > 50


class _Planted:
    """A surface with three bugs."""

    name = "planted"
    share = 1.0

    def __init__(self, rng: Random) -> None:
        self.rests = 0

    def case(self, rng: Random) -> Case:
        return Case("text", mutate_bytes(b"<length 3>abc</length>", rng), True)

    def seal(self, case: Case) -> bytes:
        return case.body

    async def deliver(self, arrived: bytes) -> None:
        if b"\0" in arrived:
            raise GossipdError("said, but not where this surface says it")
        if len(arrived) < 4:
            raise KeyError(arrived)
        assert arrived.count(b"<length 3>") < 2, "a bug of ours"

    def rest(self) -> None:
        self.rests += 1

    def close(self) -> None:
        pass


async def test_planted_bugs_are_found_told_apart_and_counted() -> None:
    tally = await run_surface(_Planted, seed=1, inputs=5000, until_s=None)
    places = {one.reason.partition(" at ")[0] for one in tally.findings}
    assert places == {"GossipdError", "KeyError", "AssertionError"}
    assert tally.verdicts["crash"] > 0 and tally.verdicts["untyped"] > 0
    assert not is_clean(tally.row())


async def test_a_failing_input_is_kept_small_with_what_reproduces_it(tmp_path: Path) -> None:
    case = Case("text", b"some <length 3> and some <length 3> more", True)
    failure = await once(_Planted, case)
    assert failure is not None and failure[0] == "crash"
    assert (await shrink(_Planted, case, failure)).body == b"<length 3><length 3>"
    path = await keep(tmp_path / "kept", "planted", _Planted, Finding("crash", case, failure[1], 17), seed=3)
    kept = json.loads(path.read_text())
    assert (kept["seed"], kept["number"], kept["fails_alone"]) == (3, 17, True)
    assert bytes.fromhex(kept["smaller_hex"]) == b"<length 3><length 3>"


async def test_the_same_seed_makes_the_same_inputs() -> None:
    for name in ("control", "manifest", "config"):
        cases = []
        for _ in range(2):
            rng = Random(9)
            surface = SURFACES[name](rng)
            cases.append([surface.case(rng).body for _ in range(50)])
            surface.close()
        assert cases[0] == cases[1], name


def test_mutations_never_change_what_they_were_given() -> None:
    rng = Random(4)
    value = {"a": [1, {"b": b"bytes"}], "c": "text"}
    before = repr(value)
    changed = {repr(mutate_value(value, rng)) for _ in range(300)}
    assert repr(value) == before
    assert len(changed) > 200
    assert len({mutate_bytes(b"0123456789", rng) for _ in range(300)}) > 200


def test_an_assertion_is_a_crash_a_stranger_an_untyped_error_and_a_long_wait_slow() -> None:
    assert judged(AssertionError("x"), 0.0)[0] == "crash"
    assert judged(ExceptionGroup("several", [RecursionError()]), 0.0)[0] == "crash"
    assert judged(GossipdError("leaked"), 0.0)[0] == "crash"
    assert judged(ValueError("x"), 0.0)[0] == "untyped"
    assert judged(None, 0.2)[0] == "slow"


def test_the_total_is_clean_only_when_every_surface_is() -> None:
    row: dict[str, object] = {
        "surface": "a", "inputs": 5, "mutated_before_sealing": 3, "crashes": 0, "untyped_errors": 0, "slow_inputs": 0,
        "slowest_ms": 1.5, "rss_growth_bytes": RSS_BYTES_MAX, "cpu_s": 0.5,
    }  # fmt: skip
    both = total([row, row | {"surface": "b", "inputs": 7}])
    assert (both["inputs"], both["inputs_least"], both["is_clean"]) == (12, 5, True)
    for key in ("crashes", "untyped_errors", "slow_inputs"):
        assert total([row, row | {key: 1}])["is_clean"] is False
    assert total([row, row | {"rss_growth_bytes": RSS_BYTES_MAX + 1}])["is_clean"] is False
