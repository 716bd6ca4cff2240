"""What counts of what a doubted peer says of one deployment.

What lives here: the choice. What does not: who is doubted (``peers``), and what follows when that changes
(``maintenance``).

A peer that was asked several times and sent nothing, or wrong bytes, may claim everything for ever. What is claimed is
not imported, so few such peers would hold up a rack in turn, whenever one of them is asked again. Rejected: to ask it
no more, because nobody would hear that a broken switch has been mended; longer pauses, because few are enough to hold
up all that they claim. So one chunk counts, by which the peer can show that it sends. Each host draws its own.

Storage is read as if that chunk had no holder, and what a doubted peer says that it reads does not count: a second copy
costs bytes, and a chunk that nobody reads costs the model. Of the peers that had much when they were first heard of,
none counts for that once one is doubted, until one of them delivers: else a rack waits for each of them in turn. The
same when nothing has come for long, because a reader whose turn to ask is late would doubt none of them before.
Rejected: the same of all peers that have delivered nothing, because one that hangs would make readers read twice.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from random import Random

from msgspec.structs import replace

from gossipd.core.chunkset import ChunkSet
from gossipd.core.events import DeltaHeard, HoldingsHeard
from gossipd.swarm.peers import Peer
from membership.member import NodeId

_FIRST_SHARE = 0.25  # of the model; a host that has it from others has less when it is first heard of


def counted(claimed: ChunkSet, missing: int, before: int, rng: Random) -> ChunkSet:
    """At most one of the claimed chunks, one that is missing here; as bits, ``missing`` and what counted ``before``."""
    chunks = ChunkSet(claimed.size, (claimed.bits & missing & before) or (claimed.bits & missing))
    return ChunkSet.of(claimed.size, (rng.choice(tuple(chunks)),)) if chunks else chunks


def counted_holdings(event: HoldingsHeard, missing: int, before: int, rng: Random) -> HoldingsHeard:
    """The event as it counts."""
    return replace(event, chunks=counted(event.chunks, missing, before, rng))


def counted_delta(event: DeltaHeard, missing: ChunkSet, before: int, rng: Random) -> DeltaHeard:
    """The event as it counts: nothing new while a chunk counts."""
    added = ChunkSet.of(missing.size, [chunk for chunk in event.added if chunk < missing.size])
    chunks = () if before & missing.bits else tuple(counted(added, missing.bits, 0, rng))
    return replace(event, added=chunks, reading=())


class FirstClaims:
    """The peers that said they had much of a deployment when they were first heard of."""

    def __init__(self, size: int) -> None:
        self._least = max(1, int(_FIRST_SHARE * size))
        self._nodes: set[NodeId] = set()
        self._are_in_vain = False

    def heard(self, node: NodeId, count: int, *, is_first: bool) -> None:
        """A peer's complete holdings, of that many chunks. ``is_first``: nothing was known of it before."""
        if is_first and count >= self._least:
            self._nodes.add(node)

    def uncounted(self, doubted: Set[NodeId], known: Mapping[NodeId, Peer], *, is_late: bool) -> frozenset[NodeId]:
        """Those whose claims do not count for what is read from storage.

        Args:
            known: what is known of peers, by node.
            is_late: nothing has come for longer than a fetch may take; a peer that refuses may be honest and busy.
        """
        peers = [known[node] for node in self._nodes if node in known]
        if any(peer.has_delivered for peer in peers):
            self._are_in_vain = False
        elif not self._nodes.isdisjoint(doubted) or (is_late and not any(peer.refused for peer in peers)):
            self._are_in_vain = True
        return frozenset(self._nodes) if self._are_in_vain else frozenset()
