"""The house's language: one class for one name, standard words, plain English, construction in one pass.

What lives here: rules about names and words in the source as text. What does not: imports, purity, signatures
(``test_house``).
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections import defaultdict
from collections.abc import Iterator
from functools import cache

from tests.rule import rule_for
from tests.test_house import MODULES, ROOT, nodes, tree

CLASS_LINES_MAX = 250
LONG_CLASSES_MAX = 15  # may only fall
PICTURES = {
    "door", "doors", "doorman", "doorkeeper", "desk", "desks", "shelf", "shelves", "purse", "teller", "tellers", "bell",
    "sights", "lexicon", "laggards", "niceness", "stuff", "whereabouts",
}  # fmt: skip
BANNED_CLASS_WORDS = PICTURES | {"run", "keeping", "keeper", "manager", "helper", "util", "common", "misc"}
_PROSE = ("whence", "anew", "whoever", "whomever", "whosoever", "he", "his", "him", "himself")
BANNED_PROSE = re.compile(rf"\b({'|'.join(_PROSE)})\b", re.IGNORECASE)
BANNED_IN_TESTS = re.compile(rf"(?<![a-z])({'|'.join((*_PROSE, *sorted(PICTURES)))})(?![a-z])", re.IGNORECASE)
HISTORY = re.compile(r"\d ?(s|ms|%|KB|MB|chunk times)? (instead of|where it was|before that) \d", re.IGNORECASE)


def words(identifier: str) -> list[str]:
    return [word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z0-9]+", identifier)]


def identifiers(module: str) -> Iterator[tuple[int, str]]:
    for node in nodes(module):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.lineno, node.name
        elif isinstance(node, ast.arg):
            yield node.lineno, node.arg
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.attr
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.id


@cache
def prose(module: str) -> tuple[tuple[int, str], ...]:
    """Docstrings and comments, by line."""
    found = []
    text = MODULES[module].read_text()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT or (token.type == tokenize.STRING and token.string.startswith('"""')):
            found += [(token.start[0] + at, line) for at, line in enumerate(token.string.splitlines())]
    return tuple(found)


def test_public_class_names_are_defined_once() -> None:
    places = defaultdict(list)
    for module in MODULES:
        for node in nodes(module):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(f"{module}:{node.lineno}")
    twice = {name: found for name, found in places.items() if len(found) > 1}
    assert not twice, twice


@rule_for(MODULES)
def test_identifiers_hold_no_pictures(module: str) -> None:
    for line, name in identifiers(module):
        assert not PICTURES & set(words(name)), f"{module}:{line} {name}"


def test_class_names_hold_no_banned_words() -> None:
    for module in MODULES:
        for node in nodes(module):
            if isinstance(node, ast.ClassDef):
                assert not BANNED_CLASS_WORDS & set(words(node.name)), f"{module}:{node.lineno} {node.name}"


@rule_for(MODULES)
def test_prose_names_its_actors_and_tells_no_history(module: str) -> None:
    for line, text in prose(module):
        assert not BANNED_PROSE.search(text), f"{module}:{line} {text.strip()}"
        assert not HISTORY.search(text), f"{module}:{line} {text.strip()}"


def test_tests_and_examples_have_no_banned_word_in_names_or_text() -> None:
    rules = [ROOT / "tests" / name for name in ("test_house_language.py", "test_manual.py")]  # they list the words
    for path in sorted({*(ROOT / "tests").rglob("*.py"), *(ROOT / "config").rglob("*.py")} - {*rules}):
        for line, text in enumerate(path.read_text().splitlines(), start=1):
            assert not BANNED_IN_TESTS.search(text), f"{path.relative_to(ROOT)}:{line} {text.strip()}"


@rule_for(name for name in MODULES if name.startswith("gossipd.daemon"))
def test_no_part_is_put_into_another_after_its_construction(module: str) -> None:
    """``self.one.other = part`` wires in two phases: construction must be one pass."""
    for node in nodes(module):
        if not (
            isinstance(node, ast.FunctionDef) and (node.name == "__init__" or node.name.startswith(("_make", "_build")))
        ):
            continue
        for one in ast.walk(node):
            if isinstance(one, ast.Assign):
                for target in one.targets:
                    assert not (
                        isinstance(target, ast.Attribute)
                        and isinstance(target.value, ast.Attribute)
                        and isinstance(target.value.value, ast.Name)
                        and target.value.value.id == "self"
                    ), f"{module}:{one.lineno} {ast.unparse(target)} is set from outside"


def test_long_classes_become_fewer() -> None:
    long = [
        f"{module}.{node.name}"
        for module in MODULES
        for node in nodes(module)
        if isinstance(node, ast.ClassDef)
        and (node.end_lineno or 0) - node.lineno + 1 > CLASS_LINES_MAX
        and "Enum" not in [ast.unparse(base) for base in node.bases]  # a table is as long as its rows
    ]
    assert len(long) <= LONG_CLASSES_MAX, long


def test_a_simulation_repeats_no_number_of_an_adapter() -> None:
    defined: dict[tuple[str, object], str] = {}
    for module in MODULES:
        if not module.startswith("gossipd.sim"):
            defined |= {one: module for one in _numbers(tree(module)) if not one[0].startswith("_")}
    simulations = [*(ROOT / "gossipd/sim").glob("*.py"), *(ROOT / "tests/sim").rglob("*.py")]
    for path in simulations:
        for constant in _numbers(ast.parse(path.read_text())):
            public = (constant[0].lstrip("_"), constant[1])
            assert public not in defined, f"{path.name} repeats {public} of {defined[public]}"


def _numbers(module: ast.Module) -> list[tuple[str, object]]:
    """Module-level constants that are plain numbers: name and value."""
    return [
        (target.id, node.value.value)
        for node in module.body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
        if type(node.value.value) in (int, float)
        for target in node.targets
        if isinstance(target, ast.Name)
    ]


def test_the_readme_is_one_page() -> None:
    assert len((ROOT / "README.md").read_bytes()) <= 6 * 1024
