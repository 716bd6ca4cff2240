"""Asking members that have not spoken to this host, a few a second, so that they count or are seen to be silent.

What lives here: whom to ask next, and when the directory is told who may be made up. What does not: what such a member
is no part of (``cluster_roster``, ``status_view``, ``swarm``), the ping and what was sent in vain (``membership``).

A host may make up hundreds of members, and a deployment would wait for them until they are dead. A host that lives
answers at once. Rejected: to wait for membership's own probes, which take every other round for such members: of four
hundred the last would be known a quarter of an hour later; to ask at once, because sixty hosts that start together on a
busy machine hear each other within seconds anyway, and would ask each other three thousand times.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

import trio

from gossipd.daemon.member_directory import MemberDirectory
from gossipd.daemon.membership_host import MembershipHost
from gossipd.runtime.look_interval import until_next_look
from membership.member import NodeId

LOOK_S = 1.0
PATIENCE_S = 10.0
ASKED_AT_ONCE = 16  # 2 kB a second, and a minute and a half until four hundred are known


class UnheardAsks:
    """One per daemon. ``now``: a monotonic clock in seconds."""

    def __init__(self) -> None:
        self._since_s: dict[NodeId, float] = {}
        """When each was seen first; the one that was asked last stands last."""

    def next(self, unanswered: Collection[NodeId], is_unheard: Callable[[NodeId], bool], now: float) -> list[NodeId]:
        """Of the living members that have not spoken, at most ``ASKED_AT_ONCE`` that have had the time to, in turn, and
        one that was asked in vain: it may have been busy. Call it every second."""
        for node in self._since_s.keys() - set(unanswered):
            del self._since_s[node]
        for node in sorted(unanswered):
            self._since_s.setdefault(node, now)
        late = [node for node, since_s in self._since_s.items() if now - since_s >= PATIENCE_S]
        vain = [node for node in late if is_unheard(node)][:1]
        chosen = [node for node in late if not is_unheard(node)][:ASKED_AT_ONCE] + vain
        for node in chosen:
            self._since_s[node] = self._since_s.pop(node)
        return chosen


async def ask_unheard(directory: MemberDirectory, membership_host: MembershipHost) -> None:
    """Never returns."""
    asks = UnheardAsks()
    while True:
        unanswered, is_unheard = directory.unanswered(), membership_host.swim.is_unheard
        directory.note_unheard(filter(is_unheard, unanswered))
        for node in asks.next(directory.live() & unanswered, is_unheard, trio.current_time()):
            membership_host.ask(node)
        await until_next_look(LOOK_S)
