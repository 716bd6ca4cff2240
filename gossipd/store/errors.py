"""Errors of the store as a whole. Errors of one chunk are in ``gossipd.runtime.ports``."""

from __future__ import annotations

from gossipd.core.errors import ExitCode, LocalError
from gossipd.runtime.ports import StoreWriteError


class StoreError(LocalError):
    """Base of the store's own errors. State: unchanged. Retry: after the remedy that the message names."""

    code = "E_STORE"


class StoreLockedError(StoreError):
    """Another daemon uses the store. Fault: the one who started the second. Retry: when the first has ended."""

    code = "E_STORE_LOCKED"
    exit_code = ExitCode.NOT_FOUND  # of ``gossipd run``


class StoreFormatError(StoreError):
    """A file of the store is of a newer format (``E_STORE_VERSION``) or not ours (``E_STORE_FORMAT``). Fault: the
    operator, or a downgrade. State: unchanged. Retry: with the gossipd that wrote it, or after moving the file away.
    """

    code = "E_STORE_FORMAT"
    exit_code = ExitCode.VERIFICATION


class StoreModeError(StoreError):
    """Another user owns the directory or may write to it, or owns a file in it that we may not open. Retry: after chown
    or chmod."""

    code = "E_STORE_MODE"
    exit_code = ExitCode.USAGE


class StoreUnreadableError(StoreError):
    """A directory of the store cannot be looked into. Fault: the user who took its rights away, or the disk. State:
    unchanged. Retry: when the daemon's user may read it again; no restart is needed."""

    code = "E_STORE_READ"
    exit_code = ExitCode.DISK


class StoreSilentError(StoreError):
    """The disk does not answer, so a call was not made. Fault: the disk, or the server of a network file system. State:
    unchanged. Retry: when it answers again, which is noticed within seconds."""

    code = "E_STORE_SILENT"
    exit_code = ExitCode.DISK


class StorePathError(StoreError):
    """Something else stands where a file or directory of ours belongs, or a path leads outside the store or through a
    symbolic link; ``E_PATH_KIND`` for what is neither file nor link. Fault: the user who put it there."""

    code = "E_PATH_SYMLINK"
    exit_code = ExitCode.USAGE


class NotWholeError(StoreError):
    """``finish`` while chunks are missing. Fault: the caller. State: unchanged. Retry: when all are there."""

    code = "E_NOT_WHOLE"


class VersionHeldError(StoreError):
    """``evict_superseded`` of a version that is pinned, that a job holds, or that ``current`` points to. Fault: nobody.
    State: unchanged. Retry: when it is let go."""

    code = "E_HELD"


class VersionTakenError(StoreError):
    """The directory of this version holds something else. Fault: the user who put it there. Retry: after moving it."""

    code = "E_VERSION_TAKEN"
    exit_code = ExitCode.USAGE


class CaseFoldedError(StoreError):
    """Names of the model differ only in case, and the store's file system takes them for one. State: unchanged. Retry:
    with the store on another file system."""

    code = "E_CASE_FOLDED"
    exit_code = ExitCode.DISK


class StoreClosingError(StoreWriteError):
    """Opening or deleting during the store's close. Fault: nobody. State: unchanged. Retry: at the next start."""

    exit_code = ExitCode.OTHER


class NoSpaceError(StoreWriteError):
    """The model and the reserve do not fit; nothing was written. Retry: the store emits SpaceFreed when they fit. Code
    ``E_NO_INODES``: its files are more than the file system may still hold."""

    code = "E_NO_SPACE"
    exit_code = ExitCode.DISK

    def __init__(self, message: str, *, need_bytes: int, free_bytes: int, code: str | None = None) -> None:
        super().__init__(message, code=code)
        self.need_bytes = need_bytes
        self.free_bytes = free_bytes
