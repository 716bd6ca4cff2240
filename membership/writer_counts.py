"""How many entries of a bounded table each writer has, and who has most of them: where it is full, that one gives way.

What lives here: the counts. What does not: the entries, and what gives way.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

Writer = TypeVar("Writer", bound=Hashable)


class WriterCounts(Generic[Writer]):
    """Each change takes the same time however many writers there are: a full table asks for the one with most at every
    entry. Rejected: a look at all counts, which took longer than the check of a signature with 1,000 writers."""

    def __init__(self) -> None:
        self._counts: dict[Writer, int] = {}
        self._writers: dict[int, dict[Writer, None]] = {}  # by count
        self._most = 0

    def of(self, writer: Writer) -> int:
        """Of one; 0 for a writer of nothing."""
        return self._counts.get(writer, 0)

    def change(self, writer: Writer, by: int) -> None:
        """So many more, or fewer; never below none."""
        before = self._counts.pop(writer, 0)
        if before:
            equals = self._writers[before]
            del equals[writer]
            if not equals:
                del self._writers[before]
        after = before + by
        if after:
            self._counts[writer] = after
            self._writers.setdefault(after, {})[writer] = None
        self._most = max(self._most, after)
        while self._most and self._most not in self._writers:
            self._most -= 1

    @property
    def loudest(self) -> Writer:
        """Who has most; of several the one that has had so many for longest. There must be a writer."""
        return next(iter(self._writers[self._most]))
