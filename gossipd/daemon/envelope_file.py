"""The file of a manifest that an order names, on any file system of its user.

What lives here: reading it, in few threads and not for long. What does not: what the manifest says. On a network file
system whose server is gone a read never ends: its order is told so. Its thread is one of the few for files of that
place, so that files elsewhere are read.
"""

from __future__ import annotations

from pathlib import Path

import trio

from gossipd.manifest.envelope import ENVELOPE_BYTES_MAX
from gossipd.publish.errors import PublishError
from gossipd.runtime.regular_file import read_regular
from gossipd.runtime.worker_threads import run_blocking

THREADS = 2  # for each place,
PLACES_MAX = 8  # of which so many are read at once
WAIT_S = 8.0  # clients wait for ten
_PLACE_PARTS = 3  # of a path: below the root two directories, in which file systems are mounted
_AGAIN_S = 0.1
_places: trio.lowlevel.RunVar[dict[tuple[str, ...], trio.CapacityLimiter]] = trio.lowlevel.RunVar("envelope files")


async def envelope_of_order(path: Path) -> bytes:
    """``read_envelope`` in a thread. Raises PublishError, also when the file system has not answered in time."""
    words = "other orders wait for files there that are not read, or for too many places; see their file systems"
    with trio.move_on_after(WAIT_S):
        limiter = await _free_thread(path)
        words = "its file system has not answered"
        return await run_blocking(read_envelope, path, limiter=limiter, abandon_on_cancel=True)
    raise PublishError(f"{path} is not read: after {WAIT_S:g} s {words}")


async def _free_thread(path: Path) -> trio.CapacityLimiter:
    """The limiter of the file's place, when it has a thread."""
    try:
        places = _places.get()
    except LookupError:
        places = {}
        _places.set(places)
    place = path.parts[:_PLACE_PARTS]
    while True:
        for each, limiter in list(places.items()):
            if not limiter.borrowed_tokens and each != place:
                del places[each]
        if place in places or len(places) < PLACES_MAX:
            limiter = places.setdefault(place, trio.CapacityLimiter(THREADS))
            if limiter.available_tokens:
                return limiter
        await trio.sleep(_AGAIN_S)


def read_envelope(path: Path) -> bytes:
    """The bytes of a manifest's file. Raises PublishError."""
    try:
        envelope = read_regular(path, bytes_max=ENVELOPE_BYTES_MAX + 1)
    except OSError as error:
        raise PublishError(f"{path}: {error.strerror}") from None
    if len(envelope) > ENVELOPE_BYTES_MAX:
        raise PublishError(f"{path} is no manifest: it has more than {ENVELOPE_BYTES_MAX} bytes")
    return envelope
