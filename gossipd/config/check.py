"""A configuration with all that it names: file, key files and directories, checked together.

What lives here: the order of the checks and their problems as one. What does not: any check (``load``, ``keys``,
``places``). The start of the daemon, a reload and ``gossipd config check`` are the same check.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

from gossipd.config.keys import Keys, read_keys
from gossipd.config.load import ConfigError, Problem, load_config
from gossipd.config.places import check_places
from gossipd.config.sections import Config

_T = TypeVar("_T")


def load_checked(path: Path, environment: Mapping[str, str] | None = None) -> tuple[Config, Keys]:
    """The configuration in ``path`` and its keys. Raises ConfigError with every problem; key files and directories are
    looked at when the file itself has none. Waits for disks: not for the event loop."""
    config = load_config(path, environment)
    problems: list[Problem] = []

    def attempt(check: Callable[[Config], _T]) -> _T | None:
        try:
            return check(config)
        except ConfigError as error:
            problems.extend(error.problems)
            return None

    keys = attempt(read_keys)
    attempt(check_places)
    if problems or keys is None:
        raise ConfigError(tuple(problems))
    return config, keys
