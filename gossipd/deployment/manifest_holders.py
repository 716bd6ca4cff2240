"""Which hosts are asked for one deployment's manifest, and in which order.

What lives here: the choice, and which hosts have given a manifest before. What does not: asking, and trying again
(``pull_turns``).

A manifest takes the way of its statement. The host that brought the statement is asked first: it answers when it has
the body itself. So each host is asked by the few that it told, and the body follows the gossip. A member that says much
and gives nothing would be asked first by all: of those that brought the statement one that has given a manifest before
goes first.
"""

from __future__ import annotations

from collections.abc import Collection
from random import Random

from membership.member import NodeId


class ManifestGivers:
    """Members of which the last manifest that this host asked for came, and was a publisher's. At most ``most``; the
    one that gave longest ago is forgotten."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._nodes: dict[NodeId, None] = {}

    def gave(self, node: NodeId) -> None:
        """Its manifest was verified."""
        self._nodes.pop(node, None)
        self._nodes[node] = None
        if len(self._nodes) > self._most:
            del self._nodes[next(iter(self._nodes))]

    def failed(self, node: NodeId) -> None:
        """It was silent, did not have it, or what it gave was wrong."""
        self._nodes.pop(node, None)

    def among(self, nodes: Collection[NodeId]) -> set[NodeId]:
        """Those of ``nodes`` that are givers."""
        return {node for node in self._nodes if node in nodes}


class Holders:
    """Hosts that have the manifest or will soon, in order of hearing. ``any_share``: of choices of any live host."""

    def __init__(self, rng: Random, *, any_share: float) -> None:
        self._rng = rng
        self._any_share = any_share
        self._known: dict[NodeId, None] = {}  # bounded by the roster: only members bring statements
        self._choices = 0

    def add(self, node: NodeId) -> bool:
        """A host has the manifest, or will soon; whether that is news."""
        before = len(self._known)
        self._known[node] = None
        return len(self._known) > before

    @property
    def first(self) -> NodeId | None:
        """The first that was heard of."""
        return next(iter(self._known), None)

    def clear(self) -> None:
        """The manifest is here."""
        self._known.clear()

    def choose(self, live: set[NodeId], answered: set[NodeId], givers: Collection[NodeId] = ()) -> NodeId | None:
        """The next host to ask; None when there is none. ``givers``: those of ``live`` that gave a manifest before.

        Mostly one that has spoken to this host: each question to a host that some other has made up costs a time-out.
        """
        known = [node for node in self._known if node in live]
        proven = [node for node in known if node in givers]
        heard = [node for node in known if node in answered]
        is_first, self._choices = not self._choices, self._choices + 1
        if proven:
            return proven[0]
        if known and is_first:
            return (heard or known)[0]
        is_any = self._rng.random() < self._any_share
        candidates = sorted(live) if is_any else heard or sorted(answered) or known or sorted(live)
        return self._rng.choice(candidates) if candidates else None
