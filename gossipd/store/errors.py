"""What can go wrong with the store as a whole. Refusals of one chunk are in ``gossipd.runtime.ports``."""

from __future__ import annotations

from gossipd.core.errors import ExitCode, LocalError
from gossipd.runtime.ports import StoreWriteError


class StoreError(LocalError):
    """Base of what the store says about itself. State: unchanged. Retry: after the cure the sentence names."""

    code = "E_STORE"
    exit_code = ExitCode.DISK


class StoreLockedError(StoreError):
    """Another daemon has the store. Fault: whoever started the second one. Retry: when the first has ended."""

    code = "E_STORE_LOCKED"


class StoreFormatError(StoreError):
    """A file of the store is of a newer version (``E_STORE_VERSION``) or not ours (``E_STORE_FORMAT``).

    Fault: the operator, or a downgrade. State: unchanged; nothing is ever deleted for it. Retry: with the
    version that wrote it, or after moving the file away.
    """

    code = "E_STORE_FORMAT"


class StoreModeError(StoreError):
    """The directory belongs to somebody else, or others may write to it. Retry: after chown or chmod."""

    code = "E_STORE_MODE"


class StorePathError(StoreError):
    """A path leads outside the store or through a symbolic link that somebody planted. Fault: that somebody."""

    code = "E_PATH_SYMLINK"


class NotWholeError(StoreError):
    """``finish`` while chunks are missing. Fault: the caller. State: unchanged. Retry: when all are there."""

    code = "E_NOT_WHOLE"


class VersionTakenError(StoreError):
    """The directory of this version holds something else. Fault: whoever put it there. Retry: after moving it."""

    code = "E_VERSION_TAKEN"


class StoreClosingError(StoreWriteError):
    """Opening or deleting while the store closes. Fault: nobody. State: unchanged. Retry: at the next start."""


class NoSpaceError(StoreWriteError):
    """The model does not fit, the reserve included; nothing was written. Retry: by itself, when space is freed."""

    code = "E_NO_SPACE"
    exit_code = ExitCode.DISK

    def __init__(self, message: str, *, need_bytes: int, free_bytes: int) -> None:
        super().__init__(message)
        self.need_bytes = need_bytes
        self.free_bytes = free_bytes
