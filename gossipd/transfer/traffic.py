"""Counters of the bulk path: bytes and chunks per peer, refusals, errors by code.

What lives here: counting under one lock, once per transfer. What does not: rates and metrics.
"""

from __future__ import annotations

import threading
from collections import Counter

from msgspec import Struct, field

from membership.member import NodeId

# Keys are authenticated members. Ten times the largest simulated cluster; later ones share one entry.
PEERS_MAX = 100_000
OTHERS = NodeId(bytes(16))


class PeerTraffic(Struct, frozen=True):
    """Bodies that came from (``in``) or went to (``out``) one peer; only whole chunks count."""

    bytes_in: int = 0
    bytes_out: int = 0
    chunks_in: int = 0
    chunks_out: int = 0
    busy: int = 0


class BulkStatistics(Struct, frozen=True):
    """A snapshot. ``errors``: by stable code, of our fetches or of connections to our server."""

    connections: int
    transfers: int
    free_slots: int
    errors: dict[str, int] = field(default_factory=dict)
    peers: dict[NodeId, PeerTraffic] = field(default_factory=dict)


class Traffic:
    """Totals since start. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._peers: dict[NodeId, Counter[str]] = {}
        self._errors: Counter[str] = Counter()

    def add(self, node: NodeId, **counts: int) -> None:
        """Add to the fields of PeerTraffic that ``counts`` names."""
        with self._lock:
            key = node if node in self._peers or len(self._peers) < PEERS_MAX else OTHERS
            self._peers.setdefault(key, Counter()).update(counts)

    def error(self, code: str) -> None:
        """Count an error; codes come from our own classes, so there are few."""
        with self._lock:
            self._errors[code] += 1

    def statistics(self, *, connections: int, transfers: int, free_slots: int) -> BulkStatistics:
        with self._lock:
            peers = {node: PeerTraffic(**counts) for node, counts in self._peers.items()}
            errors = dict(self._errors)
        return BulkStatistics(connections, transfers, free_slots, errors, peers)
