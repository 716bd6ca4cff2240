"""What all ways of reading a range share: the range, the pieces in which it is handed on, the least rate, and what
becomes of an answer that no library can take.

What lives here: words, and that failure. What does not: the ways themselves (``web_stream``, ``file_stream``,
``obstore_clients``), of which a daemon loads only those that its sources need.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from msgspec import Struct

from gossipd.runtime.logs import get_logger
from gossipd.sources import errors
from gossipd.sources.request_watch import RequestWatch
from gossipd.sources.settings import SourceSettings

# What the libraries' parsers of heads and addresses raise for some that nobody should send.
UNREADABLE = (TypeError, ValueError, LookupError, AttributeError, RuntimeError)
PIECE_BYTES = 256 * 1024  # what is handed on at once: a few system calls


log = get_logger("sources")


class Wanted(Struct, frozen=True):
    """A range of an object, and how many bytes the manifest says that the whole object has."""

    start: int
    length: int
    object_bytes: int

    @property
    def last(self) -> int:
        return self.start + self.length - 1

    @property
    def header(self) -> dict[str, str]:
        return {"Range": f"bytes={self.start}-{self.last}"}


class Pieces(Struct, frozen=True):
    """How a range is handed on: in pieces of ``byte_count``, or in whole chunks from a host that is fast. ``settings``:
    where others hold for it than for the connection."""

    byte_count: int = PIECE_BYTES
    is_whole: bool = False
    watch: RequestWatch | None = None
    settings: SourceSettings | None = None


@contextmanager
def readable(what: str) -> Iterator[None]:
    """Around calls that read an answer of the object ``what``: one that a library cannot take is the source's failure,
    and what this host lacks, as descriptors, is no bug. Raises SourceUnreachableError."""
    try:
        yield
    except UNREADABLE as error:
        log.error("an answer of storage cannot be read", cause=error, object=what)  # it may be a bug of ours, too
        raise errors.SourceUnreachableError(what, f"its answer cannot be read ({type(error).__name__})") from None
    except (OSError, ImportError, MemoryError) as error:  # as of a library that is imported for the first read
        raise errors.SourceUnreachableError(what, f"this host cannot read it now ({error or 'no memory'})") from None


def readable_pieces(what: str, pieces: Iterator[memoryview]) -> Iterator[memoryview]:
    """The pieces, of which reading each is ``readable``."""
    while True:
        with readable(what):
            piece = next(pieces, None)
        if piece is None:
            return
        yield piece


def longest_s(byte_count: int, settings: SourceSettings) -> float:
    """How long so many bytes may take at the least rate: also of those that no check of the rate sees, as the sizes of
    a body's parts."""
    return settings.rate_grace_s + byte_count / settings.rate_bytes_min


def check_rate(what: str, received: int, waited_s: float, settings: SourceSettings) -> None:
    """Raises SourceSlowError when a source gave less than the least rate."""
    if waited_s > settings.rate_grace_s and received < settings.rate_bytes_min * waited_s:
        least = f"the least is {settings.rate_bytes_min} a second"
        raise errors.SourceSlowError(what, f"{received} bytes in {waited_s:.1f} s; {least}")
