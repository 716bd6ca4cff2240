"""A small part of each of the store's chaos commands; the long runs are for people with some minutes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
SECONDS_MAX = 120


def _row(command: str, *arguments: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", f"tests.chaos.{command}", *arguments, "--json"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    row: dict[str, Any] = json.loads(done.stdout)
    return row


@pytest.mark.needs("strace")
def test_a_real_store_killed_at_its_calls_requests_nothing_again_that_was_written() -> None:
    row = _row("kill_points", "--stride", "23", "--first", "3", "--shard-chunks", "8", "--random", "10")
    assert row["kill_points"] >= 15
    assert row["random_kills"] >= 1


@pytest.mark.needs("strace", "gcc")
def test_a_real_store_whose_disk_refuses_names_it_and_goes_on_by_itself() -> None:
    row = _row("disk_errors", "--stride", "17")
    assert row["points"] >= 50
    assert row["processes_that_failed"] == 0


@pytest.mark.needs("root", "ext4", "mount")
def test_a_power_cut_of_a_real_disk_loses_nothing_that_was_committed() -> None:
    row = _row("power_cut", "--images", "4")
    assert row["images"] == 4
    assert (row["false_claims"], row["committed_lost"], row["visible_partial"]) == (0, 0, 0)
    assert row["lost_bytes_max"] <= row["unsynced_bytes_max"]
