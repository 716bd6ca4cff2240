"""Which new connections may wait until they have said who they are: a decision by address, without sockets.

What lives here: counting, and the choice of the connection that must make room. What does not: accepting and cutting
(the listeners). Pure.

A stranger needs no key to open connections, so they compete by address. Half of the places are for addresses of
members. When there is no room, the address that holds the most places gives up its oldest one: a member, and a stranger
who opens one connection, get in while others flood.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

from msgspec import Struct

PLACE_LEAST_S = 0.1  # the least time of a stranger's connection: a handshake's; bounds the rate of a flood, too

Connection = TypeVar("Connection", bound=Hashable)


class PendingLimits(Struct, frozen=True):
    """Connections that may wait at once: in all, and of one address. At least 1."""

    total: int
    per_address: int


class Admission(Struct, Generic[Connection], frozen=True):
    """The verdict on a new connection; ``evicted`` must be cut to make room for it."""

    is_admitted: bool
    evicted: Connection | None = None


class PendingConnections(Generic[Connection]):
    """The connections of one port that wait for their authentication. Not thread-safe.

    Times are monotonic seconds. ``turned_away`` counts refused and evicted connections.
    """

    def __init__(self) -> None:
        self.turned_away = 0
        self._address_of: dict[Connection, str] = {}
        self._began_of: dict[Connection, float] = {}  # the oldest first
        self._by_address: dict[str, dict[Connection, float]] = {}
        self._members: set[str] = set()

    def __len__(self) -> int:
        return len(self._address_of)

    def admit(
        self, connection: Connection, address: str, *, is_member: bool, limits: PendingLimits, now: float
    ) -> Admission[Connection]:
        """Take in a new connection from ``address``, which a member has when ``is_member``."""
        evicted = None
        greedy = self._greedy(address, is_member=is_member, limits=limits)
        if greedy is not None:
            self.turned_away += 1
            evicted, began = next(iter(self._by_address[greedy].items()))
            if greedy == address and now - began < PLACE_LEAST_S:
                return Admission(False)
            self.remove(evicted)
        (self._members.add if is_member else self._members.discard)(address)
        self._address_of[connection] = address
        self._began_of[connection] = now
        self._by_address.setdefault(address, {})[connection] = now
        return Admission(True, evicted)

    def remove(self, connection: Connection) -> None:
        """The connection is authenticated or has ended; without effect when it was evicted."""
        address = self._address_of.pop(connection, None)
        if address is None:
            return
        del self._began_of[connection]
        del self._by_address[address][connection]
        if not self._by_address[address]:
            del self._by_address[address]
            self._members.discard(address)

    def forget_older_than(self, began: float) -> None:
        """Forget those that came before this time."""
        while self._began_of:
            connection, at = next(iter(self._began_of.items()))  # the oldest
            if at >= began:
                return
            self.remove(connection)

    def is_crowded(self, limits: PendingLimits) -> bool:
        """Whether strangers use half of their places: each gets less time, then."""
        return self._strangers() >= max(1, limits.total // 4)

    def _greedy(self, address: str, *, is_member: bool, limits: PendingLimits) -> str | None:
        """The address that must give up a place for a new connection from ``address``; None while there is room."""
        if len(self._by_address.get(address, ())) >= limits.per_address:
            return address
        strangers = self._strangers()
        if (is_member or strangers < max(1, limits.total // 2)) and len(self) < limits.total:
            return None
        among_members = strangers == 0
        counts = {one: len(own) for one, own in self._by_address.items() if (one in self._members) == among_members}
        most = max(counts.values())
        return address if counts.get(address) == most else max(counts, key=counts.__getitem__)

    def _strangers(self) -> int:
        return sum(len(own) for address, own in self._by_address.items() if address not in self._members)
