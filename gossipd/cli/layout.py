"""Lines and tables for people, fitted to their terminal: every command that prints rows or sentences prints by it.

What lives here: folding a line at its words, laying a table out, and printing both. What does not: live pages
(``live_status``, ``top_frame``), which have a bound of lines, too, and fold by this.

In a pipe nothing is folded, so that a script has a row in a line. On a terminal nothing is cut: a line goes on in the
next one, further in. Of a table that is too wide the last column is folded; where that is not enough, the columns that
do not fit go into lines below their row. A word that is wider than the terminal stays whole, as a name or path that was
broken here could not be copied.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import click

FURTHER_IN = "    "  # of what goes on in the next line
COLUMNS_LEAST = 20  # a terminal that is narrower, or does not know its width, breaks lines itself
_PROSE_LEAST = 24  # columns in which a sentence can be read
_WORDS = re.compile(r"( *)(\S+)")


@dataclass(frozen=True, slots=True)
class TextTable:
    """Rows under a head, each cell a piece of text without line ends; ``indent`` stands before each line."""

    head: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    indent: str = ""


Part = str | TextTable


def show_lines(parts: Iterable[Part], *, err: bool = False, color: bool | None = None) -> None:
    """Print lines and tables, fitted where the stream is a terminal. ``color``: as of ``click.echo``."""
    lines = laid_out(parts, columns_of_terminal(err=err))
    click.echo("\n".join(lines), err=err, color=color)


def columns_of_terminal(*, err: bool = False) -> int | None:
    """Of stdout or stderr; None where that is no terminal."""
    if not (sys.stderr if err else sys.stdout).isatty():
        return None
    from shutil import get_terminal_size  # a script starts without it

    return get_terminal_size().columns


def laid_out(parts: Iterable[Part], columns: int | None) -> list[str]:
    """The lines of all parts within that many columns; None for any width."""
    width = columns if columns is not None and columns >= COLUMNS_LEAST else None
    lines: list[str] = []
    for part in parts:
        if isinstance(part, TextTable):
            lines += _table_lines(part, width)
        else:
            for line in part.split("\n"):
                lines += [line] if width is None else folded(line, width)
    return lines


def folded(line: str, columns: int, further_in: str = FURTHER_IN) -> list[str]:
    """``line`` over as many lines as it takes. Short fields, which two blanks divide, stay whole, as figures with
    their units do; a sentence behind one label goes on below its first word."""
    if _width(line) <= columns:
        return [line]
    indent = line[: len(line) - len(line.lstrip(" "))]
    fields = _fields(line[len(indent) :])
    below = indent + further_in
    if len(fields) == 2 and further_in:
        label = _width(_joined(fields[0])) + len(fields[1][0][0])
        below = indent + " " * label if label <= columns // 3 else below
    pieces = [
        piece
        for field in fields
        for piece in ([(field[0][0], _joined(field))] if _width(_joined(field)) <= columns // 2 else field)
    ]
    lines, now = [], indent
    for gap, piece in pieces:
        if not now.strip():
            now += piece
        elif _width(now) + len(gap) + _width(piece) <= columns:
            now += gap + piece
        else:
            lines.append(now)
            now = below + piece
    return [*lines, now]


def cut_in_the_middle(name: str, width: int) -> str:
    """For a line that cannot be folded: names of hosts and models say least in their middle, and ``…`` shows it."""
    if len(name) <= width:
        return name
    half = (width - 1) // 2
    return f"{name[:half]}…{name[len(name) - (width - 1 - half) :]}"


def _fields(text: str) -> list[list[tuple[str, str]]]:
    """The words of each field, each with the blanks before it."""
    fields: list[list[tuple[str, str]]] = []
    for gap, word in _WORDS.findall(text):
        if not fields or len(gap) > 1:
            fields.append([])
        fields[-1].append((gap, word))
    return fields


def _joined(field: Sequence[tuple[str, str]]) -> str:
    return " ".join(word for _, word in field)


def _table_lines(table: TextTable, columns: int | None) -> list[str]:
    widths = [max(_width(row[at]) for row in (table.head, *table.rows)) for at in range(len(table.head))]
    groups = [list(range(len(widths)))] if columns is None else _groups(table, widths, columns)
    return [
        line
        for row in (table.head, *table.rows)
        for number, group in enumerate(groups)
        for line in _row_lines(row, group, widths, table.indent + FURTHER_IN * (number > 0), columns)
    ]


def _groups(table: TextTable, widths: Sequence[int], columns: int) -> list[list[int]]:
    """The columns that stand in a line together. The last one can do with less than its width."""
    last = len(widths) - 1
    longest_word = max((_width(word) for row in table.rows for word in row[last].split()), default=0)
    least = [*widths[:last], min(widths[last], max(longest_word, _PROSE_LEAST))]
    groups: list[list[int]] = [[]]
    used = len(table.indent)
    for at, width in enumerate(least):
        if groups[-1] and used + width > columns:
            groups.append([])
            used = len(table.indent) + len(FURTHER_IN)
        groups[-1].append(at)
        used += width + 2
    return groups


def _row_lines(
    row: Sequence[str], group: Sequence[int], widths: Sequence[int], indent: str, columns: int | None
) -> list[str]:  # fmt: skip
    """The lines of one row in one group: more than one where its last cell is folded, none where it has no word."""
    *before, last = group
    start = indent + "".join(row[at] + " " * (widths[at] + 2 - _width(row[at])) for at in before)
    if columns is None:
        return [f"{start}{row[last]}".rstrip()]
    if not any(row[at] for at in group):
        return []
    cell = folded(row[last], max(1, columns - _width(start)), "") if row[last] else [""]
    return [f"{start if not number else ' ' * _width(start)}{part}".rstrip() for number, part in enumerate(cell)]


def _width(text: str) -> int:
    return len(click.unstyle(text)) if "\x1b" in text else len(text)
