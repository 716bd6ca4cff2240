"""The peers to which a host keeps a control connection while nothing is deployed, to spare a deployment the handshakes.

What lives here: the choice. What does not: connections (``control``), neighbours of a deployment (``roles``).

In a small cluster all hosts become neighbours, in a larger one all hosts of a rack that is not too large; neighbours in
other racks are dialled for each deployment. A handshake is cheap, but all hosts would dial at the same moment.
"""

from __future__ import annotations

from collections.abc import Mapping

from gossipd.swarm.settings import PlannerSettings
from membership.member import NodeId


def standing_links(rack: str, rack_of: Mapping[NodeId, str], settings: PlannerSettings) -> frozenset[NodeId]:
    """The living members that will be neighbours whatever is deployed, by our rack and those of all others."""
    if len(rack_of) < settings.everyone_max:
        return frozenset(rack_of)
    rack_peers = frozenset(node for node, other in rack_of.items() if other == rack)
    return rack_peers if len(rack_peers) <= settings.rack_peers_max else frozenset()
