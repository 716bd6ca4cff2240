"""Gossip rounds: when this node tells rumours to some members, and to how many.

What lives here: the rhythm of rounds, and the hurry when something cannot wait. What does not: which rumours a datagram
takes (``rumours``, ``node``).
"""

from __future__ import annotations

from membership.node import MembershipNode


class GossipRounds:
    """One per brain; no round runs while there is nothing to say."""

    def __init__(self, node: MembershipNode) -> None:
        self._node = node
        self._is_planned = False

    def begin(self, now: float) -> None:
        """Something has happened: begin rounds when there is something to say."""
        node = self._node
        hurry, node.gossip_due = node.gossip_due, False
        if not node.rumours or node.has_left:
            return
        if hurry and node.settings.lifeguard:
            self._gossip(now)
        if not self._is_planned:
            self._is_planned = True
            node.at(now + node.settings.gossip_interval_s * (0.5 + 0.5 * node.rng.random()), self._on_round)

    def _on_round(self, now: float) -> None:
        self._is_planned = False
        self._gossip(now)

    def _gossip(self, now: float) -> None:
        node = self._node
        for claim in node.pick_reachable(node.settings.gossip_fanout):
            if not node.rumours or not node.send_rumours(claim, now):
                return  # nothing is left to say, or the budget is used up
