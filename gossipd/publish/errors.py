"""Errors of publishing, beside those of the manifest's own rules (``ManifestError``)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import MappingProxyType
from typing import TYPE_CHECKING, ClassVar

from gossipd.core.errors import ExitCode, LocalError, RemoteError
from gossipd.manifest.errors import ManifestError

if TYPE_CHECKING:
    from gossipd.publish.inspection import Finding


class PublishError(LocalError):
    """The source or the output is unsuitable. Fault: the operator, or this host's disk. State: no manifest was written.
    Retry: after the remedy that the sentence names. Codes: ``E_FILE_TYPE``, ``E_SOURCE_LISTING``, ``E_SOURCE_READ``,
    ``E_OUTPUT``."""

    code = "E_SOURCE_READ"
    exits_of_codes = MappingProxyType(
        {"E_SOURCE_PROXY": ExitCode.SOURCE_UNREACHABLE}
        | dict.fromkeys(("E_FILE_TYPE", "E_OUTPUT", "E_SOURCE_LISTING"), ExitCode.USAGE)
    )


class GivenWrongError(PublishError):
    """What was given, a name or a tree, breaks a rule of manifests; ``code`` names the rule. Fault: the caller. Retry:
    corrected."""

    code = "E_DECODE"
    exit_code: ClassVar[ExitCode] = ExitCode.USAGE
    exits_of_codes = MappingProxyType({"E_EMPTY": ExitCode.NOT_FOUND})


class NothingSelectedError(PublishError):
    """Nothing is at the address, or the patterns leave out all of it. Fault: the operator. Retry: with another address
    or other patterns."""

    code = "E_EMPTY"
    exit_code: ClassVar[ExitCode] = ExitCode.NOT_FOUND


class TreeChangedError(PublishError):
    """A file or object changed since publishing began. Retry: when nobody writes to it."""

    code = "E_SOURCE_CHANGED"


class InspectionError(PublishError):
    """The tree looks wrong and ``--strict`` was given. Fault: the tree. State: nothing was written. Retry: when it is
    mended, or without ``--strict``. ``details``: what looks wrong, for ``--json``."""

    code = "E_INSPECTION"
    exit_code: ClassVar[ExitCode] = ExitCode.VERIFICATION

    def __init__(self, findings: tuple[Finding, ...]) -> None:
        more = f" (and {len(findings) - 3} more)" if len(findings) > 3 else ""
        super().__init__("; ".join(one.sentence for one in findings[:3]) + more)
        self.details = {"findings": [one.as_dict for one in findings]}


class ModelSignatureError(PublishError):
    """The model signature that was required is missing or wrong, or none could be made. Fault: the tree, or the key.
    State: no manifest was written. Retry: after the remedy."""

    code = "E_MODEL_SIGNATURE"
    exit_code: ClassVar[ExitCode] = ExitCode.VERIFICATION


class StorageError(RemoteError):
    """Object storage failed or refused. Fault: the storage, or this environment's credentials. Retry: as it says."""

    code = "E_SOURCE_UNREACHABLE"
    exit_code: ClassVar[ExitCode] = ExitCode.SOURCE_UNREACHABLE


class StorageAuthError(StorageError):
    """Credentials are missing, wrong or insufficient. Retry: after the remedy."""

    code = "E_SOURCE_AUTH"
    exit_code: ClassVar[ExitCode] = ExitCode.SOURCE_AUTH


class StorageNotFoundError(StorageError):
    """The bucket, or everything below the prefix, is missing. Retry: with another address."""

    code = "E_SOURCE_NOT_FOUND"
    exit_code: ClassVar[ExitCode] = ExitCode.NOT_FOUND


@contextmanager
def blaming_the_caller() -> Iterator[None]:
    """A manifest that is made breaks its rules by what it is made of. Raises GivenWrongError."""
    try:
        yield
    except ManifestError as error:
        raise GivenWrongError(str(error), code=error.code) from error
