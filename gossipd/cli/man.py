"""Man pages of all commands, made from their ``--help``.

What lives here: from a click command to roff. What does not: the words (each command's own). Rejected: click-man, which
wants entry points of an installed package and knows no groups that import late.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator

import click

from gossipd import __version__


def pages(program: click.Group, name: str) -> Iterator[tuple[str, str]]:
    """(file name, roff) for the program and each command below it."""
    yield from _pages(program, name.split(), _summary(program))


def _pages(command: click.Command, words: list[str], summary: str) -> Iterator[tuple[str, str]]:
    yield f"{'-'.join(words)}.1", _page(command, words, summary)
    if isinstance(command, click.Group):
        context = click.Context(command, info_name=" ".join(words))
        for name in command.list_commands(context):
            child = command.get_command(context, name)
            assert child is not None
            yield from _pages(child, [*words, name], _summary(child))


def _summary(command: click.Command) -> str:
    return (command.help or "").strip().partition("\n\n")[0].replace("\n", " ").rstrip(".")


def _page(command: click.Command, words: list[str], summary: str) -> str:
    context = click.Context(command, info_name=" ".join(words), help_option_names=["-h", "--help"])
    title = "-".join(words)
    lines = [
        f'.TH "{_plain(title.upper())}" "1" "" "gossipd {__version__}" "gossipd manual"',
        ".SH NAME",
        f"{_plain(title)} \\- {_plain(summary)}",
        ".SH SYNOPSIS",
        f"\\fB{_plain(' '.join(words))}\\fR {_plain(' '.join(command.collect_usage_pieces(context)))}",
        ".SH DESCRIPTION",
        *_paragraphs(command.help or ""),
    ]
    options = [record for one in _options(command, context) if (record := one.get_help_record(context))]
    if options:
        lines.append(".SH OPTIONS")
        for names, words_of in options:
            lines += [".TP", f"\\fB{_plain(names)}\\fR", _plain(words_of) or "\\&"]
    if isinstance(command, click.Group):
        lines.append(".SH COMMANDS")
        for name in command.list_commands(context):
            child = command.get_command(context, name)
            assert child is not None
            lines += [".TP", f"\\fB{_plain(title)}\\-{_plain(name)}\\fR(1)", _plain(_summary(child))]
    if command.epilog:
        lines += [".SH NOTES", *_paragraphs(command.epilog)]
    return "\n".join(lines) + "\n"


def _options(command: click.Command, context: click.Context) -> list[click.Parameter]:
    return [one for one in command.get_params(context) if isinstance(one, click.Option)]


def _paragraphs(text: str) -> Iterator[str]:
    """A paragraph that begins with click's ``\\b`` keeps its lines."""
    for paragraph in re.split(r"\n\s*\n", inspect.cleandoc(text)):
        lines = paragraph.strip("\n").splitlines()
        if not lines:
            continue
        yield ".PP"
        if lines[0].strip() == "\b":
            yield ".nf"
            yield from map(_plain, lines[1:])
            yield ".fi"
        else:
            yield _plain(" ".join(line.strip() for line in lines))


def _plain(text: str) -> str:
    """``text`` for roff: no escapes, no requests, hyphens that can be copied."""
    escaped = text.replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{escaped}" if escaped.startswith((".", "'")) else escaped
