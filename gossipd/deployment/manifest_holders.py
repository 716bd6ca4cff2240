"""Which hosts are asked for one deployment's manifest, and in which order.

What lives here: the choice. What does not: asking, and trying again (``deployment_steps``).

A manifest takes the way of its statement. The host that brought the statement is asked first: it answers when it has
the body itself. So each host is asked by the few that it told, and the body follows the gossip.
"""

from __future__ import annotations

from random import Random

from membership.member import NodeId


class Holders:
    """Hosts that have the manifest or will soon, in order of hearing. ``any_share``: of choices of any live host."""

    def __init__(self, rng: Random, *, any_share: float) -> None:
        self._rng = rng
        self._any_share = any_share
        self._known: dict[NodeId, None] = {}  # bounded by the roster: only members bring statements
        self._choices = 0

    def add(self, node: NodeId) -> None:
        """A host has the manifest."""
        self._known[node] = None

    @property
    def first(self) -> NodeId | None:
        """The first that was heard of."""
        return next(iter(self._known), None)

    def clear(self) -> None:
        """The manifest is here."""
        self._known.clear()

    def choose(self, live: set[NodeId], answered: set[NodeId]) -> NodeId | None:
        """The next host to ask; None when there is none.

        Mostly one that has spoken to this host: each question to a host that some other has made up costs a time-out.
        """
        known = [node for node in self._known if node in live]
        heard = [node for node in known if node in answered]
        is_first, self._choices = not self._choices, self._choices + 1
        if known and is_first:
            return (heard or known)[0]
        is_any = self._rng.random() < self._any_share
        candidates = sorted(live) if is_any else heard or sorted(answered) or known or sorted(live)
        return self._rng.choice(candidates) if candidates else None
