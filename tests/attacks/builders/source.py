"""Sources: URLs and names that lead where they should not, and storage servers that lie.

A URL is given with what its host resolves to and what a host allows. A lie is what a server answers after it has
answered the first request well.
"""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from random import Random

from tests.attacks.stage import Stage
from tests.gossipd.sources.models import CHUNK_BYTES
from tests.gossipd.sources.raw import partial

BODY = Random(7).randbytes(3 * CHUNK_BYTES)
OTHER_BODY = Random(8).randbytes(3 * CHUNK_BYTES)


@dataclass(frozen=True, slots=True)
class Named:
    """A source as a manifest names it."""

    url: str
    addresses: tuple[str, ...]
    allow: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Lie:
    """``answer``: to the range from a byte up to another, at a forbidden server's port."""

    answer: Callable[[int, int, int], bytes | Iterable[bytes]]


def named(stage: Stage, url: str, addresses: list[str] | None = None, allow: list[str] | None = None) -> Named:
    """Allowed are all hosts over any scheme, unless said otherwise."""
    return Named(url, tuple(addresses or ()), tuple(allow or ("http", "https", "s3")))


def _after_a_good_look(large: Callable[[int, int, int], bytes | Iterable[bytes]]) -> Lie:
    def answer(start: int, stop: int, port: int) -> bytes | Iterable[bytes]:
        return partial(BODY, start, stop, 'ETag: "1"') if stop - start == 1 else large(start, stop, port)

    return Lie(answer)


def redirect(stage: Stage, status: int, target: str, at_first: bool = False) -> Lie:
    """Send the reader to another server; ``{port}`` is that of one that nobody may read."""

    def answer(start: int, stop: int, port: int) -> bytes:
        where = target.format(port=port)
        return f"HTTP/1.1 {status} Elsewhere\r\nLocation: {where}\r\nContent-Length: 0\r\n\r\n".encode("latin-1")

    return Lie(answer) if at_first else _after_a_good_look(answer)


def swapped(stage: Stage, etag: str = "1") -> Lie:
    """Other bytes than those that were signed, of the same length."""
    return _after_a_good_look(lambda start, stop, _: partial(OTHER_BODY, start, stop, f'ETag: "{etag}"'))


def another_range(stage: Stage, shift: int) -> Lie:
    """Right bytes of the wrong place."""
    return _after_a_good_look(lambda start, stop, _: partial(BODY, start + shift, stop + shift, 'ETag: "1"'))


def short(stage: Stage, missing: int) -> Lie:
    """A body that ends before its length."""
    return _after_a_good_look(lambda start, stop, _: partial(BODY, start, stop, 'ETag: "1"')[:-missing])


def compressed(stage: Stage) -> Lie:
    """A body that is compressed, and says so. One that only says so has the bytes that were published."""

    def answer(start: int, stop: int, port: int) -> bytes:
        packed = gzip.compress(BODY[start:stop])
        head = (
            f"HTTP/1.1 206 Partial Content\r\nContent-Range: bytes {start}-{stop - 1}/{len(BODY)}\r\n"
            f'Content-Encoding: gzip\r\nETag: "1"\r\nContent-Length: {len(packed)}\r\n\r\n'
        )
        return head.encode() + packed

    return _after_a_good_look(answer)


def status(stage: Stage, line: str) -> Lie:
    """A status line and nothing else."""
    return _after_a_good_look(lambda *_: f"HTTP/1.1 {line}\r\nContent-Length: 0\r\n\r\n".encode())


def endless_head(stage: Stage, lines: int) -> Lie:
    """Headers without end."""
    return _after_a_good_look(lambda *_: b"HTTP/1.1 206 Partial\r\n" + b"X-More: of the same\r\n" * lines)
