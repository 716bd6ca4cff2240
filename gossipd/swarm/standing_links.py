"""To whom a host keeps a control link while nothing is deployed, so that a deployment need not begin with handshakes.

What lives here: the choice. What does not: links (``control``), and neighbours, who are drawn for each deployment
(``roles``).

In a small cluster everybody becomes everybody's neighbour, in a larger one all mates of a rack that is not too large;
from other racks each deployment draws others, which are dialed then. A handshake takes less than 1 ms of CPU at either
end, but all hosts begin at the same moment: sixteen hosts on two cores that dialed each other then held five chunks
0.9 s after the first of them had opened the model, and after 0.75 s with links that were there (lab, two runs each).
Fifteen links cost a host 140 bytes a second at rest, which is their heartbeats.
"""

from __future__ import annotations

from collections.abc import Mapping

from gossipd.swarm.settings import PlannerSettings
from membership.member import NodeId


def standing_links(rack: str, rack_of: Mapping[NodeId, str], settings: PlannerSettings) -> frozenset[NodeId]:
    """Those of the living members that will be neighbours whatever is deployed.

    Args:
        rack: our own. rack_of: the racks of all others that live.
    """
    if len(rack_of) < settings.everyone_max:
        return frozenset(rack_of)
    rack_peers = frozenset(node for node, other in rack_of.items() if other == rack)
    return rack_peers if len(rack_peers) <= settings.rack_peers_max else frozenset()
