"""Members that have not spoken to this host, and those of them that may be made up.

What lives here: who has not spoken, and who gets no roles for it. What does not: who asks (``gossipd.sessions`` before
it dials, and the daemon's table of members); seats of seeds (``seed_election``).

One host may make up hundreds of members. They would stand between true neighbours on rings, and their racks, which come
and vanish one by one, would have all roles computed again and again. So who was asked in vain gets no role, nor does
anybody of a rack from which nobody has spoken. Rejected: to give roles only to members that have spoken, because of a
thousand a host that has just started hears some twenty a second.
"""

from __future__ import annotations

from collections.abc import Mapping

from gossipd.core.model import PeerView
from membership.member import NodeId


class UnheardMembers:
    """One per planner. ``note`` and ``reached`` say whether anything has changed."""

    def __init__(self) -> None:
        self.all: set[NodeId] = set()
        self.silent: set[NodeId] = set()
        """Some of them: asked in vain."""

    def note(self, node: NodeId, *, has_answered: bool) -> bool:
        """A member is there, or has answered."""
        if has_answered is not (node in self.all):
            return False
        (self.all.discard if has_answered else self.all.add)(node)
        self.silent.discard(node)
        return True

    def reached(self, node: NodeId, *, reachable: bool) -> bool:
        """This host asked it."""
        if node not in self.all or reachable is not (node in self.silent):
            return False
        (self.silent.discard if reachable else self.silent.add)(node)
        return True

    def without_roles(self, views: Mapping[NodeId, PeerView], own_rack: str) -> set[NodeId]:
        """Which of these members may be made up."""
        if not self.all:
            return set()
        racks = {view.rack for node, view in views.items() if node not in self.all} | {own_rack}
        return self.silent | {node for node in self.all & views.keys() if views[node].rack not in racks}

    def drop(self, node: NodeId) -> None:
        """It is no member any more."""
        self.all.discard(node)
        self.silent.discard(node)
