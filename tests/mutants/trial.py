"""One bug planted in a copy of the tree, and the tests named for it run there.

What lives here: the copy, planting and taking back, running pytest, the verdict. What does not: the bugs.

A bug counts as caught when a test *fails*: in its call, for a reason that is not the bug's own clumsiness. A tree
that cannot be imported, a name that does not exist, a fixture that breaks or a run that ends by its time-out prove
nothing about the suite. Before any bug the same tests must pass in the same copy (``baseline``).

The interpreter's caches in the copy are checked by the source's hash: a bug and its removal within one second, of one
length, would look alike by time and size.
"""

from __future__ import annotations

import compileall
import json
import os
import py_compile
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from tests.mutants.mutant import Mutant, MutantError
from tests.mutants.witness import REPORT, TREE

ROOT = Path(__file__).resolve().parent.parent.parent
COPIED = ("gossipd", "membership", "tests", "config", "pyproject.toml", "README.md", "CHANGELOG.md", "LICENSE")
TIMEOUT_S = 900.0  # the longest selection takes 20 s on two cores; with ten times their work, forty times that
_FAILURES_MAX = 3  # enough to say who catches it
_CLUMSY = frozenset({"NameError", "UnboundLocalError", "ImportError", "ModuleNotFoundError", "SyntaxError"})
_PASSED, _FAILED = 0, 1  # pytest's exit codes; every other one is about pytest, not about tests


class Verdict(Enum):
    """What became of a bug."""

    CAUGHT = "caught"
    SURVIVED = "survived"
    BROKEN = "broken"
    """The run failed for another reason than a test's verdict."""
    TIMEOUT = "timeout"


@dataclass(frozen=True, slots=True)
class Outcome:
    """A verdict, the tests that gave it, and pytest's last words."""

    verdict: Verdict
    caught_by: tuple[str, ...]
    seconds: float
    said: str = ""


@contextmanager
def copied_tree(root: Path = ROOT) -> Iterator[Path]:
    """A copy of what the tests need, removed at the end."""
    with tempfile.TemporaryDirectory(prefix="gossipd-mutants-") as directory:
        tree = Path(directory).resolve()
        skipped = shutil.ignore_patterns("__pycache__", "*.pyc", ".hypothesis")
        for name in COPIED:
            source = root / name
            if source.is_dir():
                shutil.copytree(source, tree / name, ignore=skipped, symlinks=True)
            elif source.exists():
                shutil.copy2(source, tree / name)
        mode = py_compile.PycInvalidationMode.CHECKED_HASH
        for package in ("gossipd", "membership", "tests"):
            compileall.compile_dir(tree / package, quiet=2, invalidation_mode=mode)
        yield tree


@contextmanager
def planted(tree: Path, mutant: Mutant) -> Iterator[None]:
    """The bug is in ``tree`` inside the block. Raises MutantError when it does not fit."""
    assert not tree.is_relative_to(ROOT) and not ROOT.is_relative_to(tree), "bugs are planted in copies only"
    path = tree / mutant.path
    if not path.is_file():
        raise MutantError(f"{mutant.name}: there is no {mutant.path}")
    right = path.read_text()
    path.write_text(mutant.applied(right))
    try:
        yield
    finally:
        path.write_text(right)


def try_mutant(tree: Path, mutant: Mutant) -> Outcome:
    """Plant it and run its tests. Raises MutantError."""
    with planted(tree, mutant):
        return run_tests(tree, mutant.tests)


def baseline(tree: Path, mutants: Sequence[Mutant]) -> Outcome:
    """All tests that the bugs name, without any: must survive, or the verdicts mean nothing."""
    return run_tests(tree, sorted({test for mutant in mutants for test in mutant.tests}), timeout_s=2 * TIMEOUT_S)


def run_tests(tree: Path, tests: Sequence[str], *, timeout_s: float = TIMEOUT_S) -> Outcome:
    """Run these tests of ``tree`` in a process of their own."""
    with tempfile.TemporaryDirectory(prefix="gossipd-mutants-run-") as scratch:
        report = Path(scratch) / "report"
        report.touch()
        environment = {**os.environ, "PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1"}
        environment |= {TREE: str(tree), REPORT: str(report)}
        command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.mutants.witness", "-p", "no:cacheprovider"]
        command += [f"--maxfail={_FAILURES_MAX}", "--tb=line", f"--basetemp={scratch}/files", *tests]
        began = time.monotonic()
        process = subprocess.Popen(
            command, cwd=tree, env=environment, text=True, start_new_session=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        try:
            code, said = _ended(process, timeout_s)
        finally:
            if process.returncode is None:  # we are being stopped: nothing of ours goes on
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        seconds = round(time.monotonic() - began, 1)
        return _judged(code, [json.loads(line) for line in report.read_text().splitlines()], seconds, said)


def _ended(process: subprocess.Popen[str], timeout_s: float) -> tuple[int | None, str]:
    """The exit code and what was said; None when it had to be ended.

    Waits in slices of a second: a machine that is stopped for a while costs one slice and no verdict.
    """
    for _ in range(int(timeout_s)):
        try:
            said, _ = process.communicate(timeout=1.0)
        except subprocess.TimeoutExpired:
            continue
        return process.returncode, said
    os.killpg(process.pid, signal.SIGKILL)
    return None, process.communicate()[0]


def _judged(code: int | None, failures: Sequence[dict[str, object]], seconds: float, said: str) -> Outcome:
    tail = "\n".join(said.splitlines()[-15:])
    if code is None:
        return Outcome(Verdict.TIMEOUT, (), seconds, tail)
    if code == _PASSED:
        return Outcome(Verdict.SURVIVED, (), seconds)
    real = [
        str(failure["test"])
        for failure in failures
        if failure["when"] == "call" and isinstance(failure["errors"], list) and not _CLUMSY & set(failure["errors"])
    ]
    if code == _FAILED and real:
        return Outcome(Verdict.CAUGHT, tuple(real), seconds, tail)
    return Outcome(Verdict.BROKEN, (), seconds, tail)
