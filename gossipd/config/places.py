"""Checks of a configuration's directories, before anything is made or bound.

What lives here: which directories, and which of the daemon's own files in them, are checked, and the operator's
exception (``store.any_file_system``). What does not: which file systems are unfit (``store.disk.file_system``), which
directories unsafe (``runtime.directory_safety``), and who may open a file (``runtime.file_access``).
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from gossipd.config.load import ConfigError, Problem
from gossipd.config.sections import Config
from gossipd.runtime.directory_safety import why_exchangeable, why_foreign, why_unusable
from gossipd.runtime.file_access import group_number, user_name, user_number, why_closed
from gossipd.store.disk.file_system import why_unfit

STATE = "state"  # beside the configuration
_WRITE, _ENTER = os.R_OK | os.W_OK, os.R_OK | os.W_OK | os.X_OK
# What the daemon must do with its own files: those of ``daemon.state_dir`` and ``store.models.layout``, as tests hold.
# Importing the two would cost every command that reads a configuration.
STATE_NEEDS = {
    **dict.fromkeys(
        ("boot", "register", "roster", "progress", "witness", "wants", "histories", "budgets", "inbox"), os.R_OK
    ),
    **dict.fromkeys(("manifests", "publishing"), _ENTER),
}
STORE_NEEDS = {
    ".lock": _WRITE,
    ".store": os.R_OK,
    **dict.fromkeys((".manifests", ".incoming", ".trash", ".pins"), _ENTER),
}
_CURE = "; move it to a local disk, or set store.any_file_system = true"


def check_places(config: Config) -> None:
    """No other user may exchange what the daemon writes; models, their journals and the trust records must survive a
    power cut. Raises ConfigError with every place that is taken, unsafe, closed to the daemon, or on an unfit file
    system."""
    problems = _taken(config) + _exchangeable(config) + _accounts(config) + _closed(config)
    if config.store.any_file_system:
        _refuse(problems)
        return
    for key, path in (("store.models", config.store.models), ("", config.file.parent)):
        try:
            reason = why_unfit(path)
        except OSError as error:
            reason = f"cannot be checked: {error.strerror}"
        if reason is not None:
            problems.append(Problem(str(config.file), key, f"{path} {reason}{_CURE}".strip()))
    _refuse(problems)


def _accounts(config: Config) -> list[Problem]:
    problems = []
    groups = (("store.models_group", config.store.models_group), ("status.read_group", config.status.read_group))
    for key, name in groups:
        try:
            group_number(name)
        except ValueError as error:
            problems.append(Problem(str(config.file), key, str(error)))
    for one in config.publish.watch:
        if one.user and user_number(one.user) is None:
            reason = f"names user {one.user!r}, which this host does not have"
            problems.append(Problem(str(config.file), "publish.watch", reason))
    return problems


def _taken(config: Config) -> list[Problem]:
    """Problems of places where something else stands, or into which others could put files."""
    problems = []
    store = config.store
    state = config.file.parent / STATE
    for key, path in (("store.models", store.models), ("store.inbox", store.inbox), ("", state)):
        try:
            reason = why_unusable(path)
            if reason is None and key == "store.inbox":
                is_link = path.is_symlink()
                reason = "is a link, which is not followed; name the directory itself" if is_link else None
                reason = reason or why_foreign(path, owners=_daemons_users(config))
        except FileNotFoundError:
            reason = "is not there; make it (mode 0750), or change store.inbox"
        except OSError as error:
            reason = f"cannot be opened: {error.strerror}"
        if reason is not None:
            problems.append(Problem(str(config.file), key, f"{path} {reason}"))
    for key, path in _sockets(config):
        with suppress(OSError):  # it cannot be looked at, which is another problem, or none
            if path.is_dir():
                problems.append(Problem(str(config.file), key, f"{path} is a directory; move it away"))
    return problems


def _closed(config: Config) -> list[Problem]:
    """Problems of the daemon's own files that it may not open, as a restore by root leaves them: one of each directory.
    Where root asks, the daemon's user is the one who owns the directory, as the daemon demands of it."""
    problems = []
    state = config.file.parent / STATE
    for key, root, needs in (("store.models", config.store.models, STORE_NEEDS), ("", state, STATE_NEEDS)):
        with suppress(OSError):  # it is not there, which is no problem, or cannot be looked at, which is another
            owner, user = root.stat().st_uid, os.geteuid()
            if user not in (0, owner):
                name, named = user_name(user), user_name(owner)
                words = (
                    f"{root} belongs to user {named}, and this is user {name}; be {named}, or chown -R {name} {root}"
                )
                problems.append(Problem(str(config.file), key, words))
                continue
            reasons = [
                f"{root / one} {reason}"
                for one, need in needs.items()
                if (reason := why_closed(root / one, owner, need, root=root)) is not None
            ]
            if reasons:
                more = f"; {len(reasons) - 1} more in it are closed" if len(reasons) > 1 else ""
                problems.append(Problem(str(config.file), key, reasons[0] + more))
    return problems


def _daemons_users(config: Config) -> tuple[int, ...]:
    """Who the daemon runs as, where root asks: the owner of the configuration."""
    if os.geteuid():
        return ()
    with suppress(OSError):
        return (config.file.stat().st_uid,)
    return ()


def _sockets(config: Config) -> list[tuple[str, Path]]:
    """Those that are made, with their settings."""
    sockets = [("status.socket", config.status.socket)]
    if config.status.readers != "none":
        sockets.append(("status.read_socket", config.status.read_socket))
    return sockets


def _exchangeable(config: Config) -> list[Problem]:
    """Problems of places that other users could exchange, the configuration's own too: audit log and state lie beside
    it, and it says what is trusted."""
    problems = []
    store = config.store
    places = (("", config.file), ("store.models", store.models), ("store.inbox", store.inbox))
    for key, path in (*places, *_sockets(config)):
        try:
            reason = why_exchangeable(path)
        except OSError as error:
            reason = f"cannot be checked: {error.strerror}"
        if reason is not None:
            problems.append(Problem(str(config.file), key, f"{path} {reason}"))
    return problems


def _refuse(problems: list[Problem]) -> None:
    if problems:
        raise ConfigError(tuple(problems))
