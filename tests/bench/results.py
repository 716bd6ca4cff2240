"""``python -m tests.bench.results [NAME ...]``: run the commands of named rows of RESULTS.md and rewrite those rows.

What lives here: reading a row, running its command, making the figure from the JSON that it prints. What does not: the
benchmarks. Without a name the rows are listed.

A row is ``| name | what | command | fields | figure | date | machine |``. ``fields`` names, by comma, what is taken of
each JSON object on stdout. Objects that agree in their text fields are one group; of several numbers in a group the
figure has the least and the greatest.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import shlex
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).with_name("RESULTS.md")
_ROOT = Path(__file__).parents[2]
_FAST = "python -m tests.bench.compiled simulate --size 500GB --link 10Gbit --external 10Gbit --json"
_COLUMNS = 7


class ResultsError(Exception):
    """A row is not there, or its command printed no figure. Fault: the caller, or the command. Retry: corrected."""


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a table."""

    name: str
    what: str
    command: str
    fields: tuple[str, ...]
    figure: str
    date: str
    machine: str

    def line(self) -> str:
        """As it stands in the file."""
        cells = (self.name, self.what, f"`{self.command}`", ", ".join(self.fields), self.figure, self.date)
        return "".join(f"| {cell} ".replace("|  ", "| ") for cell in (*cells, self.machine)) + "|"


def rows_of(text: str) -> dict[str, Row]:
    """Every row that has a command, by name. Raises ResultsError for a name that comes twice."""
    found: dict[str, Row] = {}
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if len(cells) != _COLUMNS or not re.fullmatch(r"`.+`", cells[2]):
            continue
        name, what, command, fields, *rest = cells
        if name in found:
            raise ResultsError(f"two rows are called {name}")
        found[name] = Row(name, what, command.strip("`"), tuple(filter(None, fields.split(", "))), *rest)
    return found


def figure_of(fields: Sequence[str], objects: Iterable[dict[str, Any]]) -> str:
    """The fields of all objects in words. Raises ResultsError when none of them has one."""
    groups: dict[tuple[str, ...], dict[str, list[float]]] = {}
    for one in objects:
        words = tuple(value for field in fields if isinstance(value := one.get(field), str))
        numbers = groups.setdefault(words, {})
        for field in fields:
            value = one.get(field)
            if isinstance(value, int | float):
                numbers.setdefault(field, []).append(value)
    told = [
        " ".join((*words, ", ".join(f"{field} {_range(values)}" for field, values in numbers.items()))).strip()
        for words, numbers in groups.items()
        if numbers
    ]
    if not told:
        raise ResultsError(f"the command printed no {' or '.join(fields) or 'field: the row names none'}")
    return "; ".join(told)


def _range(values: Sequence[float]) -> str:
    least, greatest = (f"{value:.4g}" if abs(value) < 1000 else f"{value:,.0f}" for value in (min(values), max(values)))
    return least if least == greatest else f"{least} to {greatest}"


def measured(row: Row, *, date: str, machine: str) -> Row:
    """Run the command. Raises ResultsError when it fails or prints no figure."""
    words = shlex.split(row.command.replace("fast simulate", _FAST))
    words = {"python": [sys.executable], "gossipd": [sys.executable, "-m", "gossipd"]}.get(words[0], words[:1]) + words[
        1:
    ]
    done = subprocess.run(words, cwd=_ROOT, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise ResultsError(f"{row.name}: the command ended with {done.returncode}")
    objects = [json.loads(line) for line in _json_lines(done.stdout)]
    return replace(row, figure=figure_of(row.fields, objects), date=date, machine=machine)


def _json_lines(text: str) -> list[str]:
    """One object a line; or the whole text, where the command indents its one object."""
    lines = [line for line in text.splitlines() if line.startswith("{") and line.endswith("}")]
    return lines or ([text] if text.lstrip().startswith("{") else [])


def rewritten(text: str, row: Row) -> str:
    """The file with that row in the place of the one of its name."""
    return "\n".join(row.line() if line.startswith(f"| {row.name} |") else line for line in text.split("\n"))


def machine_words() -> str:
    """What a row says of this machine."""
    return f"{os.cpu_count()} cores, {platform.machine()}, {platform.system()} {platform.release().split('-')[0]}"


def main(arguments: Sequence[str] | None = None, *, path: Path = RESULTS) -> int:
    """Exit code 0; 1 when a command failed; 2 for a name that is not there."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.results", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME")
    names = parser.parse_args(arguments).names
    rows = rows_of(path.read_text())
    if not names:
        print("\n".join(f"{row.name:14} {row.command}" for row in rows.values()))
        return 0
    if unknown := [name for name in names if name not in rows]:
        print(f"no row is called {', '.join(unknown)}; there are {', '.join(rows)}", file=sys.stderr)
        return 2
    for name in names:
        try:
            row = measured(rows[name], date=f"{datetime.now(UTC):%Y-%m-%d}", machine=machine_words())
        except ResultsError as error:
            print(error, file=sys.stderr)
            return 1
        path.write_text(rewritten(path.read_text(), row))
        print(row.line())
    return 0


if __name__ == "__main__":
    sys.exit(main())
