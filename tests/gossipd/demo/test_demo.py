"""The command itself, with real daemons: what the README promises, and with a killed and a rotting host."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from gossipd.demo.play import _chunk_bytes

# What one host may have under way, in chunks of 256 KiB: others take it over when that host is killed, or gets no CPU
# for some seconds.
TAKEN_OVER_BYTES = 16 * 262_144
SECONDS_MAX = 240  # on two busy cores; some 12 s when they are free


@pytest.fixture
def short_path() -> Iterator[Path]:
    """A directory whose hosts have room for their sockets, whose paths the kernel limits."""
    with TemporaryDirectory(prefix="demo-") as name:
        yield Path(name)


def demo(base: Path, *arguments: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "gossipd", "demo", "--json", *arguments],
        capture_output=True, text=True, timeout=SECONDS_MAX, cwd=base, env=os.environ | {"TMPDIR": str(base)},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    assert list(base.iterdir()) == [], "everything is cleaned up"
    return answer


def test_every_host_has_every_byte_and_storage_gave_each_once(short_path: Path) -> None:
    result = demo(short_path, "--hosts", "6", "--racks", "2", "--size", "64MiB")
    assert result["hosts"] == result["hosts_complete"] == 6
    assert result["verified"] is True
    assert result["corrupt_chunks"] == 0
    assert result["cpu_s"] > 6 * 0.2, "each of the daemons has started, at the least"
    total = result["bytes_total"]
    assert total <= result["source_bytes"] <= 1.02 * total + TAKEN_OVER_BYTES
    assert result["peer_bytes_cross_rack"] <= 1.1 * total + TAKEN_OVER_BYTES
    assert result["peer_bytes_same_rack"] >= 3.5 * total


def test_a_host_that_is_killed_half_way_completes_too(short_path: Path, tmp_path: Path) -> None:
    out = tmp_path / "report.json"
    result = demo(
        short_path, "--hosts", "3", "--racks", "2", "--size", "64MiB", "--kill", "node-2", "--report", str(out)
    )
    told = json.loads(out.read_text())
    assert told["summary"]["hosts_complete"] == 3
    assert told["summary"]["source_bytes"] == sum(one["source_bytes"] for one in told["report"]["traffic"])
    assert told["report"]["timeline"]["shares"].keys() == {"node-1", "node-2", "node-3"}
    assert "node-2" in told["report"]["timeline"]["silences"]
    assert [one["silent_s"] > 0 for one in told["summary"]["stragglers"] if one["name"] == "node-2"] == [True]
    assert result["hosts_complete"] == 3
    assert result["verified"] is True
    assert result["killed"] == "node-2"
    assert 0 < result["killed_at_chunks"] < result["chunks_total"]
    assert result["source_bytes"] <= 1.02 * result["bytes_total"] + TAKEN_OVER_BYTES


def test_what_rots_on_a_disk_is_found_fetched_again_and_counted(short_path: Path) -> None:
    result = demo(short_path, "--hosts", "6", "--racks", "2", "--size", "64MiB", "--corrupt", "node-3")
    assert result["hosts_complete"] == 6
    assert result["verified"] is True
    assert result["corrupt_chunks"] >= result["corrupted_on_disk"] > 0
    assert result["source_bytes"] <= 1.02 * result["bytes_total"] + TAKEN_OVER_BYTES


@pytest.mark.parametrize(("mib", "kib"), [(4, 256), (64, 256), (256, 1024), (1024, 4096), (102_400, 16_384)])
def test_a_larger_toy_model_has_larger_chunks_not_more(mib: int, kib: int) -> None:
    assert _chunk_bytes(mib * 2**20) == kib * 1024
