"""``gossipd key``: three rounds on one file, its owner and mode kept."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from gossipd.cli.main import main
from gossipd.identity.cluster_key import KEYS_MAX, new_key_ring
from gossipd.identity.key_files import read_key_ring, write_key_ring

RING = new_key_ring(bytes(range(48)))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    write_key_ring(tmp_path / "cluster.key", RING)
    return tmp_path / "cluster.key"


def test_three_rounds_replace_the_key(file: Path) -> None:
    assert main(["key", "add", str(file)]) == 0
    old, new = read_key_ring(file).keys
    assert old == RING.keys[0]
    assert main(["key", "use", str(file)]) == 0
    assert read_key_ring(file).keys == (new, old)
    assert main(["key", "drop", str(file)]) == 0
    assert (read_key_ring(file).keys, read_key_ring(file).cluster_id) == ((new,), RING.cluster_id)


def test_the_file_stays_secret_and_alone(file: Path) -> None:
    (file.parent / ".cluster.key.new").write_text("left by a round that was interrupted")
    assert main(["key", "add", str(file)]) == 0
    assert file.stat().st_mode & 0o777 == 0o600
    assert os.listdir(file.parent) == ["cluster.key"]


def test_a_round_without_a_second_key_changes_nothing(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = file.stat().st_mtime_ns
    assert main(["key", "use", str(file), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["changed"] is False
    assert file.stat().st_mtime_ns == before


def test_output_names_the_next_step_and_no_key(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["key", "add", str(file)]) == 0
    said = capsys.readouterr().out
    assert f"gossipd key use {file}" in said
    assert all(key.hex() not in said for key in read_key_ring(file).keys)


def test_too_many_keys_are_refused_with_the_cure(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(KEYS_MAX - 1):
        assert main(["key", "add", str(file)]) == 0
    assert main(["key", "add", str(file)]) == 7
    assert "drop the oldest first" in capsys.readouterr().err


def test_a_missing_file_is_refused_by_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["key", "add", str(tmp_path / "none")]) == 7
    assert "E_KEY_MISSING" in capsys.readouterr().err
