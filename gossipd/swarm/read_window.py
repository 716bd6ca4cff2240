"""How many chunks the source readers of one deployment have in flight from storage, and beside how many fetches.

What lives here: the numbers, from the readers there are and from what reads took. What does not: which extents are read
(``source_read_planner``).
"""

from __future__ import annotations

from gossipd.core.model import Shape
from gossipd.swarm.settings import PlannerSettings

_WAITING_SHARE = 0.1


class ReadWindow:
    """As one reader sees it. ``readers``: how many there are; ``owners``: those of them that are first in some list."""

    def __init__(self, shape: Shape, settings: PlannerSettings) -> None:
        self._shape = shape
        self._planner_settings = settings
        self.least = self.extents = settings.reads_window(shape.chunk_count)
        """Extents that all readers together have in flight, at least and now."""
        self.readers = self.owners = 0

    @property
    def unit_chunks(self) -> int:
        """Chunks per read: a quarter of an extent, so that one extent in flight is still a pipeline."""
        return -(-self._shape.extent_chunks // 4)

    def read_ended(self, elapsed_s: float, chunk_time_s: float) -> None:
        """When storage is faster than our link, the cluster may have more in flight."""
        most = 4 * max(self.readers, 2)
        if elapsed_s < 2 * chunk_time_s:
            self.extents = min(self.extents + 1, max(most, self.least))
        elif elapsed_s > 6 * chunk_time_s and self.extents > self.least:
            self.extents -= 1

    def chunks_max(self) -> int:
        """Chunks that this reader may have in flight: its part of the window, within its share of the model. Of a model
        of few chunks that share is less than a read; then all readers together have half of ``reads_min``, or storage's
        link would idle between two requests. Rounded down, as several readers with one more each read some twice."""
        owners = max(1, self.owners)
        share = int(self._planner_settings.read_share_max * self._shape.chunk_count / owners)
        every = self._shape.extent_chunks * self.readers  # owners read for those that own nothing
        least = max(-(-every // owners), self._planner_settings.reads_min // 2 // owners)
        return min(self.reads_max() * self.unit_chunks, max(least, share))

    def reads_max(self) -> int:
        """Reads that each reader may have in flight, so that all together have about the window."""
        return max(2, round(self.extents / max(1, self.owners)))

    def are_few(self) -> bool:
        """Whether readers are bounded by their own reads; then they must not wait for the slowest of them."""
        return self.owners * self.reads_max() <= 1.5 * self.extents

    def positions_max(self) -> int:
        """How far into the reading order a reader looks."""
        return self.extents * 3 if self.are_few() else self.extents

    def flows_max(self, extents_left: int, missing: int, waiting: int = 0) -> int:
        """How many flows may share our link while this host reads, so that a read gets its part of the external link.
        Fair sharing gives a read 1/n of our link; it needs one part in as many as all readers have in flight. At the
        end there are fewer while the fetches that begin now are under way, and all hosts wait for the last read.
        ``extents_left``: those that are not known to be present. ``missing``: chunks that this host still lacks; others
        may hold many of them when a last read hangs. ``waiting``: chunks that wait for this host because slower ones
        use the uplinks that it asks, too: then its link is not full, and more fetches take nothing from its reads."""
        left = max(3, extents_left * self._shape.extent_chunks // 2, missing // 4)
        if self.are_few():
            return min(left, self.reads_max() * self.owners + int(waiting * _WAITING_SHARE))
        most = int(self.positions_max() * self._planner_settings.reader_share) + int(waiting * _WAITING_SHARE)
        return min(left, max(3, most))
