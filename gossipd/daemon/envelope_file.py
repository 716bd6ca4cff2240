"""The file of a manifest that an order names, on any file system of its user.

What lives here: reading it, in few threads and not for long. What does not: what the manifest says. On a network file
system whose server is gone a read ends never: its order is told so, and its thread is one of the few.
"""

from __future__ import annotations

from pathlib import Path

import trio

from gossipd.manifest.envelope import ENVELOPE_BYTES_MAX
from gossipd.publish.errors import PublishError
from gossipd.runtime.regular_file import read_regular
from gossipd.runtime.worker_threads import run_blocking

THREADS = 4
WAIT_S = 8.0  # clients wait for ten
_threads: trio.lowlevel.RunVar[trio.CapacityLimiter] = trio.lowlevel.RunVar("envelope files")


async def envelope_of_order(path: Path) -> bytes:
    """``read_envelope`` in a thread. Raises PublishError, also when the file system has not answered in time."""
    try:
        limiter = _threads.get()
    except LookupError:
        limiter = trio.CapacityLimiter(THREADS)
        _threads.set(limiter)
    with trio.move_on_after(WAIT_S):
        return await run_blocking(read_envelope, path, limiter=limiter, abandon_on_cancel=True)
    raise PublishError(f"{path} is not read: after {WAIT_S:g} s its file system has not answered")


def read_envelope(path: Path) -> bytes:
    """The bytes of a manifest's file. Raises PublishError."""
    try:
        envelope = read_regular(path, bytes_max=ENVELOPE_BYTES_MAX + 1)
    except OSError as error:
        raise PublishError(f"{path}: {error.strerror}") from None
    if len(envelope) > ENVELOPE_BYTES_MAX:
        raise PublishError(f"{path} is no manifest: it has more than {ENVELOPE_BYTES_MAX} bytes")
    return envelope
