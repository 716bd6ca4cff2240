"""Our copy of one model: which chunks are held, which are in flight, and the state that follows.

A chunk is in flight from one supplier, or from two when it is hedged. A read is one flight per chunk from ``SOURCE``.
"""

from __future__ import annotations

from collections import deque
from enum import Enum
from math import inf

from msgspec import Struct

from gossipd.core.bits import Bits
from gossipd.core.chunkset import ChunkSet
from gossipd.core.ids import SOURCE, DeploymentId, Origin, Supplier
from gossipd.core.model import Shape

_MEAN_CHUNKS = 8  # more follow a change of pace too slowly


class ReplicaState(Enum):
    """FETCHING while chunks are missing, also when one turns out to be lost; SEALING once the last chunk is held."""

    FETCHING = "fetching"
    SEALING = "sealing"


class Flight(Struct):
    """One fetch or read under way."""

    supplier: Supplier
    started_s: float
    moved_s: float = -inf
    """When more of a read had come, as far as that is told: of a chunk of many small files."""
    is_arriving: bool = False
    is_ending: bool = False


class LocalReplica:
    """Held and in-flight chunks of one deployment here."""

    def __init__(
        self, deployment: DeploymentId, shape: Shape, held: ChunkSet, *, now: float, wanted: ChunkSet | None = None
    ) -> None:
        """``wanted``: what this host is to hold; None: everything."""
        self.deployment = deployment
        self.shape = shape
        self.held = Bits.of(held)
        self.wanted = Bits.of(ChunkSet.full(held.size) if wanted is None else wanted)
        """The chunks that this host is to hold; not changed."""
        self.missing_count = len(self.missing())
        """Number of wanted chunks not held, those in flight included."""
        self.flights: dict[int, list[Flight]] = {}
        self.fetches = 0  # flights from peers
        self.reads = 0  # flights from storage
        self.ending_fetches = 0  # fetches that are about to end
        self.ending_reads = 0
        self.progress_s = now  # when the last chunk came
        self.moved_s = now  # when more of a read had come
        self._opened_s, self._has_come = now, False
        self._came_s = deque([now], maxlen=_MEAN_CHUNKS)
        self.duplicate_chunks = 0

    def holds(self, chunk: int) -> bool:
        """Whether the chunk is verified here."""
        return chunk in self.held

    def reads_now(self, chunk: int) -> bool:
        """Whether the chunk is on its way here from storage."""
        return any(flight.supplier is SOURCE for flight in self.flights.get(chunk, ()))

    def reading(self) -> list[int]:
        """The chunks on their way here from storage, ascending."""
        flights = self.flights.items()
        return sorted({chunk for chunk, each in flights for flight in each if flight.supplier is SOURCE})

    @property
    def held_count(self) -> int:
        """Number of chunks that are verified here."""
        return self.held.count

    def wants(self, chunk: int) -> bool:
        """Whether this host is to hold the chunk."""
        return chunk in self.wanted

    @property
    def state(self) -> ReplicaState:
        """Follows from what is missing."""
        return ReplicaState.FETCHING if self.missing_count else ReplicaState.SEALING

    def start(self, chunk: int, supplier: Supplier, now: float) -> None:
        """A fetch or read begins."""
        self.flights.setdefault(chunk, []).append(Flight(supplier, now))
        if supplier is SOURCE:
            self.reads += 1
        else:
            self.fetches += 1

    def arrives(self, chunk: int, supplier: Supplier) -> bool:
        """A fetch or read has brought its first bytes; False when no such flight is known."""
        for flight in self.flights.get(chunk, ()):
            if flight.supplier == supplier:
                flight.is_arriving = True
                return True
        return False

    def moves(self, chunk: int, now: float) -> None:
        """More of a chunk has come from storage."""
        for flight in self.flights.get(chunk, ()):
            if flight.supplier is SOURCE:
                flight.moved_s = self.moved_s = now

    def ends(self, chunk: int, supplier: Supplier) -> bool:
        """A fetch or read is about to end; False when no such flight is known, or it was known to end."""
        for flight in self.flights.get(chunk, ()):
            if flight.supplier == supplier and not flight.is_ending:
                flight.is_ending = True
                if supplier is SOURCE:
                    self.ending_reads += 1
                else:
                    self.ending_fetches += 1
                return True
        return False

    def land(self, chunk: int, supplier: Supplier) -> Flight | None:
        """A fetch or read has ended, with the chunk or without; None when no such flight is known."""
        flights = self.flights.get(chunk, [])
        for flight in flights:
            if flight.supplier == supplier:
                flights.remove(flight)
                if not flights:
                    del self.flights[chunk]
                if supplier is SOURCE:
                    self.reads -= 1
                    self.ending_reads -= flight.is_ending
                else:
                    self.fetches -= 1
                    self.ending_fetches -= flight.is_ending
                return flight
        return None

    def silent_fetches(self, since_s: float) -> int:
        """How many fetches have brought nothing that began by ``since_s``."""
        flights = [flight for flights in self.flights.values() for flight in flights if flight.started_s <= since_s]
        return sum(not isinstance(flight.supplier, Origin) and not flight.is_arriving for flight in flights)

    def store(self, chunk: int, now: float) -> bool:
        """A chunk is held now; False when it was held before (the slower of two fetches)."""
        if not self.held.add(chunk):
            self.duplicate_chunks += 1
            return False
        self.missing_count -= chunk in self.wanted
        self.progress_s, self._has_come = now, True
        self._came_s.append(now)
        return True

    def mean_chunk_s(self, now: float) -> float:
        """Seconds from one chunk to the next, the mean of the last few and of the wait for one since. What a link could
        carry does not tell that storage is slow, or that hosts lack CPU time; this does."""
        return (now - self._came_s[0]) / len(self._came_s)

    def nothing_s(self, now: float) -> float:
        """For how long the deployment is open and not a chunk of it has come; 0 when one has."""
        return 0.0 if self._has_come else now - self._opened_s

    def lose(self, chunk: int) -> bool:
        """A held chunk has rotted; False when it was not held."""
        if not self.held.discard(chunk):
            return False
        self.missing_count += chunk in self.wanted
        return True

    def missing(self) -> ChunkSet:
        """The wanted chunks not held, those in flight included."""
        return self.wanted.snapshot() - self.held.snapshot()
