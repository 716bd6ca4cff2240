"""What the README, the manual and the other pages claim of this tree is so: links, paths, commands, codes, words.

What lives here: checks of text against the tree. What does not: running the README's blocks (``tests/e2e``), printing
the manual (``tests/gossipd/cli/test_help``).
"""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path

import click
import pytest
import yaml

from gossipd import __version__
from gossipd.cli.help import page
from gossipd.cli.main import VERBS, cli
from gossipd.core.errors import ExitCode
from gossipd.deployment.progress_record import HostState
from gossipd.web.manual_pages import TOPICS
from tests import module_index

ROOT = Path(__file__).resolve().parent.parent
MANUAL = ROOT / "gossipd" / "manual"
PAGES = [
    ROOT / "README.md",
    ROOT / "CHANGELOG.md",
    ROOT / "tests" / "bench" / "RESULTS.md",
    *sorted((ROOT / ".github").glob("*.md")),
    *sorted(MANUAL.glob("*.md")),
]
README_BYTES_MAX = 6 * 1024
BLOCK_COLUMNS_MAX = 98  # `gossipd help` in a window of 100
TOP_FOLDERS = ("gossipd", "membership", "tests", "config", ".github")
BANNED_WORDS = ("whoever", "anew", "whence", "older brain", "older runs")


def shown(path: Path) -> str:
    return str(path.relative_to(ROOT))


def test_the_readme_is_one_page() -> None:
    text = (ROOT / "README.md").read_text()
    assert len(text.encode()) <= README_BYTES_MAX
    assert "<!-- test command -->" in text
    assert "<!-- demo command -->" in text


def test_the_same_version_is_named_in_every_place() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    chart = yaml.safe_load((ROOT / "config" / "helm" / "gossipd" / "Chart.yaml").read_text())
    images = re.findall(r"REGISTRY/gossipd:(\S+)", (ROOT / "config" / "examples" / "kubernetes.yaml").read_text())
    wheels = re.findall(r"gossipd-([0-9.]+)-py3", (MANUAL / "operations.md").read_text())
    released = re.findall(r"^## \[([0-9.]+)\] - ", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert images and wheels
    assert f"This is version {version.rpartition('.')[0]}." in (ROOT / "README.md").read_text()
    assert {__version__, chart["version"], chart["appVersion"], released[0], *images, *wheels} == {version}


def test_every_page_of_the_manual_ships_and_is_a_topic() -> None:
    assert sorted(TOPICS) == [path.stem for path in sorted(MANUAL.glob("*.md"))]
    package_data = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]["gossipd"]
    shipped = {path for pattern in package_data for path in (ROOT / "gossipd").glob(pattern)}
    assert shipped >= set(MANUAL.glob("*.md"))


def test_a_package_names_each_of_its_modules_or_none() -> None:
    for path in (*sorted((ROOT / "gossipd").rglob("__init__.py")), ROOT / "membership" / "__init__.py"):
        text = ast.get_docstring(ast.parse(path.read_text())) or ""
        modules = {one.stem for one in path.parent.glob("*.py")} - {"__init__", "__main__"}
        named = {one for one in modules if re.search(rf"``{one}[`.]", text)}
        assert named in (set(), modules), f"{shown(path)} lacks {', '.join(sorted(modules - named))}"


def test_the_site_has_every_page_of_the_manual_once() -> None:
    site = ROOT / "config" / "site" / "mkdocs.yml"
    found = yaml.safe_load(site.read_text())
    assert (site.parent / found["docs_dir"]).resolve() == MANUAL
    parts = [value for part in found["nav"] for value in part.values()]
    entries = [entry for part in parts for entry in ([part] if isinstance(part, str) else part)]
    assert sorted(entries) == sorted(path.name for path in MANUAL.glob("*.md"))
    assert found["theme"]["font"] is False, "a font would be loaded from elsewhere"


def test_the_page_of_modules_has_what_they_say() -> None:
    assert module_index.PAGE.read_text() == module_index.page(), "write it: python -m tests.module_index"


