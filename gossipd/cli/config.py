"""``gossipd config``: is this configuration right, and what does it say in the end?

What lives here: the two commands. What does not: the checks (``config.check``) and where values come from
(``config.load``). Neither asks a daemon: what is judged is what a daemon would read if it started now, in this
environment.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from gossipd.cli.layout import show_lines
from gossipd.cli.options import echo_json, examples, file_of_host

_FILE = click.argument("file", required=False, type=click.Path(path_type=Path))
_CONFIG = click.option("--config", "named", metavar="FILE", type=click.Path(path_type=Path), help="The same as FILE.")
_JSON = click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout, with schema_version.")


@click.group("config")
def config() -> None:
    """Check a configuration, or show what is in force and why.

    FILE is a gossipd.toml or its directory. Without it: ./gossipd.toml, then /var/lib/gossipd/gossipd.toml.
    """


@config.command(epilog=examples("gossipd config check", "gossipd config check /srv/gossipd/gossipd.toml"))
@_FILE
@_CONFIG
@_JSON
def check(file: Path | None, named: Path | None, as_json: bool) -> int:
    """Name every problem of FILE, its key files and its directories at once.

    What is said here is what 'gossipd run' and 'gossipd reload' would say. Root checks as the owner of FILE, who is the
    daemon's user.

    Exit codes: 0 nothing is wrong; 2 problems.
    """
    from gossipd.config.check import load_checked
    from gossipd.config.load import ConfigError

    path, warnings = file or named or file_of_host(None), _warnings()
    try:
        with _as_the_owner_of(path):
            load_checked(path.absolute())
    except ConfigError as error:
        problems = [{"where": one.where, "key": one.key, "reason": one.reason} for one in error.problems]
        if as_json:
            echo_json({"schema_version": 1, "file": str(path), "problems": problems, "warnings": warnings})
        else:
            show_lines([error.sentence], err=True)
        return int(error.code_of_exit)
    if as_json:
        echo_json({"schema_version": 1, "file": str(path), "problems": [], "warnings": warnings})
    else:
        show_lines([f"{path}: nothing is wrong"])
    return 0


@config.command(epilog=examples("gossipd config show --origin", "gossipd config show --json | jq .settings"))
@_FILE
@_CONFIG
@click.option("--origin", is_flag=True, help="Say where each value comes from: default, FILE:LINE, or the environment.")
@_JSON
def show(file: Path | None, named: Path | None, origin: bool, as_json: bool) -> int:
    """Print every setting with the value in force, as lines of TOML."""
    from gossipd.config.load import load_with_origins
    from gossipd.config.sections import SECTIONS
    from gossipd.config.template import toml_value

    path, warnings = file or named or file_of_host(None), _warnings()
    found, origins = load_with_origins(path.absolute())
    values = {
        f"{name}.{item.name}": toml_value(item, getattr(getattr(found, name), item.name))
        for name, section in SECTIONS.items()
        for item in section.settings
    }
    if as_json:
        settings = {key: {"value": _plain(text), "origin": origins[key]} for key, text in values.items()}
        echo_json({"schema_version": 1, "file": str(found.file), "settings": settings, "warnings": warnings})
        return 0
    for key, text in values.items():
        click.echo(f"{key} = {text}" + (f"  # {origins[key]}" if origin else ""))
    return 0


@contextlib.contextmanager
def _as_the_owner_of(path: Path) -> Iterator[None]:
    """For root: what may be read, and whose keys are right, is judged as the daemon would."""
    uid, groups = os.geteuid(), os.getgroups()
    if uid or not path.exists() or not (owner := path.stat()).st_uid:
        yield
        return
    try:
        os.setgroups([owner.st_gid])
        os.setegid(owner.st_gid)
        os.seteuid(owner.st_uid)
        yield
    finally:
        os.seteuid(uid)
        os.setegid(0)
        os.setgroups(groups)


def _plain(text: str) -> Any:
    """A value for JSON, from its TOML."""
    from gossipd.config.environment import parsed_toml

    return parsed_toml(f"value = {text}")["value"]


def _warnings() -> list[str]:
    """Told on stderr; also returned."""
    from gossipd.config.environment import unknown_variables

    warnings = list(unknown_variables(os.environ))
    for sentence in warnings:
        show_lines([f"warning: {sentence}"], err=True)
    return warnings
