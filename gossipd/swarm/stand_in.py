"""Whether this host reads storage though it is no source reader, because no source reader brings anything.

What lives here: the judgement, and the preference lists of a host that stands in. What does not: the choice of source
readers (``roles``), and what is read next (``source_read_planner``).

Seeds are elected for all deployments, and one of them may take no part in this one: its disk is full, it refuses the
key, its credentials do not reach this source, or it lies. Where this is so of all source readers, nobody would ever
read. So each host that could read counts for how long no chunk has newly left storage, and the hosts begin one after
the other, each after twice as long: few are too many where storage itself fails. Rejected: to elect others as soon as
progress records say that a seed takes no part, because a seed that lies says that it does.

A stand-in owns what nobody has begun to read. So does one that reads for hosts that want one part, in the lists of
others. A source reader that is heard to read comes before it in every list, and so does an earlier stand-in.
"""

from __future__ import annotations

from collections.abc import Collection
from math import inf

from gossipd.core.model import PeerView
from gossipd.swarm.class_roles import ClassRoles
from gossipd.swarm.peers import Peers
from gossipd.swarm.rendezvous import scores
from gossipd.swarm.roles import Roles
from gossipd.swarm.source_read_planner import SourceReadPlanner
from membership.member import NodeId

_RANKS_MAX = 20  # the next would begin after a month

Lines = tuple[tuple[NodeId, ...], ...]


def hosts_before(
    salt: bytes, own: PeerView, roles: Roles, peers: Peers, *, readers: Collection[NodeId], now: float
) -> float:  # fmt: skip
    """How many usable targets that can read storage, and are none of ``readers``, stand before this host in the
    rendezvous order of ``salt``; infinite where this host is no target."""
    if own.node not in roles.rack_of:
        return inf
    score = scores(own.node, salt, 1)
    able = [one.node for one in peers.members() if one.can_read_sources and one.node in roles.rack_of]
    return len(peers.usable([one for one in able if one not in readers and scores(one, salt, 1) > score], now))


class StandIn:
    """Of one deployment, since ``now``; once active it stays so."""

    def __init__(self, salt: bytes, now: float) -> None:
        self._salt = salt
        self._since = now
        self._least_absent = -1
        self._heard_to_read: frozenset[NodeId] = frozenset()
        self.is_active = False

    def begin_again(self, now: float) -> None:
        """Nobody looked for long, and so nobody counted: what was missing meanwhile is not known."""
        self._least_absent, self._since = -1, now

    def look(
        self, reader: SourceReadPlanner, own: PeerView, roles: ClassRoles, peers: Peers, *, is_held_back: bool,
        now: float,
    ) -> bool:  # fmt: skip
        """Judge; True when ``lines`` have changed. ``is_held_back``: source readers are not to read now."""
        if self.is_active:
            before, self._heard_to_read = self._heard_to_read, reader.heard_to_read()
            return before != self._heard_to_read
        absent = reader.present.count(0)
        if is_held_back or not absent or not 0 <= self._least_absent <= absent:
            self._least_absent, self._since = absent, now
        idle_s = now - self._since
        if own.can_read_sources and idle_s >= reader.idle_s(0, now) and not reader.is_in_each_line:
            lacking = roles.lacking(reader.present)
            ranks = [hosts_before(self._salt, own, one, peers, readers=one.readers, now=now) for one in lacking]
            rank = min(ranks, default=inf)
            self.is_active = rank <= _RANKS_MAX and idle_s >= reader.idle_s(int(rank), now)
        self._heard_to_read = reader.heard_to_read()
        return self.is_active

    def _score(self, node: NodeId) -> int:
        return scores(node, self._salt, 1)[0]

    def lines(self, lines: Lines, own: NodeId) -> Lines:
        """The preference lists of source readers, as this host uses them."""
        if not self.is_active:
            return lines
        elected = {node for line in lines for node in line}
        score, others = self._score(own), self._heard_to_read - elected - {own}
        earlier = tuple(sorted((one for one in others if self._score(one) > score), key=self._score, reverse=True))
        found = [tuple(one for one in line if one in self._heard_to_read or one == own) for line in lines]
        return tuple((*line, *earlier, *(() if own in line else (own,))) for line in found)
