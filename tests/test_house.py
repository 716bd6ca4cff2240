"""The house rules: who may import whom, deciding code is pure, every module says what it is.

What lives here: rules about the source as text. What does not: behaviour. A new package needs a line in ``MAY_IMPORT``.
"""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

from tests.rule import rule_for

ROOT = Path(__file__).resolve().parent.parent

# Which packages a package may import, itself besides; every package is here. Words at the top, then the four brains,
# then adapters, then those that put all together. A brain imports no other brain: the words that they share are in
# ``core``.
WORDS = frozenset({"core", "identity", "manifest", "parts"})
BRAINS = frozenset({"swarm", "sessions", "deployment"})
STANDS_ON = WORDS | {"runtime", "wire"}
EVERYTHING_BELOW = STANDS_ON | BRAINS | {
    "store", "sources", "transfer", "control", "api", "client", "inbox", "audit", "publish", "config", "diagnosis",
}  # fmt: skip
MAY_IMPORT: dict[str, frozenset[str]] = {
    "core": frozenset(),
    "identity": frozenset({"core"}),
    "manifest": frozenset({"core", "identity"}),
    "parts": frozenset({"core", "manifest"}),
    "swarm": frozenset({"core"}),
    "sessions": frozenset({"core", "wire"}),
    "deployment": WORDS,
    "wire": frozenset({"core", "identity"}),
    "diagnosis": frozenset({"core"}),
    "runtime": frozenset({"core"}),
    "store": STANDS_ON,
    "sources": STANDS_ON,
    "transfer": STANDS_ON,
    "control": STANDS_ON | {"sessions", "deployment"},  # a trigger carries the value of a statement
    "api": STANDS_ON | {"deployment", "diagnosis"},  # of progress records rows are made, of members the count of drift
    "client": frozenset({"core", "api"}),  # what a job imports: the low-level client, not the server beside it
    "inbox": STANDS_ON,
    "audit": STANDS_ON,
    "publish": STANDS_ON | {"sources", "store"},  # opening files beneath a directory
    "config": STANDS_ON | {"store"},
    "web": frozenset({"core", "api", "diagnosis"}),  # its own process: it asks a daemon as any client does
    "daemon": EVERYTHING_BELOW,
    "sim": STANDS_ON | BRAINS | {"diagnosis"},  # what limits is the same of a planned cluster and of a real one
    "demo": EVERYTHING_BELOW | {"daemon", "web"},
    "cli": EVERYTHING_BELOW | {"daemon", "sim", "demo", "web"},
    "torch": frozenset({"core", "api", "client"}),
    "mlflow": frozenset({"core", "client"}),
    "vllm": frozenset({"core", "client"}),
    "__main__": frozenset({"cli"}),
}
PURE_PREFIXES = (
    "gossipd.runtime.turn_interval", "gossipd.runtime.pending_connections", "gossipd.runtime.flooding_addresses",
    "gossipd.core", "gossipd.identity", "gossipd.manifest", "gossipd.parts", "gossipd.swarm", "gossipd.sessions",
    "gossipd.deployment", "gossipd.diagnosis", "gossipd.wire", "gossipd.sim", "membership",
)  # fmt: skip
IMPURE_EXCEPTIONS = ("membership.runtime", "membership.socket_filter", "gossipd.sim.plot", "gossipd.identity.key_files")
IMPURE_MODULES = {
    "trio", "zmq", "os", "time", "socket", "threading", "logging", "pathlib", "subprocess", "asyncio", "select",
    "secrets", "tempfile", "shutil", "mmap", "signal", "ssl", "obstore", "psutil",
}  # fmt: skip
IMPURE_CALLS = {"open", "print", "input", "hash", "id"}
MODULE_LINES_MAX = 500
FUNCTION_LINES_MAX = 70
PARAMETERS_MAX = 7


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


@cache
def nodes(module: str) -> list[ast.AST]:
    """All of the tree: each rule looks at them, and walking costs more than looking."""
    return list(ast.walk(tree(module)))


def is_pure(module: str) -> bool:
    return module.startswith(PURE_PREFIXES) and not module.startswith(IMPURE_EXCEPTIONS)


@cache
def imports(module: str) -> list[str]:
    """Modules of this project that ``module`` imports, and outside top-level names prefixed with ``!``."""
    names = []
    for node in nodes(module):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module} uses a relative import"
            base = node.module or ""
            for alias in node.names:
                deeper = f"{base}.{alias.name}"
                names.append(deeper if deeper in MODULES else base)
    return [name if name in MODULES else f"!{name}" for name in names]


