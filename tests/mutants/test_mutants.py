"""That every planted bug still fits the code it was written against, and that planting and judging work.

All of them together take minutes (``python -m tests.mutants``); here two cheap ones, and the ways to cheat.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.mutants.catalogue import MUTANTS
from tests.mutants.mutant import Mutant, MutantError
from tests.mutants.trial import ROOT, Verdict, copied_tree, planted, run_tests, try_mutant
from tests.rule import rule_for

CHEAP = ("a-tombstone-forgets", "journal-without-a-crc-check")


@pytest.fixture(scope="module")
def tree() -> Iterator[Path]:
    with copied_tree() as copy:
        yield copy


@rule_for(MUTANTS.values(), breaks=MutantError)
def test_every_planted_bug_fits_its_file_and_names_tests_that_exist(mutant: Mutant) -> None:
    mutant.applied((ROOT / mutant.path).read_text())
    assert mutant.tests
    for test in mutant.tests:
        assert (ROOT / test.partition("::")[0]).is_file(), test


def test_there_are_enough_of_them_and_each_says_what_it_does() -> None:
    assert len(MUTANTS) >= 24
    for mutant in MUTANTS.values():
        assert mutant.says.endswith(".") and "\n" not in mutant.says, mutant.name


@pytest.mark.parametrize("name", CHEAP)
def test_a_planted_bug_is_caught_by_the_tests_named_for_it(tree: Path, name: str) -> None:
    outcome = try_mutant(tree, MUTANTS[name])
    assert outcome.verdict is Verdict.CAUGHT, outcome.said
    assert all(test.startswith("tests/") for test in outcome.caught_by)


def test_a_bug_that_only_breaks_imports_is_not_caught(tree: Path) -> None:
    clumsy = Mutant(
        "clumsy", "A name that does not exist.", "membership/tombstones.py",
        "        return boot <= stone.boot\n", "        return boot <= stones.boot\n",
        ("tests/membership/test_values.py::test_a_tombstone_blocks_a_life_not_a_person_and_not_for_ever",),
    )  # fmt: skip
    assert try_mutant(tree, clumsy).verdict is Verdict.BROKEN


def test_a_run_that_would_test_another_tree_says_nothing(tree: Path, tmp_path: Path) -> None:
    """A copy without the packages would import the installed ones, which are the checkout's."""
    lone = tmp_path / "tree"
    shutil.copytree(tree / "tests/mutants", lone / "tests/mutants")
    outcome = run_tests(lone, ["tests/mutants/test_mutants.py"])
    assert outcome.verdict is Verdict.BROKEN
    assert "is not the copy" in outcome.said


def test_a_text_that_stands_elsewhere_or_twice_or_changes_nothing_is_an_error() -> None:
    mutant = MUTANTS["a-tombstone-forgets"]
    text = (ROOT / mutant.path).read_text()
    for wrong, reason in (
        (replace(mutant, old="no such text"), "0 times"),
        (replace(mutant, old="return"), "times"),
        (replace(mutant, new=mutant.old), "changes nothing"),
        (replace(mutant, new="        return (\n"), "no Python"),
    ):
        with pytest.raises(MutantError, match=reason):
            wrong.applied(text)


def test_the_copy_is_as_it_was_after_a_bug_and_the_checkout_is_never_touched(tree: Path) -> None:
    mutant = MUTANTS["a-tombstone-forgets"]
    before = (tree / mutant.path).read_text()
    with planted(tree, mutant):
        assert (tree / mutant.path).read_text() != before
    assert (tree / mutant.path).read_text() == before == (ROOT / mutant.path).read_text()
    with pytest.raises(AssertionError, match="copies only"), planted(ROOT, mutant):
        raise NotImplementedError("planted in the checkout")
