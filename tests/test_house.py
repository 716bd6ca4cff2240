"""The house rules: imports point down, the deciding floors are pure, every module says what it is.

Floors are listed here and nowhere else. A new module must be given one (or live in a package that has one).
"""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

# Longest prefix wins. Floor 0 words, 1 values, 2 decisions, 3 hands, 4 houses, 5 doors.
FLOORS = {
    "gossipd": 0,
    "gossipd.core": 2,
    "gossipd.core.errors": 0,
    "gossipd.core.ids": 0,
    "gossipd.wire": 1,
    "gossipd.ports": 3,
    "gossipd.buffers": 3,
    "gossipd.arrival": 3,
    "gossipd.throttle": 3,
    "gossipd.store": 3,
    "gossipd.sources": 3,
    "gossipd.transfer": 3,
    "gossipd.control": 3,
    "gossipd.ops": 3,
    "gossipd.publish": 3,
    "gossipd.config": 4,
    "gossipd.daemon": 4,
    "gossipd.sim": 4,
    "gossipd.demo": 5,
    "gossipd.cli": 5,
    "gossipd.__main__": 5,
    "membership": 2,
    "membership.errors": 0,
    "membership.member": 0,
    "membership.runtime": 3,
}
PURE_PREFIXES = ("gossipd.core", "gossipd.wire", "gossipd.sim", "membership")
IMPURE_EXCEPTIONS = ("membership.runtime", "gossipd.sim.plot")
HANDS = ("gossipd.store", "gossipd.sources", "gossipd.transfer", "gossipd.control", "gossipd.ops", "gossipd.publish")
IMPURE_MODULES = {
    "trio", "zmq", "os", "time", "socket", "threading", "logging", "pathlib", "subprocess", "asyncio", "select",
    "structlog", "secrets", "tempfile", "shutil", "mmap", "signal", "ssl", "obstore", "psutil",
}  # fmt: skip
IMPURE_CALLS = {"open", "print", "input", "hash", "id"}
FUNCTION_LINES_MAX = 70


def modules() -> dict[str, Path]:
    found = {}
    for package in ("gossipd", "membership"):
        for path in sorted((ROOT / package).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


MODULES = modules()


@cache
def tree(module: str) -> ast.Module:
    return ast.parse(MODULES[module].read_text())


def floor(module: str) -> int:
    parts = module.split(".")
    for size in range(len(parts), 0, -1):
        known = FLOORS.get(".".join(parts[:size]))
        if known is not None:
            return known
    raise AssertionError(f"{module} has no floor")


def is_pure(module: str) -> bool:
    return module.startswith(PURE_PREFIXES) and not module.startswith(IMPURE_EXCEPTIONS)


def imports(module: str) -> list[str]:
    """Modules of this project that ``module`` imports, and outside top-level names prefixed with ``!``."""
    names = []
    for node in ast.walk(tree(module)):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module} uses a relative import"
            base = node.module or ""
            for alias in node.names:
                deeper = f"{base}.{alias.name}"
                names.append(deeper if deeper in MODULES else base)
    return [name if name in MODULES else f"!{name}" for name in names]


@pytest.mark.parametrize("module", MODULES)
def test_imports_point_down(module: str) -> None:
    for name in imports(module):
        if name.startswith("!"):
            continue
        if module in FLOORS and module.count(".") == 0 and name.startswith(module):
            continue  # a package's front page may name its own modules
        assert floor(name) <= floor(module), f"{module} (floor {floor(module)}) imports {name} (floor {floor(name)})"


@pytest.mark.parametrize("module", [name for name in MODULES if name.startswith("membership")])
def test_membership_stands_alone(module: str) -> None:
    assert not [name for name in imports(module) if "gossipd" in name]


@pytest.mark.parametrize("module", [name for name in MODULES if name.startswith(HANDS)])
def test_a_hand_never_imports_another_hand(module: str) -> None:
    own = next(hand for hand in HANDS if module.startswith(hand))
    others = [hand for hand in HANDS if hand != own]
    strangers = [name for name in imports(module) if name.startswith(tuple(others))]
    assert not strangers, f"{module} imports {strangers}"


@pytest.mark.parametrize("module", [name for name in MODULES if is_pure(name)])
def test_deciding_code_is_pure(module: str) -> None:
    for name in imports(module):
        top = name.lstrip("!").split(".")[0]
        assert top not in IMPURE_MODULES, f"{module} imports {name.lstrip('!')}"
        if not name.startswith("!"):
            assert is_pure(name) or name in ("gossipd", "membership"), f"{module} imports {name}, which is not pure"
    for node in ast.walk(tree(module)):
        assert not isinstance(node, ast.AsyncFunctionDef | ast.Await), f"{module}:{node.lineno} is async"
        if isinstance(node, ast.Call):
            assert not _is_banned(node.func), f"{module}:{node.lineno} calls {ast.unparse(node.func)}"


def _is_banned(function: ast.expr) -> bool:
    if isinstance(function, ast.Name):
        return function.id in IMPURE_CALLS
    if isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name):
        owner, name = function.value.id, function.attr
        return (owner == "random" and name != "Random") or (owner == "datetime" and name in ("now", "utcnow"))
    return False


@pytest.mark.parametrize("module", MODULES)
def test_every_module_says_what_it_is_and_functions_fit_a_screen(module: str) -> None:
    assert ast.get_docstring(tree(module)), f"{module} has no docstring"
    for node in ast.walk(tree(module)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            assert lines <= FUNCTION_LINES_MAX, f"{module}.{node.name} has {lines} lines"


def test_the_top_level_holds_nothing_else() -> None:
    allowed = {"gossipd", "membership", "tests", "config", "pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md"}
    ignored = {"build", "dist"}
    found = {path.name for path in ROOT.iterdir() if not path.name.startswith(".")}
    found = {name for name in found if not name.endswith(".egg-info")}
    assert found - ignored <= allowed, f"unexpected at the top level: {sorted(found - ignored - allowed)}"
