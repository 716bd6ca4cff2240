"""What can go wrong while publishing, besides what the manifest's own rules refuse (``ManifestError``)."""

from __future__ import annotations

from typing import ClassVar

from gossipd.core.errors import ExitCode, LocalError, RemoteError


class PublishError(LocalError):
    """The source or the output is not as it must be. Fault: the operator, or this host's disk.

    State: no manifest was written. Retry: after the cure that the sentence names. Codes: ``E_FILE_TYPE``,
    ``E_SOURCE_LISTING``, ``E_SOURCE_READ``, ``E_EMPTY``, ``E_OUTPUT``.
    """

    code = "E_SOURCE_READ"


class TreeChangedError(PublishError):
    """A file or object is not what it was when publishing began. Retry: when nobody writes to it any more."""

    code = "E_SOURCE_CHANGED"


class StorageError(RemoteError):
    """Object storage failed or refused. Fault: it, or the credentials in this environment. Retry: as it says."""

    code = "E_SOURCE_UNREACHABLE"
    exit_code: ClassVar[ExitCode] = ExitCode.SOURCE_UNREACHABLE


class StorageAuthError(StorageError):
    """Credentials are missing, wrong or not enough. Retry: after the cure."""

    code = "E_SOURCE_AUTH"
    exit_code: ClassVar[ExitCode] = ExitCode.SOURCE_AUTH


class StorageNotFoundError(StorageError):
    """The bucket, or everything below the prefix, is not there. Retry: with another address."""

    code = "E_SOURCE_NOT_FOUND"
    exit_code: ClassVar[ExitCode] = ExitCode.NOT_FOUND
