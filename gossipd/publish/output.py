"""Writing a manifest, or a model's signature: whole or not at all, and durable before it gets its name.

The temporary file has a hidden name in the same directory, which an inbox ignores, so ``--out`` may point into one.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from gossipd.manifest.errors import shown
from gossipd.publish.errors import PublishError


def check_writable(out: Path, option: str = "--out") -> None:
    """Refuse an unsuitable output before hours of hashing: a rename would put a file in the place of a device, of a
    pipe, or of a link whose target somebody reads. Raises PublishError ``E_OUTPUT``.
    """
    directory = out.parent
    try:
        is_file = stat.S_ISREG(out.lstat().st_mode)
    except FileNotFoundError:
        is_file = True
    except OSError:
        is_file = False
    if not is_file or not directory.is_dir() or not os.access(directory, os.W_OK):
        raise PublishError(
            f"{option} {shown(str(out))} must be a file, no link or device, in a writable directory", code="E_OUTPUT"
        )


def write_whole(out: Path, content: bytes, option: str = "--out") -> None:
    """Replace ``out``. Raises PublishError ``E_OUTPUT``; then ``out`` is unchanged."""
    check_writable(out, option)
    temporary = out.parent / f".{out.name}.{os.getpid()}.part"
    try:
        try:
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
            with open(descriptor, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(out)
        except OSError:
            temporary.unlink(missing_ok=True)
            raise
        directory = os.open(out.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)
    except OSError as error:
        raise PublishError(f"{option} {shown(str(out))}: {error.strerror}", code="E_OUTPUT") from None
