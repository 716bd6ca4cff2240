"""Asking members that have not spoken to this host, a few a second, so that they count or are seen to be silent.

What lives here: whom to ask next, and when the directory is told who may be made up. What does not: what such a member
is no part of (``cluster_roster``, ``status_view``, ``swarm``), the ping and what was sent in vain (``membership``).

A host may make up hundreds of members, and a deployment would wait for them until they are dead. A host that lives
answers at once. Rejected: to wait for membership's own probes, which take every other round for such members: of four
hundred the last would be known a quarter of an hour later.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from gossipd.daemon.member_directory import MemberDirectory
from gossipd.daemon.membership_host import MembershipHost
from gossipd.runtime.look_interval import until_next_look
from membership.member import NodeId

LOOK_S = 1.0
ASKED_AT_ONCE = 16  # 2 kB a second, and a minute and a half until four hundred are known


def asked_next(unheard: Collection[NodeId], may_be_nobody: Callable[[NodeId], bool]) -> list[NodeId]:
    """At most ``ASKED_AT_ONCE`` of those that may still answer. One that was asked in vain makes room for others."""
    return sorted(node for node in unheard if not may_be_nobody(node))[:ASKED_AT_ONCE]


async def ask_unheard(directory: MemberDirectory, membership_host: MembershipHost) -> None:
    """Never returns."""
    while True:
        may_be_nobody = membership_host.swim.may_be_nobody
        directory.note_nobodies(filter(may_be_nobody, directory.unheard()))
        for node in asked_next(directory.live() & directory.unheard(), may_be_nobody):
            membership_host.ask(node)
        await until_next_look(LOOK_S)
