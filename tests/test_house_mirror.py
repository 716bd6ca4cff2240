"""Every module has a test module of its name, or is listed in ``covered_by.toml`` with the one that covers it.

What lives here: the comparison. What does not: how much a test covers; the planted bugs (``tests.mutants``) show that.
``python -m tests.test_house_mirror`` writes a line for each module that lacks one; look at its choice.
"""

from __future__ import annotations

import ast
import tomllib
from collections import Counter
from functools import cache
from pathlib import Path

from tests.rule import rule_for
from tests.test_house import MODULES, ROOT, imports

COVERED_BY = Path(__file__).with_name("covered_by.toml")
TESTS = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "tests").rglob("test_*.py"))


def mirror(module: str) -> str:
    """The test module of that name."""
    *packages, name = module.split(".")
    return "/".join(["tests", *packages, f"test_{name}.py"])


def is_exempt(module: str) -> bool:
    """Front pages of packages hold a docstring only."""
    return MODULES[module].name in ("__init__.py", "__main__.py")


@cache
def imported(test: str) -> Counter[str]:
    """Modules of the project that a test imports, with how many names of each."""
    found: Counter[str] = Counter()
    for node in ast.walk(ast.parse((ROOT / test).read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                deeper = f"{node.module}.{alias.name}"
                found[deeper if deeper in MODULES else node.module] += 1
    return found


@cache
def reached(test: str) -> frozenset[str]:
    """All that a test imports, over any number of modules."""
    found, left = set[str](), [name for name in imported(test) if name in MODULES]
    left += [one for name in imported(test) if name.startswith("tests.") for one in _of_helper(name)]
    while left:
        name = left.pop()
        if name not in found:
            found.add(name)
            left += [one for one in imports(name) if one in MODULES]
    return frozenset(found)


def _of_helper(name: str) -> list[str]:
    path = ROOT / (name.replace(".", "/") + ".py")
    return [one for one in imported(path.relative_to(ROOT).as_posix()) if one in MODULES] if path.exists() else []


@cache
def listed() -> dict[str, str]:
    return tomllib.loads(COVERED_BY.read_text())["covered_by"] if COVERED_BY.exists() else {}


@rule_for(name for name in MODULES if not is_exempt(name))
def test_module_has_a_test_of_its_name_or_is_listed(module: str) -> None:
    if (ROOT / mirror(module)).exists():
        assert module not in listed(), f"{module} has {mirror(module)}; take it off the list"
        return
    test = listed().get(module)
    assert test is not None, f"{module} has no {mirror(module)} and is not in {COVERED_BY.name}"
    assert (ROOT / test).exists(), test
    # What a command or a daemon runs is imported late, or in another process.
    runs_it = test.startswith("tests/e2e/") or module.startswith("gossipd.cli.")
    assert runs_it or module in reached(test), f"{test} does not reach {module}"


def test_the_list_names_no_module_that_is_gone() -> None:
    assert set(listed()) <= set(MODULES)


def _best(module: str) -> str:
    """A test that imports the module itself, else one that imports a module that does; the nearest by folder."""
    direct = [test for test in TESTS if module in imported(test)]
    indirect = [test for test in TESTS if module in reached(test)]
    users = {name for name in MODULES if module in imports(name)}
    by_user = [test for test in TESTS if users & set(imported(test))]

    def rank(test: str) -> tuple[int, int, str]:
        near = len(set(mirror(module).split("/")[:-1]) & set(test.split("/")[:-1]))
        return (-near, -imported(test)[module], test)

    return min(
        direct or by_user or indirect,
        key=rank,
        default="tests/gossipd/cli/test_commands.py"
        if module.startswith("gossipd.cli.")
        else "tests/e2e/test_delivery.py",
    )


if __name__ == "__main__":
    rows = {
        name: listed().get(name) if name in listed() and (ROOT / listed()[name]).exists() else _best(name)
        for name in MODULES
        if not is_exempt(name) and not (ROOT / mirror(name)).exists()
    }
    lines = [f'"{name}" = "{test}"' for name, test in rows.items()]
    COVERED_BY.write_text("\n".join(["[covered_by]", *lines]) + "\n")
