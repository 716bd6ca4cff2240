"""When a host that has opened a deployment knows enough of the others to read storage.

What lives here: the rule. What does not: which hosts read (``roles``), and what they read (``source_read_planner``).

A host that opens a deployment late hears from a neighbour what is there before it begins, or its probe has succeeded.

One that resumes a deployment owns its share of what it lacks at once, and knows nothing of what its successors have
read meanwhile. They tell once a connection to them is there, which takes seconds where a machine is busy; without their
word it would read all of its share again. So it hears every usable reader first, and waits no longer than until others
take over what it does not read. Rejected: to ask the same of a host that holds nothing, because at the start of a
deployment most readers have yet to hear of it.
"""

from __future__ import annotations

from collections.abc import Set

from gossipd.swarm.neighbour_subscriptions import NeighbourSubscriptions
from gossipd.swarm.peers import Peers
from gossipd.swarm.source_read_planner import SourceReadPlanner
from membership.member import NodeId


class ReadingStart:
    """Of one deployment. ``is_resumed``: this host held chunks of it when it opened it."""

    def __init__(
        self, reader: SourceReadPlanner, subscriptions: NeighbourSubscriptions, peers: Peers, *, is_resumed: bool
    ) -> None:
        self._reader, self._subscriptions, self._peers = reader, subscriptions, peers
        self._must_hear_all = is_resumed
        self._waiting_s: float | None = None  # since when this host would have read

    def knows_enough(self, neighbours: Set[NodeId], now: float) -> bool:
        """Whether it has heard enough to read. Called when nothing else holds it back: seeds are known then."""
        reader, heard = self._reader, self._subscriptions.heard_s
        if not reader.readable and neighbours and not heard:
            return False
        if self._must_hear_all:
            if self._waiting_s is None:
                self._waiting_s = now
            unheard = (neighbours & {*reader.readers}) - heard.keys()
            if now < self._waiting_s + reader.takeover_s() and self._peers.usable(unheard, now):
                return False
            self._must_hear_all = False
        return True