def package(module: str) -> str:
    return module.split(".")[1] if module.startswith("gossipd.") else module.split(".", maxsplit=1)[0]


@rule_for(name for name in MODULES if name.startswith("gossipd."))
def test_package_imports_only_what_it_may(module: str) -> None:
    own = package(module)
    assert own in MAY_IMPORT, f"{own} has no line in MAY_IMPORT"
    for name in imports(module):
        if name.startswith("gossipd.") and package(name) != own:
            assert package(name) in MAY_IMPORT[own], f"{module} imports {name}"


def test_no_import_cycle_counting_late_and_typing_imports() -> None:
    graph = {name: [one for one in imports(name) if one in MODULES and one != name] for name in MODULES}
    finished: set[str] = set()

    def visit(name: str, path: list[str]) -> None:
        assert name not in path, f"cycle: {' -> '.join([*path[path.index(name) :], name])}"
        if name not in finished:
            for one in graph[name]:
                visit(one, [*path, name])
            finished.add(name)

    for name in graph:
        visit(name, [])


@rule_for(name for name in MODULES if name.startswith("membership"))
def test_membership_stands_alone(module: str) -> None:
    assert not [name for name in imports(module) if "gossipd" in name]


@rule_for(name for name in MODULES if is_pure(name))
def test_deciding_code_is_pure(module: str) -> None:
    for name in imports(module):
        top = name.lstrip("!").split(".")[0]
        assert top not in IMPURE_MODULES, f"{module} imports {name.lstrip('!')}"
        if not name.startswith("!"):
            assert is_pure(name) or name in ("gossipd", "membership"), f"{module} imports {name}, which is not pure"
    for node in nodes(module):
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


@rule_for(MODULES)
def test_every_module_says_what_it_is_and_functions_fit_a_screen(module: str) -> None:
    assert ast.get_docstring(tree(module)), f"{module} has no docstring"
    last = tree(module).body[-1].end_lineno or 0
    assert last <= MODULE_LINES_MAX, f"{module} has {last} lines: split it by the nouns inside it"
    for node in nodes(module):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            assert lines <= FUNCTION_LINES_MAX, f"{module}.{node.name} has {lines} lines"


@rule_for(MODULES)
def test_constructors_are_narrow_and_take_one_callable_at_most(module: str) -> None:
    """Several callables are a port: a Protocol with a name for each. Of dataclasses only callables are counted."""
    for owner in nodes(module):
        if isinstance(owner, ast.ClassDef):
            fields = [node.annotation for node in owner.body if isinstance(node, ast.AnnAssign)]
            assert _callables(fields) <= 1, f"{module}.{owner.name} has {_callables(fields)} callables"
            for node in owner.body:
                if isinstance(node, ast.FunctionDef) and node.name == "__init__":
                    taken = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs][1:]
                    assert len(taken) <= PARAMETERS_MAX, f"{module}.{owner.name} takes {len(taken)} parameters"
                    count = _callables([one.annotation for one in taken if one.annotation is not None])
                    assert count <= 1, f"{module}.{owner.name} takes {count} callables"


@rule_for(MODULES)
def test_defaults_of_structs_are_made_by_the_struct_library(module: str) -> None:
    """A ``field`` of dataclasses in a Struct is no error to the type checker: it is the default value itself."""
    imported = [node for node in nodes(module) if isinstance(node, ast.ImportFrom)]
    if not any(node.module == "dataclasses" and "field" in [one.name for one in node.names] for node in imported):
        return
    for owner in nodes(module):
        if isinstance(owner, ast.ClassDef) and any("Struct" in ast.unparse(base) for base in owner.bases):
            values = [ast.unparse(one.value) for one in owner.body if isinstance(one, ast.AnnAssign) and one.value]
            wrong = [value for value in values if value.startswith("field(")]
            assert not wrong, f"{module}.{owner.name} has {wrong}"


def _callables(annotations: list[ast.expr]) -> int:
    return sum("Callable[" in ast.unparse(annotation) for annotation in annotations)


def test_the_top_level_holds_nothing_else() -> None:
    allowed = {"gossipd", "membership", "tests", "config", "pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md"}
    ignored = {"build", "dist"}
    found = {path.name for path in ROOT.iterdir() if not path.name.startswith(".")}
    found = {name for name in found if not name.endswith(".egg-info")}
    assert found - ignored <= allowed, f"unexpected at the top level: {sorted(found - ignored - allowed)}"
