"""Peers to which the connection failed, and which nothing wants since: how long that counts, and what it means next.

What lives here: the table. What does not: connections (``channel_table``), and what counts meanwhile: such a peer is
unreachable, has no roles, and so is wanted by nobody.

When the time is over the peer counts as reachable again, so that a deployment may have it tried; all do when one is
opened, as a host that was cut off may be the only one that has it. The next time is twice as long, or a host that none
can reach would have roles and lose them each second, on every host of a large cluster, with a dial and a look at all
roles each time.
"""

from __future__ import annotations

import math
from heapq import heapify, heappop, heappush
from itertools import count

from msgspec import Struct

from membership.member import NodeId

PAUSE_MAX_S = 60.0  # a host behind a firewall is tried once a minute by each host whose neighbour it would be
PEERS_MAX = 4_096
_ENDS_MAX = 4 * PEERS_MAX


class LinkFailure(Struct):
    """``at_s``: when it failed. ``until_s``: when it counts as reachable again. ``pause_s``: how long the next failure
    counts."""

    at_s: float
    until_s: float
    pause_s: float
    is_over: bool = False


class FailedPeers:
    """One per brain."""

    def __init__(self) -> None:
        self._failed: dict[NodeId, LinkFailure] = {}  # the one that was noted longest ago first
        self._ends: list[tuple[float, int, NodeId, LinkFailure]] = []  # a heap; what was taken since is passed over
        self._number = count()

    @property
    def next_s(self) -> float:
        """When ``reachable_again`` may have something to do."""
        return self._ends[0][0] if self._ends else math.inf

    def note(self, peer: NodeId, failure: LinkFailure) -> NodeId | None:
        """Nothing wants a peer that has failed. Returns one that gives way to it, whose time is over at once."""
        self._failed.pop(peer, None)
        self._failed[peer] = failure
        self._ends_at(failure.until_s, peer, failure)
        if len(self._failed) <= PEERS_MAX:
            return None
        oldest = next(iter(self._failed))
        return None if self._failed.pop(oldest).is_over else oldest

    def take(self, peer: NodeId) -> LinkFailure | None:
        """What is known of a peer that is wanted again, that has moved, or that is gone; it is forgotten here."""
        return self._failed.pop(peer, None)

    def reachable_again(self, now: float) -> list[NodeId]:
        """The peers that count as reachable again, each once. What was learnt of one is kept for as long again."""
        over = []
        while self.next_s <= now:
            _, _, peer, failure = heappop(self._ends)
            if self._failed.get(peer) is not failure:
                continue
            if failure.is_over:
                del self._failed[peer]
                continue
            failure.is_over = True
            over.append(peer)
            self._ends_at(failure.until_s + failure.pause_s, peer, failure)
        return over

    def end_all(self, now: float) -> list[NodeId]:
        """The peers that count as reachable again from now on, with what was learnt of them."""
        over = [(peer, failure) for peer, failure in self._failed.items() if not failure.is_over]
        for peer, failure in over:
            self._failed[peer] = known = LinkFailure(failure.at_s, now, failure.pause_s, is_over=True)
            self._ends_at(now + failure.pause_s, peer, known)
        return [peer for peer, _ in over]

    def _ends_at(self, end_s: float, peer: NodeId, failure: LinkFailure) -> None:
        heappush(self._ends, (end_s, next(self._number), peer, failure))
        if len(self._ends) > _ENDS_MAX:
            self._ends = [one for one in self._ends if self._failed.get(one[2]) is one[3]]
            heapify(self._ends)
