"""A publisher's key on disk: making one, and reading it to sign with.

What lives here: two files, ``PATH`` (0600) and ``PATH.pub``. What does not: their text form (``core.keys``), and a
node's own keys, which the daemon keeps.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from gossipd.core.errors import ExitCode, LocalError
from gossipd.core.keys import KEY_BYTES, PublicKey, SecretKey
from gossipd.core.manifest_errors import shown

KEY_FILE_BYTES_MAX = 4096  # one is 97 bytes; comments are allowed


class KeyFileError(LocalError):
    """A key file is in the way, missing, or readable by others. Fault: the operator. Retry: after the cure."""

    code = "E_KEY_FILE"


class KeyExposedError(KeyFileError):
    """Others on this machine can read or replace the secret key. Retry: after ``chmod 600``, or with a new key."""

    code = "E_KEY_EXPOSED"
    exit_code = ExitCode.TRUST


def new_key(path: Path) -> PublicKey:
    """Write a fresh pair. Raises KeyFileError when either file exists; then neither is left behind half-made."""
    public_path = path.with_name(path.name + ".pub")
    secret = SecretKey(os.urandom(KEY_BYTES))
    if os.path.lexists(public_path):
        raise KeyFileError(f"{shown(str(public_path))} exists; a key is never overwritten")
    _write_new(path, secret.to_text(), 0o600)
    try:
        _write_new(public_path, secret.public.to_text(), 0o644)
    except KeyFileError:
        path.unlink()
        raise
    return secret.public


def read_secret_key(path: Path) -> SecretKey:
    """The key to sign with.

    Raises:
        KeyFileError: it is missing, no regular file, or (KeyExposedError) open to others.
        KeyFormatError: it is something else.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        with open(descriptor, "rb") as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise KeyFileError(f"{shown(str(path))} is not a file")
            if status.st_mode & 0o077:
                raise KeyExposedError(
                    f"{shown(str(path))} has mode {status.st_mode & 0o777:04o}, so others may read it; "
                    "chmod 600, or make a new key"
                )
            text = file.read(KEY_FILE_BYTES_MAX)
    except OSError as error:
        raise KeyFileError(f"{shown(str(path))}: {error.strerror}") from None
    return SecretKey.from_text(text.decode("ascii", "replace"))


def _write_new(path: Path, text: str, mode: int) -> None:
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, mode)
    except FileExistsError:
        raise KeyFileError(f"{shown(str(path))} exists; a key is never overwritten") from None
    except OSError as error:
        raise KeyFileError(f"{shown(str(path))}: {error.strerror}") from None
    try:
        with open(descriptor, "w", encoding="ascii") as file:
            os.fchmod(file.fileno(), mode)
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        path.unlink(missing_ok=True)
        raise KeyFileError(f"{shown(str(path))}: {error.strerror}") from None
