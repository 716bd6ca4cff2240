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

    def next(
        self, unheard: Collection[NodeId], may_be_nobody: Callable[[NodeId], bool], now: float
    ) -> list[NodeId]:  # fmt: skip
        """Of the living members that have not spoken, at most ``ASKED_AT_ONCE`` that have had the time to, the oldest
        first. One that was asked in vain makes room for others. Call it every second."""
        for node in self._since_s.keys() - set(unheard):
            del self._since_s[node]
        for node in sorted(unheard):
            self._since_s.setdefault(node, now)
        late = [node for node, since_s in self._since_s.items() if now - since_s >= PATIENCE_S]
        return [node for node in late if not may_be_nobody(node)][:ASKED_AT_ONCE]


async def ask_unheard(directory: MemberDirectory, membership_host: MembershipHost) -> None:
    """Never returns."""
    asks = UnheardAsks()
    while True:
        unheard, may_be_nobody = directory.unheard(), membership_host.swim.may_be_nobody
        directory.note_nobodies(filter(may_be_nobody, unheard))
        for node in asks.next(directory.live() & unheard, may_be_nobody, trio.current_time()):
            membership_host.ask(node)
        await until_next_look(LOOK_S)
