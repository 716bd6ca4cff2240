"""A small part of the cluster's chaos commands, and their deciding parts by values."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from random import Random
from typing import Any

import pytest

from gossipd.wire.transfer import REPLY_BYTES, Reply, Status
from tests.chaos.cluster.corruption import Damage, damaged
from tests.chaos.cluster.schedule import SEED, Kind, draw

ROOT = Path(__file__).resolve().parent.parent.parent
SECONDS_MAX = 600  # about 25 on two idle cores
NAMES = [f"node-{number}" for number in range(1, 17)]


def rows(command: str, *arguments: str) -> list[dict[str, Any]]:
    done = subprocess.run(
        [sys.executable, "-m", f"tests.chaos.{command}", *arguments, "--json"],
        cwd=ROOT, capture_output=True, text=True, timeout=SECONDS_MAX,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.needs("netns", "tc", "nginx")
def test_real_daemons_that_are_killed_stopped_cut_off_and_lied_to_end_with_the_same_bytes() -> None:
    found = rows(
        "cluster", "--hosts", "6", "--racks", "2", "--mb", "8", "--mbit", "60", "--rng", "6", "--encryption", "none"
    )
    run, total = found
    assert run["problems"] == []
    assert (total["killed"], total["killed_seeds"] >= 1, total["completed_before_kills"] > 0) == (2, True, True)
    assert total["hosts_not_identical"] == total["completed_writes_requested_again"] == 0
    assert total["corrupted_accepted"] == total["wrong_peer_blamed"] == 0


@pytest.mark.needs("netns", "tc")
def test_no_side_of_a_broken_network_names_a_step_to_a_job_that_names_all_hosts() -> None:
    (row,) = rows("latest")
    assert row["answers_apart"] == ["E_NOT_READY"] * 4
    assert row["answers_joined"] == ["2"] * 4


def test_damaged_chunks_are_all_refused_and_held_against_their_sender() -> None:
    (row,) = rows("corrupt_chunks", "--count", "300")
    assert row["corrupted_chunks_injected"] >= 300
    assert set(row["by_damage"]) == {damage.value for damage in Damage}
    assert (row["corrupted_accepted"], row["wrong_peer_blamed"], row["problems"]) == (0, 0, [])


@pytest.mark.parametrize("seed", range(20))
def test_three_hosts_in_ten_are_killed_and_a_seed_is_among_them(seed: int) -> None:
    plan = draw(Random(seed), NAMES)
    killed = [fault.who for fault in plan.faults if fault.kind is Kind.KILL]
    assert len(killed) == len(set(killed)) == 5
    assert SEED in killed
    assert plan.rotten not in killed
    assert plan == draw(Random(seed), NAMES), "the seed decides everything"


@pytest.mark.parametrize("damage", Damage)
def test_what_a_liar_sends_is_never_what_was_asked_for(damage: Damage) -> None:
    body, other = Random(1).randbytes(65_536), Random(2).randbytes(65_536)
    right = Reply(Status.OK, 3, len(body), 8)
    wrong = damaged(damage, Random(3), right, body, other)
    assert wrong.wire != right.to_wire() + body
    assert wrong.wire[REPLY_BYTES:] != body or wrong.wire[:REPLY_BYTES] != right.to_wire()
    assert wrong.ends is (damage is Damage.SHORT)
