"""The daemon's refusals as exceptions.

What lives here: one class for each exit code that a job acts upon. What does not: the codes, which the daemon gives;
``error.code`` has it (``E_...``), ``str(error)`` the sentence. Every class is a ``RefusedByDaemonError``; where no
daemon answers, ``gossipd.api.client.DaemonUnreachableError`` is raised.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from gossipd.api.client import RefusedByDaemonError
from gossipd.core.errors import ExitCode


class NotThereError(RefusedByDaemonError):
    """The name, version or directory is not known, or is not complete here. Fault: the caller, or it is early. Retry:
    later."""


class TimedOutError(RefusedByDaemonError):
    """The hosts were not ready in time. Fault: nobody. Retry: wait longer; the sentence says which are behind."""


class EndedError(RefusedByDaemonError):
    """Not on enough hosts: it has ended there, or no version is complete where it was asked for. Fault: see the
    sentence. Retry: after what the sentence names."""


class NotTrustedError(RefusedByDaemonError):
    """A signature, key or user may not do this. Fault: the configuration. Retry: after the remedy."""


class OutOfSpaceError(RefusedByDaemonError):
    """The disk does not take it. Fault: the disk. Retry: when there is room."""


_BY_EXIT_CODE: dict[int, type[RefusedByDaemonError]] = {
    ExitCode.NOT_FOUND: NotThereError,
    ExitCode.TIMEOUT: TimedOutError,
    ExitCode.PARTIAL: EndedError,
    ExitCode.TRUST: NotTrustedError,
    ExitCode.DISK: OutOfSpaceError,
}


_ENDED = ("E_CANCELLED", "E_PARTIAL", "E_GONE")  # whatever their exit code, which may be of the reason


_GIVEN_WRONG = ("E_DECODE", "E_LIMIT", "E_NAME", "E_SECRET", "E_SHARDS")  # of the caller's words, not of its rights


@contextmanager
def typed_refusals() -> Iterator[None]:
    """Raise a refusal as the class of its exit code; one without a class as it is."""
    try:
        yield
    except RefusedByDaemonError as error:
        kind = EndedError if error.code in _ENDED else _BY_EXIT_CODE.get(error.code_of_exit)
        if kind is None or isinstance(error, kind) or error.code in _GIVEN_WRONG:
            raise
        raise kind(error.code, str(error), error.code_of_exit) from None
