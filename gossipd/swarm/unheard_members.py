"""Members that have not spoken to this host, and those of them that did not answer when it asked.

What lives here: the two sets. What does not: who asks (``gossipd.sessions``, before it dials), and what follows: an
unheard member has no seat as a seed and no rack (``seed_election``), a silent one has no roles and counts nowhere.
"""

from __future__ import annotations

from membership.member import NodeId


class UnheardMembers:
    """One per planner. ``note`` and ``reached`` say whether anything has changed."""

    def __init__(self) -> None:
        self.all: set[NodeId] = set()
        self.silent: set[NodeId] = set()
        """Some of them: asked in vain. One host may make up hundreds, which would stand between true neighbours."""

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

    def drop(self, node: NodeId) -> None:
        """It is no member any more."""
        self.all.discard(node)
        self.silent.discard(node)
