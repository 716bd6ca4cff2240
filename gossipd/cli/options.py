"""Options, arguments and numbers that several commands share: sockets, ``NAME@VERSION``, times and shares for people.

What lives here: parsing user input and words for output. What does not: how output fits a terminal (``layout``), sizes
and durations of the configuration (``core.units``). Imports nothing that would slow the start of a command.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from gossipd.cli.layout import show_lines
from gossipd.core.errors import NotFoundError, UsageError
from gossipd.core.reasons import told_reason
from gossipd.core.units import parse_seconds, show_bytes
from gossipd.core.versions import parse_version

EXAMPLE_COLUMNS = 76  # of a help page on a terminal of 80
F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")


def daemon_options(function: F) -> F:
    """``--socket``, ``--config`` and ``--json``; the command then gets ``client`` and ``as_json``."""

    def with_client(*args: Any, socket: str | None, config: str | None, **kwargs: Any) -> Any:
        from gossipd.api.client import StatusClient, find_sockets  # `run` needs no HTTP client

        path, questions = find_sockets(socket, config)
        return function(*args, client=StatusClient(path, questions=questions), **kwargs)

    with_client.__name__, with_client.__doc__ = function.__name__, function.__doc__
    as_json = click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout, with schema_version.")
    config = click.option("--config", metavar="FILE", help="A daemon's gossipd.toml; its socket is asked.")
    where = "The daemon's socket. Without it and --config: $GOSSIPD_SOCKET, then ./gossipd.sock, then /var/lib/gossipd."
    decorated: Any = click.option("--socket", metavar="PATH", help=where)(config(as_json(with_client)))
    result: F = decorated
    return result


prefix_option = click.option(
    "--prefix", metavar="DIR", help="Where store.models is mounted here, as in a container.  [default: $GOSSIPD_MODELS]"
)


def reason_words(host: dict[str, Any]) -> str:
    """A host's reason, the file and whom it is about."""
    return told_reason(host["reason"], subject=host.get("subject", ""), file=host.get("file", ""))


config_of_host = click.option(
    "--config", "config_file", metavar="FILE",
    help="This host's configuration.  [default: ./gossipd.toml, then /var/lib/gossipd/gossipd.toml]",
)  # fmt: skip


def examples(*lines: str) -> str:
    """An epilog for ``--help``. A long command goes on, as a shell takes it, in a second line."""
    return "\b\nExamples:\n" + "\n".join(f"  {part}" for line in lines for part in _folded(line))


def _folded(command: str) -> list[str]:
    """Its lines: broken before an option where it would be wider than a terminal."""
    lines = [""]
    for word in command.split(" --"):
        part = f" --{word}" if lines != [""] else word
        if lines[-1] and len(lines[-1] + part) > EXAMPLE_COLUMNS:
            lines[-1] += " \\"
            part = f"   {part}"
            lines.append("")
        lines[-1] += part
    return lines


class NameVersion(click.ParamType):  # type: ignore[type-arg]  # generic only since click 8.3
    """``NAME@VERSION``, or without ``version_needed`` also ``NAME``; gives (name, version or None)."""

    name = "name@version"

    def __init__(self, *, version_needed: bool) -> None:
        self.version_needed = version_needed

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, int | None]:
        if isinstance(value, tuple):
            return value
        name, at, version = str(value).rpartition("@")
        if not at:
            name, version = str(value), ""
        if self.version_needed and not at:
            self.fail(f"{value!r} lacks the version: NAME@VERSION", param, ctx)
        try:
            number = parse_version(version) if at else None
        except ValueError:
            number, name = None, ""
        if not name:
            what = "where VERSION is a non-negative integer, or STEP.ATTEMPT"
            self.fail(f"{value!r} is not NAME@VERSION, {what}", param, ctx)
        return name, number


