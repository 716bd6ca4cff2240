"""The newest version of each record of progress that was heard: it tells new from known.

What lives here: the table, and what gives way where it is full: the oldest entry of the writer that has most. What does
not: the records, which only their readers keep, and who may write one (``event_store``).
"""

from __future__ import annotations

from collections.abc import Iterable

from membership.writer_counts import WriterCounts


class ProgressVersions:
    """At most ``limit`` entries, and of one writer at most ``share``. A key has one writer: it follows from the key."""

    def __init__(self, limit: int, share: int) -> None:
        self._limit, self._share = limit, share
        self._versions: dict[bytes, int] = {}
        self._keys_of: dict[bytes, dict[bytes, None]] = {}  # by writer, the oldest first
        self._counts: WriterCounts[bytes] = WriterCounts()

    def __len__(self) -> int:
        return len(self._versions)

    def __contains__(self, key: bytes) -> bool:
        return key in self._versions

    def newest(self, key: bytes) -> int:
        """-1 for a record that is not known."""
        return self._versions.get(key, -1)

    def count_of(self, writer: bytes) -> int:
        """How many entries a writer has."""
        return self._counts.of(writer)

    def note(self, key: bytes, version: int, writer: bytes) -> None:
        """A record was heard, newer than what was known."""
        written = self._keys_of.setdefault(writer, {})
        if key in written:
            del written[key]  # the latest is last
        else:
            self._counts.change(writer, 1)
        self._versions[key], written[key] = version, None
        has_most = len(written) > self._share
        if has_most or len(self._versions) > self._limit:
            self._drop_oldest(writer if has_most else self._counts.loudest)

    def _drop_oldest(self, writer: bytes) -> None:
        written = self._keys_of[writer]
        oldest = next(iter(written))
        del self._versions[oldest], written[oldest]
        self._counts.change(writer, -1)
        if not written:
            del self._keys_of[writer]

    def forget(self, writer: bytes) -> Iterable[bytes]:
        """Drop all of a writer; returns the keys."""
        keys = self._keys_of.pop(writer, {})
        self._counts.change(writer, -len(keys))
        for key in keys:
            del self._versions[key]
        return keys
