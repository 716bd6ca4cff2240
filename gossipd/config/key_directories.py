"""Directories that stand for the public keys in them: ``security.trust`` and ``security.clients``.

What lives here: the files that such a directory stands for. What does not: reading a key (``identity.key_files``).

A directory stands for each file in it whose name ends in ``.pub`` and begins with no dot, in the order of the names;
what else lies there is passed over. Links are followed: a mounted Kubernetes ConfigMap consists of links. So a key is
added or taken away as a file, and the setting stays as it is.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from gossipd.core.errors import ExitCode, LocalError

KEYS_MAX = 1_000
_SUFFIX = ".pub"


class KeyDirectoryError(LocalError):
    """The directory cannot be listed, or has more than ``KEYS_MAX`` keys. Fault: the operator. Retry: corrected."""

    code = "E_CONFIG"
    exit_code = ExitCode.USAGE


def key_files_of(paths: Iterable[Path]) -> tuple[Path, ...]:
    """The files that ``paths`` stand for, each once, in the order given. A path that is no directory stands for itself,
    whatever it is: its reader judges it. Raises KeyDirectoryError."""
    found: dict[Path, None] = {}
    for path in paths:
        found |= dict.fromkeys(_listed(path) if os.path.isdir(path) else [path])
    return tuple(found)


def _listed(directory: Path) -> list[Path]:
    try:
        names = [path for path in directory.iterdir() if path.suffix == _SUFFIX and not path.name.startswith(".")]
    except OSError as error:
        raise KeyDirectoryError(f"{directory} cannot be listed: {error.strerror}") from None
    if len(names) > KEYS_MAX:
        raise KeyDirectoryError(f"{directory} has {len(names)} files of public keys, at most {KEYS_MAX}")
    return sorted(names)
