"""A file of hosts and their racks, one for a whole cluster: ``node.rack_file``.

What lives here: finding one host's rack in it. What does not: the setting (``cluster_sections``).

A line is a host's name, blanks, its rack. Empty lines and what follows a ``#`` are passed over; so are lines of other
hosts, whatever is wrong with them, so that one mistake stops one host. Of two lines of a host the file is refused.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from gossipd.config.setting import check_label_within
from gossipd.core.errors import ExitCode, LocalError

FILE_BYTES_MAX = 4 << 20  # 40,000 hosts with the longest names
RACK_CHARS_MAX = 32


class RackFileError(LocalError):
    """The file cannot be read, or says nothing clear of this host. Fault: the operator. Retry: corrected."""

    code = "E_CONFIG"
    exit_code = ExitCode.USAGE


def rack_of(path: Path, name: str) -> tuple[str, int] | None:
    """The rack of the host of this name, and its line's number from 1; None where it has no line. Raises
    RackFileError."""
    found: tuple[str, int] | None = None
    for number, line in enumerate(_read(path).splitlines(), start=1):
        words = line.partition("#")[0].split()
        if not words or words[0] != name:
            continue
        if len(words) != 2:
            raise RackFileError(f"{path}:{number} must be a host's name and its rack")
        if found is not None:
            raise RackFileError(f"{path} has two lines of {name}, {found[1]} and {number}")
        try:
            check_label_within(words[1], chars_max=RACK_CHARS_MAX)
        except ValueError as error:
            raise RackFileError(f"{path}:{number} {error}") from None
        found = words[1], number
    return found


def _read(path: Path) -> str:
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise RackFileError(f"{path} is not a file")
            raw = file.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise RackFileError(f"{path} cannot be read: {error.strerror}") from None
    if len(raw) > FILE_BYTES_MAX:
        raise RackFileError(f"{path} has more than {FILE_BYTES_MAX} bytes")
    return raw.decode("utf-8-sig", errors="replace")
