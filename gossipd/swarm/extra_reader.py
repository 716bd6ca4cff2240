"""Whether this host reads storage beside the source readers, because its own link idles and storage may have more.

What lives here: the judgement. What does not: the choice of source readers (``roles``), hosts that read because no
source reader does (``stand_in``), and what is read next (``source_read_planner``).

Where the links of all source readers are slower than those of other hosts, storage is read at the pace of the slow
ones, all hosts hold the same, and none is seen to be quicker. Only a quick host knows: it takes in less than its link
has shown, and nothing waits for it. It is the same where storage is slow, so the host tries: it reads for some seconds
what the source readers reach late. If it takes in clearly more than before, it goes on, others are served by it, the
quick links are seen, and seeds with slow links give up their claims (``arrival_rates``). If not, storage gives no more,
and it stops and waits longer before it tries again. Hosts try one after the other, each later for every other that was
heard to try. Where a chunk takes long on this host's link, all these times are longer: a rate is a count of chunks, and
over few of them it is chance. Rejected: source readers that tell whether their links are full, because older daemons do
not tell it.
"""

from __future__ import annotations

from gossipd.core.model import PeerView
from gossipd.swarm.arrival_rates import LinkUse
from gossipd.swarm.peers import Peers
from gossipd.swarm.roles import Roles
from gossipd.swarm.source_read_planner import SourceReadPlanner
from gossipd.swarm.stand_in import hosts_before
from membership.member import NodeId

_QUICK_CHUNK_S = 0.1  # a chunk that takes longer on this host's link lengthens all times below in proportion
_IDLE_S = 1.0  # how long the link idles before the first host tries
_PLACE_S = 0.5  # each next host tries so much later: an announcement of reads takes less
_DOUBLINGS_MAX = 8  # of that time
_FAILURE_DOUBLINGS = 3  # after a try that brought nothing
_SETTLE_S = 1.0  # from the first read until what comes is counted
_COUNT_S, _COUNT_CHUNKS, _COUNT_S_MAX = 2.0, 20, 10.0  # a count lasts for both of the first two, or for the last
_START_S_MAX = 20.0  # a try whose first read does not end for so long has failed
_GAIN = 1.2  # what comes over what came before; chance gives less


class _Try:
    """One try: since when, and what came in. ``stretch``: by how much its times are longer."""

    def __init__(self, use: LinkUse, readers: tuple[NodeId, ...], stretch: float, now: float) -> None:
        self.readers = readers
        self._stretch = stretch
        self._rate_before = use.recent_rate
        self._since_s = now
        self._counted_from: tuple[float, int] | None = None
        self.is_useful = False

    def has_failed(self, read_count: int, held: int, now: float) -> bool:
        """``read_count``: the chunks that this host has read since it tries."""
        if self.is_useful:
            return False
        if not read_count:
            return now - self._since_s > _START_S_MAX * self._stretch
        if self._counted_from is None:
            self._counted_from = (now + _SETTLE_S * self._stretch, -1)
        from_s, held_then = self._counted_from
        if held_then < 0:
            if now >= from_s:
                self._counted_from = (now, held)
            return False
        count, span = held - held_then, now - from_s
        stretch = self._stretch
        if span < _COUNT_S_MAX * stretch and (span < _COUNT_S * stretch or count < _COUNT_CHUNKS):
            return False
        self.is_useful = count >= _GAIN * self._rate_before * span
        return not self.is_useful


class ExtraReader:
    """Of one deployment, since ``now``."""

    def __init__(self, salt: bytes, now: float) -> None:
        self._salt = salt
        self._since_s = now  # since when the link idles
        self._try: _Try | None = None
        self._failures = self._read_before = 0
        self._tried = 0  # hosts besides the source readers that were heard to read

    @property
    def is_active(self) -> bool:
        """Whether this host reads beside the source readers."""
        return self._try is not None

    def look(
        self, use: LinkUse, reader: SourceReadPlanner, own: PeerView, roles: Roles, peers: Peers, *,
        held: int, may_read: bool, chunk_time_s: float, now: float,
    ) -> bool:  # fmt: skip
        """Judge; True when ``lines`` have changed. ``held``: chunks held here. ``may_read``: source readers read now,
        and nothing keeps this host from it. ``chunk_time_s``: what a chunk takes on this host's link."""
        may_read = may_read and own.node not in roles.readers and own.can_read_sources and reader.can_read_extra
        if self._try is not None:
            if not may_read or self._try.readers != roles.readers:
                self._stop(now)
            elif reader.is_failing or self._try.has_failed(reader.read_count - self._read_before, held, now):
                self._failures += 1
                self._stop(now)
            return not self.is_active  # compiled, `self._try` would still be taken for what it was above
        before, self._tried = self._tried, len(reader.heard_to_read().difference(roles.readers, (own.node,)))
        if not may_read or not use.is_idle or not reader.is_being_read(now) or self._tried > before:
            self._since_s = now
        else:
            stretch = max(1.0, chunk_time_s / _QUICK_CHUNK_S)
            if now - self._since_s >= stretch * self._wait_s(own, roles, peers, now):
                self._try, self._read_before = _Try(use, roles.readers, stretch, now), reader.read_count
        return self.is_active

    def _stop(self, now: float) -> None:
        self._try, self._since_s = None, now

    def _wait_s(self, own: PeerView, roles: Roles, peers: Peers, now: float) -> float:
        doublings = min(_DOUBLINGS_MAX, self._tried + _FAILURE_DOUBLINGS * self._failures)
        return _IDLE_S * 2.0**doublings + _PLACE_S * hosts_before(
            self._salt, own, roles, peers, readers=roles.readers, now=now
        )

    def lines(self, lines: tuple[tuple[NodeId, ...], ...], own: NodeId) -> tuple[tuple[NodeId, ...], ...]:
        """The preference lists of source readers, as this host uses them."""
        return tuple(line if own in line else (*line, own) for line in lines) if self.is_active else lines
