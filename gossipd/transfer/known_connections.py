"""Which authenticated connections stay when there are too many: a decision by node, without sockets.

What lives here: counting, and the choice of the connection that must make room. What does not: new connections
(``runtime.pending_connections``), accepting and cutting (``listener``). Pure.

A member may open connections and ask nothing. When there is no room, the node with the most connections gives up the
one that has been idle for the longest, and nodes that are no members give up theirs before all others: a member without
any always gets one. An upload is cut only where no idle connection is left. Rejected: a shorter time for idle
connections, which would cost honest members a handshake for each chunk that comes late.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

from msgspec import Struct

from gossipd.runtime.pending_connections import Admission
from membership.member import NodeId

Connection = TypeVar("Connection", bound=Hashable)


class KnownLimits(Struct, frozen=True):
    """Authenticated connections at once: in all, and of one node. At least 1."""

    total: int
    per_node: int


class KnownConnections(Generic[Connection]):
    """The authenticated connections of one port. Not thread-safe. A new connection is idle."""

    def __init__(self) -> None:
        self._node_of: dict[Connection, NodeId] = {}
        self._by_node: dict[NodeId, dict[Connection, None]] = {}  # idle for the longest first
        self._busy: set[Connection] = set()
        self._members: set[NodeId] = set()

    def __len__(self) -> int:
        return len(self._node_of)

    def __contains__(self, connection: Connection) -> bool:
        return connection in self._node_of

    def admit(
        self, connection: Connection, node: NodeId, *, is_member: bool, limits: KnownLimits
    ) -> Admission[Connection]:
        """Take in a connection that was authenticated as ``node``'s. ``is_member``: that node belongs to the cluster
        now."""
        own = len(self._by_node.get(node, ()))
        evicted = None
        if own >= limits.per_node or len(self) >= limits.total:
            evicted = self._idle_of(node) if own >= limits.per_node else self._greedy(node, own, is_member=is_member)
            if evicted is None:
                return Admission(False)
            self.remove(evicted)
        (self._members.add if is_member else self._members.discard)(node)
        self._node_of[connection] = node
        self._by_node.setdefault(node, {})[connection] = None
        return Admission(True, evicted)

    def begin(self, connection: Connection) -> None:
        """The connection uploads from now on; without effect when it was evicted."""
        if connection in self._node_of:
            self._busy.add(connection)

    def end(self, connection: Connection) -> None:
        """The connection's upload is over; without effect when it was evicted."""
        if connection in self._node_of:
            self._busy.discard(connection)
            own = self._by_node[self._node_of[connection]]
            del own[connection]
            own[connection] = None

    def remove(self, connection: Connection) -> None:
        """The connection has ended; without effect when it was evicted."""
        node = self._node_of.pop(connection, None)
        if node is None:
            return
        self._busy.discard(connection)
        del self._by_node[node][connection]
        if not self._by_node[node]:
            del self._by_node[node]
            self._members.discard(node)

    def _greedy(self, newcomer: NodeId, own: int, *, is_member: bool) -> Connection | None:
        """What must make room for one more connection of a node that has ``own``; None when the newcomer must not."""
        order = {node: (node not in self._members, len(all_of)) for node, all_of in self._by_node.items()}
        above = sorted((node for node in order if order[node] > (not is_member, own)), key=order.__getitem__)
        for node in reversed(above):
            idle = self._idle_of(node)
            if idle is not None:
                return idle
        if own:
            return self._idle_of(newcomer)
        return next(iter(self._by_node[above[-1]])) if above else None

    def _idle_of(self, node: NodeId) -> Connection | None:
        return next((one for one in self._by_node.get(node, ()) if one not in self._busy), None)