@pytest.mark.parametrize("path", PAGES, ids=shown)
def test_every_link_leads_to_a_file(path: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", path.read_text()):
        if "://" not in target:
            assert (path.parent / target).exists(), f"{shown(path)} links to {target}"


@pytest.mark.parametrize("path", PAGES, ids=shown)
def test_every_path_that_is_named_exists(path: Path) -> None:
    named = set(re.findall(r"(?<![\w./-])(?:[\w.-]+/)+[\w.*-]*+", path.read_text()))
    for name in sorted(named):
        top = name.split("/")[0]
        if top in TOP_FOLDERS or name.endswith(".py"):
            found = [base for base in (ROOT, ROOT / "gossipd") if list(base.glob(name.rstrip("./")))]
            assert found, f"{shown(path)} names {name}"


@pytest.mark.parametrize("path", PAGES, ids=shown)
def test_every_command_that_is_shown_exists_with_its_options(path: Path) -> None:
    text = path.read_text().replace("\\\n", " ")
    for verb, rest in re.findall(r"(?:^|[`$(] ?)gossipd ([a-z]+)([^`\n]*)", text, re.MULTILINE):
        assert verb in VERBS, f"{shown(path)} shows 'gossipd {verb}'"
        known = options_of(verb)
        for option in re.findall(r"(?<=\s)--[a-z-]+", re.split(r"[|;&#]|\)\"", rest)[0]):
            assert option in known, f"{shown(path)} shows 'gossipd {verb} {option}'"


def options_of(verb: str) -> set[str]:
    command = cli.get_command(click.Context(cli), verb)
    assert command is not None
    commands = [command, *(command.commands.values() if isinstance(command, click.Group) else ())]
    return {"--help", *(name for each in commands for parameter in each.params for name in parameter.opts)}


@pytest.mark.parametrize("topic", TOPICS)
def test_pictures_and_blocks_fit_a_terminal(topic: str) -> None:
    for block in re.findall(r"^```.*?^```", page(topic), re.DOTALL | re.MULTILINE):
        assert max(map(len, block.splitlines())) <= BLOCK_COLUMNS_MAX, block


def test_operations_names_every_command_state_reason_and_exit_code() -> None:
    text = page("operations")
    for verb in VERBS:
        assert re.search(rf"\b{verb}\b", text), verb
    for word in HostState:
        assert f"`{word.value}`" in text, word
    for code in ExitCode:
        assert re.search(rf"\| [0-9, ]*\b{int(code)}\b", text), code


def test_operations_names_every_alarm() -> None:
    sources = "\n".join(path.read_text() for path in (ROOT / "gossipd" / "daemon").glob("*.py"))
    codes = set(re.findall(r"(?:alarm|ring|replace)\(\s*\"(E_[A-Z_]+)\"", sources))
    assert len(codes) >= 5
    for code in codes:
        assert f"`{code}`" in page("operations"), code


@pytest.mark.parametrize("path", PAGES, ids=shown)
def test_pages_are_in_plain_words(path: Path) -> None:
    text = path.read_text().lower()
    for word in BANNED_WORDS:
        assert not re.search(rf"\b{word}\b", text), f"{shown(path)} says {word!r}"


@pytest.mark.parametrize("path", sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml")), ids=shown)
def test_issue_forms_are_what_github_reads(path: Path) -> None:
    form = yaml.safe_load(path.read_text())
    if path.stem == "config":
        return
    assert {"name", "description", "body"} <= set(form)
    names = [part["id"] for part in form["body"] if part["type"] != "markdown"]
    assert len(names) == len(set(names)) > 0


def test_the_hooks_run_what_ci_runs_first() -> None:
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"][0]["hooks"]
    tools = {" ".join(hook["entry"].split()[:2]) for hook in hooks}
    assert tools == {"ruff check", "ruff format", "mypy"}
    ci = (ROOT / ".ci" / "run").read_text()
    assert all(f".venv/bin/{tool}" in ci for tool in tools)
