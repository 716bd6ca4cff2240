"""What the planner shows of itself: frozen snapshots for status, metrics and tests."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from gossipd.core.events import StallReason
from gossipd.core.ids import DeploymentId
from membership.member import NodeId


class SwarmStatistics(Struct, frozen=True):
    """One deployment here.

    ``readers``: its source readers. ``one_copy``: a holder of every chunk is known. ``served``: hosts that want a part,
    of which a holder of every chunk is known.
    """

    state: str
    chunks_held: int
    chunks_total: int
    fetches: int
    reads: int
    duplicate_chunks: int
    neighbours: int
    subscribers: int
    readers: tuple[NodeId, ...]
    stall: StallReason | None
    one_copy: bool
    served: frozenset[NodeId]


class PlannerStatistics(Struct, frozen=True):
    """The whole swarm brain. ``seed_term`` is 0 without a claim."""

    seed_term: int
    events: int
    """That were handled since the start."""
    plans: int
    """That were made since the start."""
    seeds: frozenset[NodeId]
    swarms: Mapping[DeploymentId, SwarmStatistics]
