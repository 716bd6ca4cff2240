"""Sources are tried in a process of their own, which nobody waits for."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from gossipd.cli import source_trials
from gossipd.cli.source_trials import Trial, TrialOrder, try_sources
from gossipd.diagnosis.checks import SourceReading


def tried(*sources: str, patience_s: float = 4.0) -> list[SourceReading]:
    order = TrialOrder(
        allow=("file:///", "s3"), trials=tuple(Trial(one, "a.bin", 3, "m@1") for one in sources), patience_s=patience_s
    )
    return list(try_sources(order, os.environ))


def test_each_source_has_its_reading_in_order(tmp_path: Path) -> None:
    (tmp_path / "a.bin").write_bytes(b"abc")
    found = tried(f"file://{tmp_path}/nowhere", f"file://{tmp_path}")
    assert [(one.model, one.code) for one in found] == [("m@1", "E_SOURCE_NOT_FOUND"), ("m@1", "")]
    assert tried() == []


def test_a_process_that_does_not_answer_is_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "python"
    program.write_text(f"#!/bin/sh\nsleep 2\ntouch {tmp_path}/ended\n")
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))
    monkeypatch.setattr(source_trials, "START_S", 0.1)
    (found,) = tried(f"file://{tmp_path}", patience_s=0.1)
    assert (found.code, found.sentence) == ("E_SOURCE_SLOW", "storage: no answer for 0.1 s")
    assert not (tmp_path / "ended").exists()


def test_a_process_that_cannot_start_is_silence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "python"
    program.write_text("#!/bin/sh\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))
    sources = [f"file://{tmp_path}/{'x' * 200}{number}" for number in range(500)]  # more than a pipe holds
    assert {one.code for one in tried(*sources)} == {"E_SOURCE_SLOW"}
