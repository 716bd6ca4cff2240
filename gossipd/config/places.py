"""Checks of a configuration's directories, before anything is made or bound.

What lives here: which directories are checked, and the operator's exception (``store.any_file_system``). What does not:
which file systems are unfit (``store.disk.file_system``).
"""

from __future__ import annotations

from gossipd.config.load import ConfigError, Problem
from gossipd.config.sections import Config
from gossipd.store.disk.file_system import why_unfit

_CURE = "; move it to a local disk, or set store.any_file_system = true"


def check_places(config: Config) -> None:
    """Models, journals and trust records must survive a power cut. Raises ConfigError that names all unfit places."""
    if config.store.any_file_system:
        return
    problems = []
    for key, path in (("store.models", config.store.models), ("", config.file.parent)):
        try:
            reason = why_unfit(path)
        except OSError as error:
            reason = f"cannot be checked: {error.strerror}"
        if reason is not None:
            problems.append(Problem(str(config.file), key, f"{path} {reason}{_CURE}".strip()))
    if problems:
        raise ConfigError(tuple(problems))
