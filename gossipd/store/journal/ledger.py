"""A model's journal as a file: append, sync, replace.

What lives here: one open journal. What does not: its format (``journal``), and what a record means for the bytes.

This object keeps the position of the end: after a failed or short write the next record overwrites the remains. After a
failed *sync* nothing in the file is believed: ``broken`` stays set until ``start_anew`` has put a new file in its place
(written, synced, renamed, directory synced) with all that is known to be durable. Not thread-safe: callers hold the
replica's lock.
"""

from __future__ import annotations

from collections.abc import Iterable

from gossipd.store.disk.disk import Disk, open_unfinished, parent, write_all
from gossipd.store.journal.journal import MAGIC, Encoder, Header, RecordType, pack_chunks, pack_header, pack_number
from gossipd.store.models import layout

JOURNAL_BYTES_MAX = 256 << 20  # more than a long one of a million chunks
_LONG_BYTES = 1 << 20
_BYTES_PER_CHUNK = 48  # WRITING has 21 bytes, a chunk's share of COMMIT 4; the rest is for repairs


class Ledger:
    """The journal of one model, open for appending."""

    def __init__(self, disk: Disk, header: Header) -> None:
        self.header = header
        self.broken = True
        """Nothing may be appended: there is no file yet, or its last sync failed."""
        self._disk = disk
        self._descriptor: int | None = None
        self._encoder = Encoder()
        self._end = 0

    def start_anew(
        self, *, held: bytes, window: int, writing: Iterable[int] = (), published_s: int | None = None
    ) -> None:
        """Replace the file durably by one with exactly this content. Raises OSError; then the old file stays."""
        self.broken = True
        path = layout.journal(self.header.deployment)
        encoder = Encoder()
        body = bytearray(MAGIC)
        body += encoder.encode(RecordType.HEADER, pack_header(self.header))
        body += encoder.encode(RecordType.SNAPSHOT, held)
        if published_s is not None:
            body += encoder.encode(RecordType.PUBLISHED, pack_number(published_s))
        body += encoder.encode(RecordType.WINDOW, pack_number(window))
        for chunk in writing:
            body += encoder.encode(RecordType.WRITING, pack_chunks((chunk,)))
        descriptor = open_unfinished(self._disk, path + ".part", mode=0o600)
        try:
            write_all(self._disk, descriptor, memoryview(body), 0)
            self._disk.sync_data(descriptor)
            self._disk.rename(path + ".part", path, replace=True)
            self._disk.sync_directory(parent(path))
        except OSError:
            self._disk.close(descriptor)
            raise
        self.close()
        self._descriptor, self._encoder, self._end = descriptor, encoder, len(body)
        self.broken = False

    @property
    def is_long(self) -> bool:
        """Most of the file is history, so it is worth replacing."""
        return self._end > _LONG_BYTES + 4 * _BYTES_PER_CHUNK * self.header.chunk_count

    def append_window(self, window: int) -> None:
        """Writes of ``window`` may follow once this record is synced."""
        self._append(RecordType.WINDOW, pack_number(window))

    def append_writing(self, chunk: int) -> None:
        self._append(RecordType.WRITING, pack_chunks((chunk,)))

    def append_commit(self, window: int, chunks: Iterable[int]) -> None:
        self._append(RecordType.COMMIT, pack_number(window, chunks))

    def append_drop(self, chunks: Iterable[int]) -> None:
        self._append(RecordType.DROP, pack_chunks(chunks))

    def append_closed(self) -> None:
        self._append(RecordType.CLOSED, b"")

    def sync(self) -> None:
        """Make all records survive a power cut. A failure is final until ``start_anew``."""
        assert self._descriptor is not None
        try:
            self._disk.sync_data(self._descriptor)
        except OSError:
            self.broken = True
            raise

    def close(self) -> None:
        if self._descriptor is not None:
            self._disk.close(self._descriptor)
            self._descriptor = None
        self.broken = True

    def _append(self, kind: RecordType, payload: bytes) -> None:
        assert not self.broken and self._descriptor is not None
        before = self._encoder.sequence, self._encoder.check
        record = self._encoder.encode(kind, payload)
        try:
            write_all(self._disk, self._descriptor, memoryview(record), self._end)
        except OSError:
            self._encoder.sequence, self._encoder.check = before
            raise
        self._end += len(record)
