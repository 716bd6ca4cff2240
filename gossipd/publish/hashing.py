"""Hashing a model's chunks in threads, from any reader.

What lives here: distributing extents and collecting hashes. What does not: reading (``file_reading``, ``bucket``).

BLAKE3 releases the GIL, so threads use all cores. Each takes the next extent when it is done, which keeps reads near
each other on a disk. The first error stops all threads at the ends of their extents.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Event, Lock
from typing import Protocol

from blake3 import blake3

from gossipd.manifest.chunk_layout import Layout
from gossipd.manifest.payload import DIGEST_BYTES
from gossipd.publish.extents import FileExtent, runs, runs_by_file
from gossipd.runtime.worker_threads import submitted


def hash_pieces(pieces: Iterable[memoryview], lengths: Sequence[int]) -> bytes:
    """The BLAKE3-256 of chunks of these lengths, one hash after the other; their bytes come in ``pieces``."""
    found: list[bytes] = []
    hasher, room = blake3(), lengths[0]
    for piece in pieces:
        while len(piece) >= room and len(found) < len(lengths):
            found.append(hasher.update(piece[:room]).digest())
            piece, hasher = piece[room:], blake3()
            room = lengths[len(found)] if len(found) < len(lengths) else 0
        hasher.update(piece)
        room -= len(piece)
    return b"".join(found)


class ExtentReader(Protocol):
    """The source of bytes. Thread-safe."""

    @property
    def threads(self) -> int:
        """How many extents are worth reading at once."""

    def hash_extent(self, run: FileExtent) -> bytes:
        """The BLAKE3-256 of each chunk of an extent, one after the other."""

    def read_piece(self, index: int, offset: int, length: int) -> bytes:
        """A small part of one file: a header."""


def hash_chunks(
    layout: Layout, reader: ExtentReader, on_bytes: Callable[[int], None], *, by_file: bool = False
) -> bytes:  # fmt: skip
    """The hashes of all chunks, in order.

    Args:
        on_bytes: receives the length of each finished extent; in any thread, one at a time.
        by_file: whether the extents of each file are read in order, by one thread.
    Raises: the exceptions of ``reader``.
    """
    digests = bytearray(layout.chunk_count * DIGEST_BYTES)
    work = iter(runs_by_file(layout)) if by_file else ([run] for run in runs(layout))
    lock, stop = Lock(), Event()

    def take() -> Iterator[FileExtent]:
        while not stop.is_set():
            with lock:
                group = next(work, None)
            if group is None:
                return
            for run in group:
                if not stop.is_set():
                    yield run

    def worker() -> None:
        try:
            for run in take():
                found = reader.hash_extent(run)
                assert len(found) == run.count * DIGEST_BYTES
                with lock:
                    digests[run.first_chunk * DIGEST_BYTES : (run.first_chunk + run.count) * DIGEST_BYTES] = found
                    on_bytes(run.length)
        except BaseException:
            stop.set()
            raise

    threads = max(1, min(reader.threads, layout.chunk_count))
    with ThreadPoolExecutor(threads, thread_name_prefix="hash") as pool:
        try:
            for ended in submitted(pool, worker, threads):
                ended.result()
        finally:
            stop.set()
    return bytes(digests)
