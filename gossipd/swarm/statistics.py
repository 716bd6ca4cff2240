"""What the planner shows of itself: frozen pictures for status, metrics and tests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gossipd.core.events import StallReason
from gossipd.core.ids import DeploymentId
from membership.member import NodeId


@dataclass(frozen=True, slots=True)
class SwarmStatistics:
    """One deployment on this host. ``readers`` are the hosts that read its source, as seen from here.

    ``one_copy``: of every chunk a holder is known, this host or a neighbour.
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


@dataclass(frozen=True, slots=True)
class PlannerStatistics:
    """The whole brain. ``seed_term`` is 0 without a claim to seedship."""

    seed_term: int
    seeds: frozenset[NodeId]
    swarms: Mapping[DeploymentId, SwarmStatistics]
