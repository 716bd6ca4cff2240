"""The command itself, with real daemons: what the README promises, and with a killed and a rotting host."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

SECONDS_MAX = 240  # on two busy cores; some 12 s when they are free


def demo(tmp_path: Path, *arguments: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "gossipd", "demo", "--json", *arguments],
        capture_output=True, text=True, timeout=SECONDS_MAX, cwd=tmp_path, env=os.environ | {"TMPDIR": str(tmp_path)},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    assert list(tmp_path.iterdir()) == [], "everything is cleaned up"
    return answer


def test_every_host_has_every_byte_and_storage_gave_each_once(tmp_path: Path) -> None:
    result = demo(tmp_path, "--hosts", "6", "--racks", "2", "--size", "64MiB")
    assert result["hosts"] == result["hosts_complete"] == 6
    assert result["verified"] is True
    assert result["corrupt_chunks"] == 0
    total = result["bytes_total"]
    assert total <= result["source_bytes"] <= 1.02 * total
    assert result["peer_bytes_cross_rack"] <= 1.1 * total
    assert result["peer_bytes_same_rack"] >= 3.5 * total


def test_a_host_that_is_killed_half_way_completes_too(tmp_path: Path) -> None:
    result = demo(tmp_path, "--hosts", "3", "--racks", "2", "--size", "64MiB", "--kill", "node-2")
    assert result["hosts_complete"] == 3
    assert result["verified"] is True
    assert result["killed"] == "node-2"
    assert 0 < result["killed_at_chunks"] < result["chunks_total"]
    assert result["source_bytes"] <= 1.02 * result["bytes_total"]


def test_what_rots_on_a_disk_is_found_fetched_again_and_counted(tmp_path: Path) -> None:
    result = demo(tmp_path, "--hosts", "6", "--racks", "2", "--size", "64MiB", "--corrupt", "node-3")
    assert result["hosts_complete"] == 6
    assert result["verified"] is True
    assert result["corrupt_chunks"] >= result["corrupted_on_disk"] > 0
    assert result["source_bytes"] <= 1.02 * result["bytes_total"]
