"""What one host counts for one deployment, and the one list of these counters.

What lives here: the counters and a smoothed rate. What does not: the records that carry them (``progress_record``),
sums over hosts (``progress_table``).
"""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import fields

from gossipd.core.ids import COPIED, LOCAL, SOURCE, Supplier

# Half of a rate is forgotten in some three seconds: steady enough to read, quick enough to show a stall.
RATE_SMOOTHING = 0.2
RATE_IDLE_S = 10.0  # a chunk of 64 MiB at 7 MB/s takes as long; what was idle for longer stands still


class Counters(Struct):
    """Bytes and chunks since the deployment was first heard of; they never fall."""

    source_bytes: int = 0
    peer_bytes_same_rack: int = 0
    peer_bytes_cross_rack: int = 0
    duplicate_bytes: int = 0
    corrupt_chunks: int = 0
    corrupt_bytes: int = 0
    """Of chunks that arrived damaged; ``corrupt_chunks`` counts those that rotted here, too."""
    cancelled_bytes: int = 0
    """Of chunks that did not come whole: their fetch was cancelled, or broke off."""

    def add(self, supplier: Supplier, length: int, *, same_rack: bool) -> None:
        """A verified chunk of ``length`` bytes."""
        if supplier is SOURCE:
            self.source_bytes += length
        elif supplier not in (LOCAL, COPIED):
            if same_rack:
                self.peer_bytes_same_rack += length
            else:
                self.peer_bytes_cross_rack += length


COUNTER_NAMES = tuple(field.name for field in fields(Counters))
"""Fields of this name mean the same in ``Progress``, in ``Totals`` and in a row of the status page."""


def counters_of(holder: object) -> dict[str, int]:
    """The counters of anything that has them, by name."""
    return {name: getattr(holder, name) for name in COUNTER_NAMES}


class SmoothedRate(Struct):
    """Bytes per second, smoothed; ``tick`` is called about once a second."""

    bytes_per_s: float = 0.0
    _bytes: int = 0
    _idle_s: float = 0.0

    def add(self, count: int) -> None:
        """Bytes that were moved since the last tick."""
        self._bytes += count

    def tick(self, elapsed_s: float) -> None:
        """Fold in what was moved in the last ``elapsed_s``."""
        fresh = self._bytes / max(elapsed_s, 0.001)
        self._idle_s = 0.0 if self._bytes else self._idle_s + elapsed_s
        self._bytes = 0
        self.bytes_per_s += RATE_SMOOTHING * (fresh - self.bytes_per_s)
        if self._idle_s >= RATE_IDLE_S:
            self.bytes_per_s = 0.0
