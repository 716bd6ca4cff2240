"""The faults of the first days have tests: ``first_day.toml`` names them, and each one named exists."""

from __future__ import annotations

import ast
import tomllib
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
LISTED = {
    fault: tests
    for table in tomllib.loads((ROOT / "tests/first_day.toml").read_text()).values()
    for fault, tests in table.items()
}


@cache
def functions(path: str) -> set[str]:
    nodes = ast.walk(ast.parse((ROOT / path).read_text()))
    return {one.name for one in nodes if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)}


@pytest.mark.parametrize("fault", LISTED)
def test_every_fault_that_was_met_has_tests_that_exist(fault: str) -> None:
    assert LISTED[fault]
    for test in LISTED[fault]:
        path, _, name = test.partition("::")
        assert name in functions(path), f"{path} has no {name}"
