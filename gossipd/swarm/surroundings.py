"""What one deployment's swarm must know of the planner's shared state in order to plan.

What lives here: the value. What does not: how it is decided (``seed_election``).
"""

from __future__ import annotations

from dataclasses import dataclass

from gossipd.core.model import PeerView
from membership.member import NodeId


@dataclass(frozen=True, slots=True)
class Surroundings:
    """This host, the seeds of all racks, and from when reads of storage may begin or go on, in seconds.
    ``may_read_extra``: whether this host may read though it is no seed; not where its reads are limited, because who
    limits them counts seeds."""

    own: PeerView
    seeds: frozenset[NodeId]
    begin_allowed_s: float
    reads_allowed_s: float
    may_read_extra: bool = True
