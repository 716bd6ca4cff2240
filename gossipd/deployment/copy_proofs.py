"""Which hosts of a rack have shown that they have a version which they say they have.

What lives here: what each has shown and when, what that counts for, and who is asked next. What does not: asking
(``daemon.copy_checks``), and what hosts say (``daemon.rack_copies``).

A host that lies about having a version may come first in the order of ``keepers``; its owner may make keys until it
does. Then all others evict the version, and the rack has a copy less than it should. So before a host gives up its
copy, each of those that should keep it is asked for one chunk, drawn at random, and counts when the chunk is right. One
that fails does not count for a while: the next host in the order is asked, or this host keeps its copy. A host that has
evicted a version asks the same, once a day, of those that count as its copies. A liar that has half of the chunks shows
its copy half of the times, and one that fetches a chunk from elsewhere when it is asked is not found out. Rejected: to
count hosts that have delivered a chunk before, because a host fetches from some of its rack only, and from none after a
restart: it would never make room.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import NamedTuple

from gossipd.core.ids import DeploymentId
from membership.member import NodeId

SHOWN_S = 3_600.0  # before an eviction: a host that was asked then has it still, or says that it has not
SHOWN_TO_WATCH_S = 86_400.0  # a rack of 40 hosts with 100 evicted versions of 8 MiB a chunk: 0.7 MB/s of the rack
FAILED_S = 60.0  # it may have been busy, and is asked again
# A copy that is on its way counts for so long: 2.7 TB at 1 Gbit/s. Less makes a copy too many of a large model.
PROMISED_S = 6 * 3_600.0
PROMISED_AGAIN_S = 86_400.0  # after its first word, a host that never came to show a copy is believed once more
PROOFS_MAX = 4_096  # the oldest is forgotten: that host is asked again


class _Proof(NamedTuple):
    is_shown: bool
    at_s: float


class CopyProofs:
    """One per daemon. Times are seconds on a clock that never goes back."""

    def __init__(self) -> None:
        self._proofs: OrderedDict[tuple[DeploymentId, NodeId], _Proof] = OrderedDict()  # the latest last
        self._promised_s: OrderedDict[tuple[DeploymentId, NodeId], float] = OrderedDict()  # since when, the latest last

    def note(self, deployment: DeploymentId, node: NodeId, *, is_shown: bool, now: float) -> None:
        """The host was asked for a chunk, and sent it or not."""
        self._proofs[deployment, node] = _Proof(is_shown, now)
        self._proofs.move_to_end((deployment, node))
        if is_shown:
            self._promised_s.pop((deployment, node), None)
        if len(self._proofs) > PROOFS_MAX:
            self._proofs.popitem(last=False)

    def has_failed(self, deployment: DeploymentId, node: NodeId, now: float | None = None) -> bool:
        """Whether it did not send a chunk when it was asked last, and not longer ago than ``FAILED_S``; without ``now``
        however long ago."""
        proof = self._proofs.get((deployment, node))
        return proof is not None and not proof.is_shown and (now is None or now - proof.at_s < FAILED_S)

    def is_promised(self, deployment: DeploymentId, node: NodeId, now: float) -> bool:
        """Whether a copy counts that the host says is on its way. To say so again and again makes it no longer."""
        since_s = self._promised_s.get((deployment, node))
        if since_s is None or now - since_s >= PROMISED_AGAIN_S:
            since_s = self._promised_s[deployment, node] = now
            self._promised_s.move_to_end((deployment, node))
            if len(self._promised_s) > PROOFS_MAX:
                self._promised_s.popitem(last=False)
        return now - since_s < PROMISED_S

    def to_ask(
        self, deployment: DeploymentId, nodes: Sequence[NodeId], now: float, *, shown_s: float = SHOWN_S
    ) -> list[NodeId]:  # fmt: skip
        """Those that are to be asked now. ``shown_s``: for how long what a host has shown counts."""
        return [node for node in nodes if self._is_old(self._proofs.get((deployment, node)), now, shown_s)]

    @staticmethod
    def _is_old(proof: _Proof | None, now: float, shown_s: float) -> bool:
        return proof is None or now - proof.at_s >= (shown_s if proof.is_shown else FAILED_S)
