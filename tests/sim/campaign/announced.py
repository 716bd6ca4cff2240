"""What a host announced to each peer, and what that peer heard: the same, wherever neither has a reason to doubt it.

What lives here: both sides as the planners see them, and the comparison. What does not: when it is looked at
(``oracle``). A difference may stand for a moment, while the planner that has to announce everything again has not had
its turn; one that stays is a hole that no gap shows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gossipd.core import events
from gossipd.core.ids import DeploymentId
from gossipd.sessions.events import SessionWord
from membership.member import NodeId

if TYPE_CHECKING:
    from tests.sim.campaign.plane import Plane

HOLE_S = 4.0
"""Longer than two plans of a slow host; shorter than the silence after which a planner asks again by itself."""


class Announcements:
    """Of one life of one host: bits of chunks by peer and deployment."""

    def __init__(self) -> None:
        self.told: dict[tuple[NodeId, DeploymentId], int] = {}
        self.heard: dict[tuple[NodeId, DeploymentId], int] = {}
        self._differ_s: dict[tuple[NodeId, DeploymentId], float] = {}

    def say(self, word: SessionWord) -> None:
        """What the planner wants said, whatever becomes of it."""
        match word:
            case events.SendHoldings():
                self.told[word.peer, word.deployment] = word.chunks.bits
            case events.SendDelta():
                for peer in word.peers:
                    _apply(self.told, (peer, word.deployment), word)
            case events.PeerLost():
                self.told = {key: bits for key, bits in self.told.items() if key[0] != word.node}
            case events.DeploymentClosed():
                self.told = {key: bits for key, bits in self.told.items() if key[1] != word.deployment}

    def hear(self, event: events.Event) -> None:
        """What the sessions report."""
        if isinstance(event, events.HoldingsHeard):
            self.heard[event.peer, event.deployment] = event.chunks.bits
        elif isinstance(event, events.DeltaHeard):
            _apply(self.heard, (event.peer, event.deployment), event)

    def holes(self, own: Plane, now: float) -> tuple[int, list[tuple[NodeId, DeploymentId]]]:
        """How many subscriptions could be compared, and those in which something has been missing for long."""
        compared, differ_s = 0, {}
        for key, heard in self.heard.items():
            told = own.told_by(*key)
            compared += told is not None
            if told is not None and told != heard and own.is_quiet_between(key[0]):
                differ_s[key] = self._differ_s.get(key, now)
        self._differ_s = differ_s
        return compared, [key for key, since_s in differ_s.items() if now - since_s > HOLE_S]


def _apply(
    table: dict[tuple[NodeId, DeploymentId], int],
    key: tuple[NodeId, DeploymentId],
    delta: events.SendDelta | events.DeltaHeard,
) -> None:
    bits = table.get(key)
    if bits is not None:
        for chunk in delta.dropped:
            bits &= ~(1 << chunk)
        for chunk in delta.added:
            bits |= 1 << chunk
        table[key] = bits
