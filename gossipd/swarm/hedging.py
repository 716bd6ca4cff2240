"""Second requests: a chunk that takes too long is asked of another holder, too.

What lives here: which requests of one deployment are hedged now. What does not: choosing the holder (``scheduler``).
Rejected: hedging a chunk that a rack peer was promised, because the importer or its readers deliver it to all.
"""

from __future__ import annotations

from gossipd.core.ids import Origin
from gossipd.swarm.deployment_swarm import DeploymentSwarm


def hedge(swarm: DeploymentSwarm, room: int, now: float) -> int:
    """Ask a second holder for chunks that take too long, and at the very end for any that takes its time."""
    replica, usual_s = swarm.replica, swarm.peers.usual_s
    if room <= 0 or not usual_s:
        return 0
    at_end = replica.missing_count <= max(2, int(swarm.settings.hedge_share * replica.shape.chunk_count))
    late_wait = 1.5 if at_end else swarm.settings.hedge_after
    hedged, imports_room = 0, swarm.imports_room()
    for chunk, flights in list(replica.flights.items()):
        flight = flights[0]
        if len(flights) > 1 or hedged >= room:
            continue
        first = None if isinstance(flight.supplier, Origin) else flight.supplier
        near = swarm.availability.near_holders(chunk)
        age_s = now - flight.started_s
        if swarm.is_promised(chunk) and first not in swarm.roles.rack_peers:
            near = []  # they have it from us, or will,
            if first is None and age_s < swarm.reader.takeover_s():
                continue  # and so have all others until one of them reads it again
        # An uplink that many share is slow for everybody: a second fetch over it only makes it slower.
        if age_s < late_wait * (usual_s if near else max(usual_s, swarm.import_window.usual_s)):
            continue
        if not near and imports_room <= 0:
            continue
        if replica.holds(chunk):
            continue  # the other of two came; this one's cancellation has not been confirmed yet
        holders = near or swarm.availability.far_holders(chunk)
        found = swarm.scheduler.supplier(holders, now, swarm.pause_s, but=first)
        if found is not None:
            swarm.peers.started(found[1])
            swarm.start_fetch(chunk, found[1].view.node, now)
            hedged += 1
            imports_room -= not near
    return hedged
