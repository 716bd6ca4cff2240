"""The manual's page ``modules``: each module in the first sentence of its docstring, and what it defines.

    python -m tests.module_index      writes the page

What lives here: making the page. What does not: the comparison with what lies in the tree (``test_manual``), and the
sentences, which are the modules' own.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "gossipd" / "manual" / "modules.md"
_HEAD = """\
# Modules: what lives where

Each module says at its top what lives in it and what does not; here is the first sentence of each, and the classes and
functions that others may use. Where a decision is made, and how the modules work together, is in
[architecture](architecture.md). `python -m tests.module_index` writes this page.
"""


def page() -> str:
    """The whole page, as it must lie in the tree."""
    folders = [_folder(folder, list(modules)) for folder, modules in groupby(_modules(), key=lambda path: path.parent)]
    return "\n".join([_HEAD, *folders])


def _modules() -> Iterator[Path]:
    for package in ("gossipd", "membership"):
        yield from sorted((ROOT / package).rglob("*.py"), key=lambda path: (path.parent, path.name))


def _folder(folder: Path, modules: list[Path]) -> str:
    rows = {path.stem: f"- `{path.name}`: {_sentence(path)}{_defines(path)}" for path in modules}
    rows.pop("__init__", None)
    groups = [(f"**{title}**", [rows.pop(name) for name in names if name in rows]) for title, names in _map(folder)]
    blocks = [("", list(rows.values())), *groups]
    about = _sentence(folder / "__init__.py")
    shown = ["\n\n".join(filter(None, [title, "\n".join(lines)])) for title, lines in blocks if lines]
    return "\n\n".join([f"## {folder.relative_to(ROOT)}", *([about] if about else []), *shown]) + "\n"


def _map(folder: Path) -> list[tuple[str, list[str]]]:
    """The map in a folder's docstring, where it has one: bullets of a title, a colon, and names of modules."""
    text = ast.get_docstring(ast.parse((folder / "__init__.py").read_text())) or ""
    bullets = re.findall(r"^\* ([A-Z][^`:\n]*): (.*(?:\n  .*)*)", text, re.MULTILINE)
    return [(title, re.findall(r"``(\w+)``", names)) for title, names in bullets]


def _sentence(path: Path) -> str:
    """The first sentence of a docstring, with one backtick where it has two, as Markdown wants."""
    text = " ".join((ast.get_docstring(ast.parse(path.read_text())) or "").split("\n\n")[0].split())
    return re.split(r"(?<=[.]) (?=[A-Z`])", text)[0].replace("``", "`")


def _defines(path: Path) -> str:
    kinds = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    names = [one.name for one in ast.parse(path.read_text()).body if isinstance(one, kinds)]
    shown = [f"`{name}`" for name in names if not name.startswith("_")]
    return f" ({', '.join(shown)})" if shown else ""


if __name__ == "__main__":
    PAGE.write_text(page())
