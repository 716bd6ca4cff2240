"""Key files on disk: a secret is made whole, new and with mode 0600, and is refused when others can read it.

What lives here: reading and writing. What does not: the formats (``identity.keys``, ``identity.cluster_key``).

A secret file is created with ``O_EXCL`` and mode 0600 from the start: at no moment can another user open it, and no key
is overwritten by mistake. It is read through one descriptor whose owner, type and mode are checked first. Symbolic
links are followed, because secrets are often mounted as such; their target is checked. A secret that root owns may be
readable by its group, for a daemon that is not root: so Kubernetes and systemd hand secrets to one user.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from gossipd.core.errors import ExitCode, GossipdError, LocalError
from gossipd.identity.cluster_key import format_key_ring, parse_key_ring
from gossipd.identity.keys import PublicKey, SecretKey
from gossipd.identity.trust import is_degenerate
from membership.seal import KeyRing

_Key = TypeVar("_Key")

SECRET_MODE = 0o600
_PUBLIC_MODE = 0o644
_FILE_BYTES_MAX = 4096  # the longest, a cluster key with four keys, is 350


class KeyFileError(LocalError):
    """A key file that cannot be used or made. ``code`` says why. Codes: E_KEY_MISSING, E_KEY_EXISTS, E_KEY_EXPOSED,
    E_KEY_FILE (unreadable), E_KEY_FORMAT. Fault: the operator. State: unchanged. Retry: after the cure."""

    code = "E_KEY_FILE"
    exit_code = ExitCode.TRUST


def read_secret_key(path: Path) -> SecretKey:
    """The key in ``path``. Raises KeyFileError."""
    return _parsed(path, _read(path, secret=True), SecretKey.from_text)


def read_public_key(path: Path) -> PublicKey:
    """The public key in ``path``. Raises KeyFileError."""
    key = _parsed(path, _read(path, secret=False), PublicKey.from_text)
    if is_degenerate(key.ed25519):
        raise KeyFileError(f"{path}: the Ed25519 key is degenerate: anybody can sign for it", code="E_KEY_FORMAT")
    return key


def read_key_ring(path: Path) -> KeyRing:
    """The cluster key in ``path``. Raises KeyFileError."""
    return _parsed(path, _read(path, secret=True), parse_key_ring)


def write_key_pair(path: Path, secret: SecretKey) -> Path:
    """Write ``path`` (0600) and ``path``.pub; returns the latter. Raises KeyFileError when either exists."""
    public = path.with_name(path.name + ".pub")
    if os.path.lexists(public):
        raise KeyFileError(f"{public} exists already and is not overwritten", code="E_KEY_EXISTS")
    _create(path, secret.to_text(), SECRET_MODE)
    try:
        _create(public, secret.public.to_text(), _PUBLIC_MODE)
    except KeyFileError:
        with contextlib.suppress(OSError):
            path.unlink()
        raise
    return public


def write_public_key(path: Path, key: PublicKey) -> None:
    """Write a ``.pub`` file. Raises KeyFileError when it exists."""
    _create(path, key.to_text(), _PUBLIC_MODE)


def write_key_ring(path: Path, ring: KeyRing) -> None:
    """Write a cluster key (0600). Raises KeyFileError when it exists."""
    _create(path, format_key_ring(ring), SECRET_MODE)


def replace_key_ring(path: Path, ring: KeyRing) -> None:
    """Put ``ring`` in the place of the cluster key in ``path``, with its owner kept; the file is the old or the new.

    Raises:
        KeyFileError: the directory takes no file, or the owner cannot be kept. Fault: this host; the old file stands.
    """
    owner = path.stat()
    fresh = path.with_name(f".{path.name}.new")
    try:
        fresh.unlink(missing_ok=True)  # a replacement that was interrupted
    except OSError as error:
        raise KeyFileError(f"{fresh} is in the way of the new key: {error.strerror}; move it away") from None
    _create(fresh, format_key_ring(ring), SECRET_MODE)
    try:
        os.chown(fresh, owner.st_uid, owner.st_gid)
        fresh.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            fresh.unlink()
        raise KeyFileError(f"{path} cannot be replaced: {error.strerror}") from None


def _create(path: Path, text: str, mode: int) -> None:
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, mode)
    except FileExistsError:
        raise KeyFileError(f"{path} exists already and is not overwritten", code="E_KEY_EXISTS") from None
    except OSError as error:
        raise KeyFileError(f"{path} cannot be made: {error.strerror}") from None
    try:
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(text)
            file.flush()
            os.fchmod(descriptor, mode)  # restores the bits that the umask took away
            os.fsync(descriptor)
    except OSError as error:
        with contextlib.suppress(OSError):
            path.unlink()
        raise KeyFileError(f"{path} cannot be written: {error.strerror}") from None


def _read(path: Path, *, secret: bool) -> str:
    try:
        # O_NONBLOCK: opening a pipe in place of a file must not wait for its other end.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    except FileNotFoundError:
        raise KeyFileError(f"{path} does not exist", code="E_KEY_MISSING") from None
    except OSError as error:
        raise KeyFileError(f"{path} cannot be read: {error.strerror}") from None
    try:
        _check(path, os.fstat(descriptor), secret=secret)
        raw = os.read(descriptor, _FILE_BYTES_MAX + 1)
    except OSError as error:
        raise KeyFileError(f"{path} cannot be read: {error.strerror}") from None
    finally:
        os.close(descriptor)
    if len(raw) > _FILE_BYTES_MAX:
        raise KeyFileError(f"{path} is too long for a key", code="E_KEY_FORMAT")
    try:
        return raw.decode("ascii")
    except UnicodeDecodeError:
        raise KeyFileError(f"{path} is not a key file", code="E_KEY_FORMAT") from None


def _check(path: Path, status: os.stat_result, *, secret: bool) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise KeyFileError(f"{path} is not a file")
    mode = stat.S_IMODE(status.st_mode)
    if secret and path.suffix == ".pub":
        raise KeyFileError(f"{path} is a public key; give the secret one, {path.stem}", code="E_KEY_FORMAT")
    is_handed = status.st_uid == 0 and os.geteuid() != 0
    if (secret and mode & (0o037 if is_handed else 0o077)) or mode & 0o022:
        danger = "access this secret; chmod 600" if secret else "change this key; chmod go-w"
        sentence = f"{path} has mode {mode:04o}: users other than its owner can {danger} {path}"
        if is_handed and secret:  # as a volume of Kubernetes, whose modes are those of its definition
            sentence += "; of a Secret's volume, defaultMode: 0440"
        raise KeyFileError(sentence, code="E_KEY_EXPOSED")
    if status.st_uid not in (0, os.geteuid()):
        raise KeyFileError(f"{path} belongs to user {status.st_uid}, not to this user or root", code="E_KEY_EXPOSED")


def _parsed(path: Path, text: str, parse: Callable[[str], _Key]) -> _Key:
    try:
        return parse(text)
    except GossipdError as error:
        raise KeyFileError(f"{path}: {error.args[0]}", code=error.code) from None
