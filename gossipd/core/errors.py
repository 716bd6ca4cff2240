"""Every error gossipd raises on purpose, and the exit codes of the commands.

What lives here: the base classes, the exit codes, and errors that more than one package raises. What does not: errors
of one adapter (they live beside it and derive from these).

An error has a stable ``code`` (``E_...``, matched by scripts), the exit code of a command that ends with it
(``code_of_exit``; that of the reason which the code gives a host, ``reasons``), a sentence for operators that names the
field, the limit and the cure, and three properties that its docstring states: whose fault it is, whether our state
changed, whether a retry may help. Peers are sent at most the code. Our own bugs are assertions.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from types import MappingProxyType
from typing import ClassVar


class ExitCode(IntEnum):
    """Exit codes of every command; stable, listed in the manual (``operations``) and tested, as those of rclone."""

    DONE = 0
    OTHER = 1
    USAGE = 2
    NOT_FOUND = 3
    DAEMON_UNREACHABLE = 4
    TIMEOUT = 5
    VERIFICATION = 6
    TRUST = 7
    DISK = 8
    PARTIAL = 9
    SOURCE_AUTH = 10
    SOURCE_UNREACHABLE = 11
    INTERRUPTED = 130


class GossipdError(Exception):
    """Base of all. ``code`` is stable; ``str()`` is one sentence for an operator. Fault: see the subclass. State:
    unchanged unless a subclass says otherwise."""

    code: str = "E_OTHER"
    exit_code: ClassVar[ExitCode] = ExitCode.OTHER
    """Of the class."""
    exits_of_codes: ClassVar[Mapping[str, ExitCode]] = {}
    """Of codes of the class that have another."""

    def __init__(self, message: str, *, code: str | None = None, code_of_exit: int | None = None) -> None:
        """``code_of_exit``: where neither the class nor the code tells what a command ends with."""
        super().__init__(message)
        if code is not None:
            self.code = code
        told = self.exits_of_codes.get(self.code, self.exit_code)
        self.code_of_exit: int = told if code_of_exit is None else code_of_exit

    @property
    def sentence(self) -> str:
        """``CODE: message``, as shown to an operator and written into ``.reason`` files."""
        return f"{self.code}: {self.args[0]}"


class LocalError(GossipdError):
    """Something on this host: configuration, disk, an operator's input. Fault: this host or its operator. Retry: after
    the cure that the sentence names."""


class RemoteError(GossipdError):
    """A peer, source or publisher misbehaved. Fault: the other side. State: unchanged. Retry: elsewhere, or later."""


class UsageError(LocalError):
    """A command was called with arguments that cannot work. Fault: the caller. Retry: corrected."""

    code = "E_USAGE"
    exit_code = ExitCode.USAGE


class NotFoundError(LocalError):
    """A named model, version, host or file is not there. Fault: the caller. Retry: corrected."""

    code = "E_NOT_FOUND"
    exit_code = ExitCode.NOT_FOUND


class QueueFullError(LocalError):
    """The daemon has as many live deployments as it may have, or its disk refuses. Retry: by itself, later."""

    code = "E_QUEUE_FULL"
    exits_of_codes = MappingProxyType({"E_CLOCK": ExitCode.PARTIAL})


class CheckUnansweredError(LocalError):
    """A check of our own ports got no answer in time, so it says nothing about them. Fault: a host that is stopped or
    overloaded at this moment. Retry: yes; the daemon does, for a minute, and its service file does after that."""

    code = "E_SELF_CHECK_UNANSWERED"
