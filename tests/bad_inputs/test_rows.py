"""The table of bad inputs names tests and codes that exist: a renamed test or code cannot empty a row unseen."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from tests.bad_inputs.rows import ROWS, Row

ROOT = Path(__file__).resolve().parents[2]
WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
WITHOUT_A_CODE = {31, 41, 44}  # an order that is known already; a step that waits, and one that is as good as any
CODE = re.compile(r"E_[A-Z][A-Z_]*[A-Z]")


@cache
def _tests_in(path: str) -> frozenset[str]:
    tree = ast.parse((ROOT / path).read_text())
    return frozenset(node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


@cache
def _words_in_the_code() -> frozenset[str]:
    """Every word in a text constant of the product that is not a docstring."""
    found: set[str] = set()
    for package in ("gossipd", "membership"):
        for path in (ROOT / package).rglob("*.py"):
            tree = ast.parse(path.read_text())
            said = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
            for node in ast.walk(tree):
                if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in said:
                    found |= set(WORD.findall(node.value))
    return frozenset(found)


def test_the_table_has_every_row_once_and_in_order() -> None:
    assert [row.number for row in ROWS] == list(range(1, 51))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"B{row.number}")
def test_each_row_names_tests_that_exist_or_says_why_it_has_none(row: Row) -> None:
    assert row.tests or row.absent
    assert not row.absent or row.absent.endswith(".")
    for test in row.tests:
        path, _, name = test.partition("::")
        assert (ROOT / path).is_file(), path
        assert name.startswith("test_"), test
        assert name in _tests_in(path), test


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"B{row.number}")
def test_each_code_is_in_the_product_and_asserted_by_a_file_of_its_row(row: Row) -> None:
    assert row.codes or row.absent or row.number in WITHOUT_A_CODE
    texts = [(ROOT / test.partition("::")[0]).read_text() for test in row.tests]
    for code in row.codes:
        assert code in _words_in_the_code(), code
        assert code.startswith("E_") == bool(CODE.fullmatch(code)), code
        assert any(code in text for text in texts), f"no test of B{row.number} knows {code}"
