"""Whose news of one deployment this host has asked for.

What lives here: which neighbours were asked and have answered, and when to ask again. What does not: who the
neighbours are (``roles``), what they said (``availability``).

A neighbour is asked when it becomes one, when it comes back, when it asks us a second time (it has restarted and lost
its subscribers), and when it has said nothing for ``silence_s`` though it does not hold everything; then after twice
as long each time, up to 40 s, until it says something new: where storage is slow or down nobody has anything to say
(10,000 hosts, 12 chunks every 24 s, simulated: to hear the answers was three tenths of all work, a tenth since). A
neighbour that has not opened the deployment yet remembers the question and answers then. The control hand asks again
by itself after a gap in a peer's numbering; the answer replaces what was known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from gossipd.swarm.settings import PlannerSettings
from membership.member import NodeId

_AGAIN_S = 1.0  # a second question within this of ours is an ordinary mutual greeting, not a restart
_SILENCE_S_MAX = 40.0  # lost news are rare: links say so when they break
_SILENT_CHUNK_TIMES = 4.0  # slots are shared by some, so that a chunk comes every few of them


class Subscriptions:
    """Neighbours asked for their holdings."""

    def __init__(self, settings: PlannerSettings) -> None:
        self._settings = settings
        self._asked_s: dict[NodeId, float] = {}
        self.heard_s: dict[NodeId, float] = {}
        self._greeted: set[NodeId] = set()
        self._silence_s: dict[NodeId, float] = {}  # of those asked because of their silence: how long to wait now

    def __contains__(self, node: NodeId) -> bool:
        return node in self._asked_s

    def heard(self, node: NodeId, now: float, *, is_news: bool = True) -> None:
        """Holdings or a delta came; ``is_news`` unless they are what was known."""
        self.heard_s[node] = now
        if is_news:
            self._silence_s.pop(node, None)

    def greeted(self, node: NodeId, now: float) -> None:
        """It asked for our news; the second time means that it has forgotten that we asked for its."""
        if node in self._greeted and now - self._asked_s.get(node, now) > _AGAIN_S:
            self._asked_s.pop(node, None)
            self._silence_s.pop(node, None)
        self._greeted.add(node)

    def forget(self, node: NodeId) -> None:
        """It is gone; if it comes back it is asked again."""
        self._asked_s.pop(node, None)
        self.heard_s.pop(node, None)
        self._silence_s.pop(node, None)
        self._greeted.discard(node)

    def refresh(
        self,
        neighbours: Iterable[NodeId],
        is_usable: Callable[[NodeId], bool],
        is_full: Callable[[NodeId], bool],
        now: float,
        *,
        chunk_time_s: float = 0.0,
    ) -> tuple[list[NodeId], list[NodeId]]:
        """Whom to ask now, and whom to tell that we listen no more.

        Args:
            chunk_time_s: where a chunk takes seconds a neighbour that is well has no news for several of them.
        """
        silence_s = max(self._settings.silence_s, _SILENT_CHUNK_TIMES * chunk_time_s)
        wanted = {node for node in neighbours if is_usable(node)}
        ask = []
        for node in wanted:
            asked = self._asked_s.get(node)
            last = max(asked or 0.0, self.heard_s.get(node, 0.0))
            wait_s = max(silence_s, self._silence_s.get(node, 0.0))
            if asked is None or (now - last > wait_s and not is_full(node)):
                if asked is not None:
                    self._silence_s[node] = min(2 * wait_s, _SILENCE_S_MAX)
                self._asked_s[node] = now
                ask.append(node)
        drop = [node for node in self._asked_s if node not in wanted]
        for known in (self._asked_s, self.heard_s, self._silence_s):
            for node in known.keys() - wanted:
                del known[node]
        return sorted(ask), sorted(drop)