class VersionNumber(click.ParamType):  # type: ignore[type-arg]  # as NameVersion
    """A version: a number, or ``STEP.ATTEMPT``."""

    name = "version"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        try:
            return value if isinstance(value, int) else parse_version(str(value))
        except ValueError as error:
            self.fail(f"{value!r}: {error}", param, ctx)


class GivenFile(click.Path):
    """A file or directory that the command reads. Raises NotFoundError where nothing is, before anything is done."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not os.path.exists(value):
            raise NotFoundError(f"{_called(param)}{value}: no such file or directory")
        return super().convert(value, param, ctx)


class NewFile(click.Path):
    """A file that the command writes, in a directory that is there; wrong usage before hours of work else."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not os.path.isdir(os.path.dirname(value) or "."):
            raise UsageError(f"{_called(param)}{value}: name a file in a directory that exists")
        return super().convert(value, param, ctx)


def file_of_host(named: str | Path | None) -> Path:
    """This host's gossipd.toml: what was named, a file or its directory, else ./gossipd.toml or the packages' one.
    Raises UsageError where a file that was named is not there."""
    if named is None:
        from gossipd.api.client import PACKAGE_HOME

        here = Path("gossipd.toml")
        return here if os.path.exists(here) or not os.path.exists(PACKAGE_HOME / here) else PACKAGE_HOME / here
    file = Path(named)
    file = file / "gossipd.toml" if file.is_dir() else file
    if not os.path.exists(file):
        raise UsageError(f"cannot read {file}: No such file or directory")
    return file


def _called(parameter: click.Parameter | None) -> str:
    """The option in front of what is said of its value."""
    return f"{parameter.opts[0]} " if isinstance(parameter, click.Option) else ""


class Duration(click.ParamType):  # type: ignore[type-arg]  # generic only since click 8.3
    """``90s``, ``30m``, ``1.5h``; a bare number is seconds; gives seconds."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if isinstance(value, float):
            return value
        try:
            return parse_seconds(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)


def parsed(option: str, parse: Callable[[str], T], text: str) -> T:
    """The value of an option. Raises UsageError, which names the option, where ``parse`` raises ValueError."""
    try:
        return parse(text)
    except ValueError as error:
        raise UsageError(f"{option}: {error}") from None


def echo_json(answer: object) -> None:
    """One object on stdout, indented for people."""
    click.echo(json.dumps(answer, indent=2))


def tell(answer: dict[str, Any], *, as_json: bool) -> int:
    """The daemon's answer to a command, whole or as its sentence; returns the exit code."""
    if as_json:
        echo_json(answer)
    else:
        show_lines([answer["sentence"]])
    return 0


def time_words(seconds: float) -> str:
    """``45 s``, ``3m 20s``, ``2h 5m``, ``3d 4h``."""
    whole = int(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60}m {whole % 60}s"
    if whole < 86400:
        return f"{whole // 3600}h {whole % 3600 // 60}m"
    return f"{whole // 86400}d {whole % 86400 // 3600}h"


def chunks_wanted(host: dict[str, Any], row: dict[str, Any]) -> int:
    """How many chunks of the deployment in ``row`` the host wants."""
    return int(host.get("chunks_wanted") or row["chunks_total"])


def traffic_words(row: dict[str, Any]) -> str:
    """The origins of a deployment's bytes, and what was wasted: one line of the plain and of the live status page."""
    ratio = row["source_bytes"] / row["bytes_total"] if row["bytes_total"] else 0.0
    limit = row.get("source_budget_bytes")
    budget = "" if limit is None else f" of at most {show_bytes(limit)}"
    return (
        f"source {show_bytes(row['source_bytes'])} ({ratio:.2f}x){budget}  "
        f"same rack {show_bytes(row['peer_bytes_same_rack'])}  "
        f"cross rack {show_bytes(row['peer_bytes_cross_rack'])}  "
        f"duplicate {show_bytes(row['duplicate_bytes'])}  corrupt {row['corrupt_chunks']}"
    )
