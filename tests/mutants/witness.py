"""A pytest plugin for runs inside a copy of the tree: is it the copy that is tested, and what has failed how?

What lives here: the assertion on where imports come from, and one JSON line per failed test. What does not: the
verdict (``trial``). The environment names the tree and the file for the lines.
"""

from __future__ import annotations

import importlib
import json
import os
from collections.abc import Generator
from pathlib import Path

import pytest

TREE, REPORT = "GOSSIPD_MUTANT_TREE", "GOSSIPD_MUTANT_REPORT"
PACKAGES = ("gossipd", "membership", "tests.mutants")


def pytest_configure(config: pytest.Config) -> None:
    tree = Path(os.environ[TREE]).resolve()
    for name in PACKAGES:
        found = importlib.import_module(name).__file__
        if found is None or not Path(found).resolve().is_relative_to(tree):
            raise pytest.UsageError(f"{name} was imported from {found}, which is not the copy in {tree}")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed:
        kinds = sorted({type(error).__name__ for error in _leaves(call.excinfo.value)}) if call.excinfo else []
        with Path(os.environ[REPORT]).open("a") as lines:
            lines.write(json.dumps({"test": item.nodeid, "when": report.when, "errors": kinds}) + "\n")
    return report


def _leaves(error: BaseException) -> list[BaseException]:
    if not isinstance(error, BaseExceptionGroup):
        return [error]
    return [leaf for inner in error.exceptions for leaf in _leaves(inner)]
