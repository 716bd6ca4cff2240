"""The neighbours of one deployment that this host wants to hear, and those of them that are silent for too long.

What lives here: which neighbours were asked and have answered, and what their silence means. What does not: which hosts
are neighbours (``roles``), what they said (``availability``), and whether a question arrives: the sessions repeat it
until it is answered, and ask again after a gap or a lost connection.

A neighbour is asked when it becomes one, when it comes back, when this host is to take over its reads, and when it
subscribes here a second time (it may have lost its subscribers). It is asked again when it has been silent for
``silence_s`` since its answer though it does not hold everything; where chunks come slowly, for as long as a few of
them take here. After that it is asked after twice as long each time, until it says something new, because no host has
anything to say while storage is slow. One that is no neighbour any more is told so, though it was to be asked again or
is out of reach: the sessions would keep a connection for its deltas for as long as the deployment is open.

Rejected: one silence everywhere, because hosts that share a machine asked each other more often than they told news.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Set

from gossipd.swarm.announcements import FEW_CHUNKS, FEW_WAITS
from gossipd.swarm.settings import PlannerSettings
from membership.member import NodeId

_AGAIN_S = 1.0  # a second subscription within this time of ours is an ordinary mutual greeting, not a restart
_SILENCE_S_MAX = 40.0  # lost deltas are rare: a broken connection is noticed
_SILENT_CHUNK_TIMES = 4.0  # some hosts share the slots, so a chunk comes every few chunk times
_SPARE_CHUNKS, _SPARE_WAITS = 2, 1  # chunks, and waits, beyond those after which a neighbour tells even a few chunks


class NeighbourSubscriptions:
    """Neighbours that were asked for their holdings."""

    def __init__(self, settings: PlannerSettings) -> None:
        self._planner_settings = settings
        self.asked_s: dict[NodeId, float] = {}  # when each neighbour to which this host listens was asked last
        self.heard_s: dict[NodeId, float] = {}
        self._unended: set[NodeId] = set()  # not in ``asked_s`` (any more), while the sessions listen to them still
        self._greeted: set[NodeId] = set()
        self._renewed: set[NodeId] = set()  # asked a second time, and they have not answered with the same
        self._silence_s: dict[NodeId, float] = {}  # of neighbours asked because of their silence: how long to wait now
        self._settled: set[NodeId] | None = None
        """The neighbours as of the last look, if all of them are asked and nobody else is known; None if that may have
        changed."""
        self._oldest_s = -math.inf  # each of them was heard at this time or later, or not yet

    def __contains__(self, node: NodeId) -> bool:
        return node in self.asked_s

    @property
    def are_ended(self) -> bool:
        """Whether this host listens to nobody, and has told them so."""
        return not self.asked_s and not self._unended

    def heard(self, node: NodeId, now: float, *, is_news: bool = True) -> None:
        """Holdings or a delta came; ``is_news`` unless the holdings are what was known."""
        self.heard_s[node] = now
        if node not in self.asked_s:
            self._settled = None
        if is_news:
            self._silence_s.pop(node, None)

    def greeted(self, node: NodeId, now: float) -> None:
        """A peer has subscribed here. A second time means that it has forgotten our subscription, unless it takes ours
        for that: two busy hosts would ask each other for ever."""
        if node in self._renewed:
            self._renewed.discard(node)
        elif node in self._greeted and now - self.asked_s.get(node, now) > _AGAIN_S:
            self._ask_again(node)
        self._greeted.add(node)

    def forget(self, node: NodeId) -> None:
        """The peer is gone; it is asked again if it comes back."""
        self._ask_again(node)
        self.heard_s.pop(node, None)
        self._greeted.discard(node)
        self._renewed.discard(node)

    def renew(self, node: NodeId) -> None:
        """Subscribe to a neighbour a second time, so that it says what it holds and reads."""
        self._ask_again(node)
        self._renewed.add(node)

    def _ask_again(self, node: NodeId) -> None:
        if self.asked_s.pop(node, None) is not None:
            self._unended.add(node)
        self._silence_s.pop(node, None)
        self._settled = None

    def refresh(
        self,
        neighbours: Set[NodeId],
        wanted: set[NodeId],
        is_full: Callable[[NodeId], bool],
        now: float,
        *,
        chunk_time_s: float = 0.0,
        mean_chunk_s: float = 0.0,
    ) -> tuple[list[NodeId], list[NodeId]]:
        """The peers to ask now, and the peers to which this host listens no longer. ``wanted``: the usable neighbours.
        ``chunk_time_s``: where a chunk takes seconds, a healthy neighbour has nothing to say for several of them.
        ``mean_chunk_s``: how long chunks took of late, whatever the reason."""
        settings = self._planner_settings
        few_s = (FEW_CHUNKS + _SPARE_CHUNKS) * max(chunk_time_s, mean_chunk_s)
        few_s = min(few_s, (FEW_WAITS + _SPARE_WAITS) * settings.news_lazy_s)
        silence_s = max(settings.silence_s, _SILENT_CHUNK_TIMES * chunk_time_s, few_s)
        if wanted == self._settled and self._oldest_s >= now - silence_s and self._unended <= neighbours:
            return [], []
        asked_s, heard_s, ask = self.asked_s, self.heard_s, []
        for node in wanted:
            if node not in asked_s:
                ask.append(node)
            elif heard_s.get(node, now) < now - silence_s and heard_s[node] >= asked_s[node]:
                wait_s = max(silence_s, self._silence_s.get(node, 0.0))
                if now - heard_s.get(node, asked_s[node]) > wait_s and not is_full(node):
                    self._silence_s[node] = min(2 * wait_s, _SILENCE_S_MAX)
                    ask.append(node)
        asked_s.update(dict.fromkeys(ask, now))
        drop = (asked_s.keys() - wanted) | (self._unended - neighbours)
        self._unended -= wanted | drop
        for known in (asked_s, heard_s, self._silence_s):
            for node in known.keys() - wanted:
                del known[node]
        self._renewed &= wanted
        self._settled, self._oldest_s = wanted, min([now, *heard_s.values()])
        return sorted(ask), sorted(drop)
