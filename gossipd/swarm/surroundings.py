"""What one deployment's swarm must know of the planner's shared state in order to plan.

What lives here: the value. What does not: how it is decided (``seed_election``).
"""

from __future__ import annotations

from msgspec import Struct

from gossipd.core.model import PeerView
from membership.member import NodeId


class Surroundings(Struct, frozen=True):
    """This host, the seeds of all racks, and from when reads of storage may begin or go on, in seconds.
    ``may_read_extra``: whether this host may read though it is no seed; not where its reads are limited, because who
    limits them counts seeds."""

    own: PeerView
    seeds: frozenset[NodeId]
    begin_allowed_s: float
    reads_allowed_s: float
    may_read_extra: bool = True
