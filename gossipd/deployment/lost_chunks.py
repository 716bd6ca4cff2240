"""Chunks of one model that were found lost on this host's disk.

What lives here: which of them are told one by one. What does not: finding them (the store's ``scrub``), fetching them
again (the planner), and which chunks are here (``deployment_record``).

Somebody may have deleted a model of a million chunks: each chunk that is told is a record of the audit log, and one
more when it is back. A chunk is told to be back only if its loss was told.
"""

from __future__ import annotations

from gossipd.core.ids import ChunkIndex

TOLD_MAX = 100


class LostChunks:
    """Of one life of a deployment. ``count``: lost since the model was last whole."""

    def __init__(self) -> None:
        self.count = 0
        self._told: set[ChunkIndex] = set()

    def lost(self, chunk: ChunkIndex) -> bool:
        """A complete model lost it. Whether that is told by itself."""
        self.count += 1
        if self.count > TOLD_MAX:
            return False
        self._told.add(chunk)
        return True

    @property
    def is_last_told(self) -> bool:
        """Whether the next one will not be told any more."""
        return self.count == TOLD_MAX

    def is_back(self, chunk: ChunkIndex) -> bool:
        """It came again. Whether that is told, as its loss was."""
        was_told = chunk in self._told
        self._told.discard(chunk)
        return was_told

    def all_are_back(self) -> int:
        """The model is whole. Returns how many were lost that nobody was told of."""
        untold = max(0, self.count - TOLD_MAX)
        self.count = 0
        self._told.clear()
        return untold
