"""Ranges of files on this host's file systems, for ``file://`` sources.

What lives here: the stream of one range. What does not: which directories may be read (``admission``), and buckets
(``obstore_clients``). Rejected: obstore for files too, which takes two threads and waits for ever at a FIFO.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from urllib.parse import unquote_to_bytes, urlsplit

from gossipd.manifest.chunk_layout import Segment
from gossipd.sources import errors
from gossipd.sources.location import Location
from gossipd.sources.pieces import PIECE_BYTES, check_rate
from gossipd.sources.settings import Clock, SourceSettings
from gossipd.sources.versions import ObjectVersion

_ABSENT = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG, errno.ENXIO)


class FileStream:
    """One range: ``version``, then exactly its bytes. Constructor and iteration raise SourceErrors. A piece is valid
    until the next one is asked for. ``whole``: the range is one piece.
    """

    def __init__(
        self, location: Location, part: Segment, *, whole: bool, settings: SourceSettings, clock: Clock
    ) -> None:
        self._what = location.shown
        self._part = part
        self._source_settings = settings
        self._clock = clock
        self._buffer = memoryview(bytearray(part.length if whole else min(PIECE_BYTES, part.length)))
        self.waited_s = 0.0
        """Time spent waiting for the file system: its speed, independent of ours."""
        path = unquote_to_bytes(urlsplit(location.base).path) + os.fsencode(location.path)
        with self._waiting():
            self._file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # a FIFO without a writer waits
            found = os.fstat(self._file)
        if not stat.S_ISREG(found.st_mode):
            self.close()
            raise errors.SourceNotFoundError(self._what, "it is no file")
        tag = f"{found.st_ino:x}-{found.st_mtime_ns:x}-{found.st_size:x}"
        self.version = ObjectVersion(tag, found.st_size, _date(found.st_mtime))
        self._open_s = self.waited_s  # no rate follows from it

    def __iter__(self) -> Iterator[memoryview]:
        received = 0
        while received < self._part.length:
            piece = self._buffer[: self._part.length - received]
            filled = 0
            while filled < len(piece):
                with self._waiting():
                    count = os.preadv(self._file, [piece[filled:]], self._part.offset + received + filled)
                if count == 0:
                    came = f"{received + filled} bytes came, {self._part.length} were promised"
                    raise errors.SourceShortError(self._what, came)
                filled += count
            received += filled
            # Only waiting for the source counts, because our disk and rate limit may be slower than the least rate.
            check_rate(self._what, received, self.waited_s - self._open_s, self._source_settings)
            yield piece

    def close(self) -> None:
        """Call it once."""
        os.close(self._file)

    @contextmanager
    def _waiting(self) -> Iterator[None]:
        """Around system calls: their time counts, and their errors become SourceErrors."""
        began = self._clock()
        try:
            yield
        except PermissionError:
            raise errors.SourceAuthError(self._what, "this host's user may not read it") from None
        except OSError as error:
            if error.errno in _ABSENT:
                raise errors.SourceNotFoundError(self._what, "not there") from None
            raise errors.SourceUnreachableError(self._what, f"the read failed: {error.strerror}") from None
        finally:
            self.waited_s += self._clock() - began


def _date(time_s: float) -> datetime | None:
    """None for one beyond every calendar, which some file systems can hold."""
    try:
        return datetime.fromtimestamp(int(time_s), UTC)
    except (ValueError, OverflowError, OSError):
        return None
