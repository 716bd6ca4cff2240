"""Second requests: a chunk that takes too long is asked of another holder too, on evidence that the first one fails.

What lives here: which requests of one deployment are hedged now. What does not: the choice of holder (``scheduler``).
Rejected: to hedge a chunk that rack peers were promised, because its importer or reader delivers it to all of them; to
hedge by the age of a fetch alone, because on a machine that stands still for a moment every fetch is old.
"""

from __future__ import annotations

from gossipd.core.ids import Origin
from gossipd.swarm.deployment_swarm import DeploymentSwarm
from gossipd.swarm.local_replica import Flight

_ARRIVING_FACTOR = 2.0  # a fetch that moves is slow, not lost
_ENDING_FACTOR = 4.0  # its rest is under way; both ends cut a transfer that stops


def hedge(swarm: DeploymentSwarm, room: int, now: float, *, late_s: float = 0.0) -> int:
    """Ask second holders for chunks that take too long, near the end sooner; returns the number of fetches.

    Args:
        late_s: seconds by which this host acts later than it means to; an event may wait so long to be seen.
    """
    replica, usual_s = swarm.replica, swarm.peers.usual_s
    if room <= 0 or not usual_s or swarm.is_paused:
        return 0
    at_end = replica.missing_count <= max(2, int(swarm.settings.hedge_share * replica.shape.chunk_count))
    late_wait = 1.5 if at_end else swarm.settings.hedge_after
    hedged, imports_room = 0, swarm.imports_room()
    # Most fetches are younger than the least patience below: nothing else is looked at of those.
    least_s = max(swarm.settings.hedge_s_min, late_wait * usual_s)
    for chunk, flights in list(replica.flights.items()):
        flight = flights[0]
        if len(flights) > 1 or hedged >= room:
            continue
        if now - flight.started_s < late_s + least_s * _factor(flight):
            continue
        first = None if isinstance(flight.supplier, Origin) else flight.supplier
        near = swarm.availability.near_holders(chunk)
        age_s = now - flight.started_s
        if swarm.is_promised(chunk) and first not in swarm.roles.rack_peers:
            near = []  # these "hold" it because this host has promised it to them
            if first is None and age_s < swarm.reader.takeover_s():
                continue  # until another source reader takes the read over, all holders are promised it by us
        # A shared uplink is slow for every fetch: a second one over it makes all of them slower.
        patience_s = late_wait * (usual_s if near else max(usual_s, swarm.import_window.usual_s))
        if age_s < late_s + max(swarm.settings.hedge_s_min, patience_s) * _factor(flight):
            continue
        if not near and imports_room <= 0:
            continue
        if replica.holds(chunk):
            continue  # one of two flights has delivered; this one's cancellation is not confirmed yet
        holders = near or swarm.availability.far_holders(chunk)
        found = swarm.scheduler.supplier(holders, now, swarm.times.pause_s, but=first)
        if found is not None:
            swarm.peers.started(found[1])
            swarm.start_fetch(chunk, found[1].view.node, now)
            hedged += 1
            imports_room -= not near
    return hedged


def _factor(flight: Flight) -> float:
    return _ENDING_FACTOR if flight.is_ending else _ARRIVING_FACTOR if flight.is_arriving else 1.0
