"""A command beside processes that spin has its own output and exit code."""

from __future__ import annotations

import pytest

from tests.bench.loaded import main


def test_a_command_keeps_its_output_and_exit_code(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["2", "python", "-c", "print('seven'); raise SystemExit(7)"]) == 7
    assert capfd.readouterr().out == "seven\n"


def test_the_processes_spin_while_the_command_runs() -> None:
    parent = "import os; print(os.getppid())"
    siblings = (
        f"{parent}; import pathlib, sys; me = os.getppid(); "
        "own = pathlib.Path(f'/proc/{me}/task/{me}/children').read_text().split(); sys.exit(len(own))"
    )
    assert main(["3", "python", "-c", siblings]) >= 4


def test_without_a_number_or_a_command_the_usage_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    for given in ([], ["4"], ["gossipd", "demo"]):
        assert main(given) == 2
        assert capsys.readouterr().err.startswith("python -m tests.bench.loaded N COMMAND")
