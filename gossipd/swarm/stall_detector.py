"""Why no chunk has come for a while, as one reason for status.

What lives here: recent failures and the choice among reasons. Causes on this host come first, because a full disk also
makes peers look busy. A request that hangs comes before one that could not begin, because its chunk is asked of no
other peer meanwhile. Storage comes before holders, because a holder may be silent while it relays a read that hangs.

Where no peer holds anything, this host waits for its own read, however young. A read hangs when it is as old as the
stall, whether it has brought bytes or not, because slow storage is the cause too; but for a chunk of many small files,
each of which is progress. A fetch hangs when it has brought
nothing, or was cut for being slow; a holder that sends slowly is busy.

A holder that cannot be connected to, though it lives, counts as silent: it is left alone between two attempts, and what
it claims is forgotten meanwhile, so that storage or a lack of holders would be blamed.
"""

from __future__ import annotations

from collections.abc import Collection

from gossipd.core.events import FailReason, StallReason
from gossipd.core.ids import SOURCE, Origin
from gossipd.swarm.local_replica import Flight, LocalReplica
from membership.member import NodeId

_HOME = {FailReason.DISK: StallReason.DISK, FailReason.CORRUPT: StallReason.VERIFICATION}
_OF_FETCHES = {**_HOME, FailReason.SLOW: StallReason.HOLDER_SILENT}
_OF_READS = {**_HOME, FailReason.SLOW: StallReason.STORAGE, FailReason.SOURCE: StallReason.STORAGE}
# Stall times for which a failure explains a stall. With a full disk or a peer that hangs the next fetch fails within 2,
# because the bulk adapter cuts a silent transfer after ``stall_s`` too. Storage is asked again after 30 s at most
# (``source_read_planner``).
_RECENT_STALLS = 4
_STORAGE_RECENT_S = 30.0


class StallWatch:
    """Watches one deployment."""

    def __init__(self, stall_s: float) -> None:
        self._stall_s = stall_s
        self._last: dict[StallReason, float] = {}
        self._gone: dict[NodeId, float] = {}
        """The peers from which the last fetch ended without a connection, and when."""
        self._slow: dict[NodeId, float] = {}
        """The peers from which the last fetch was cut for silence, and when."""
        self.reported: StallReason | None = None
        self.named: NodeId | None = None
        """The silent peer that was reported with it."""
        self._told_s = 0.0  # when it was reported last

    def fetch_failed(self, peer: NodeId, reason: FailReason, now: float) -> None:
        """A fetch from a peer ended without a chunk."""
        if reason is FailReason.GONE:
            self._gone[peer] = now
        else:
            self._gone.pop(peer, None)
        if reason is FailReason.SLOW:
            self._slow[peer] = now
        else:
            self._slow.pop(peer, None)
        self._forget_old(now)
        if reason in _OF_FETCHES:
            self._last[_OF_FETCHES[reason]] = now

    def read_failed(self, reason: FailReason, now: float) -> None:
        """A read from storage ended without a chunk."""
        if reason in _OF_READS:
            self._last[_OF_READS[reason]] = now

    def cut(self, now: float) -> list[NodeId]:
        """The peers that were cut for silence lately."""
        self._forget_old(now)
        return list(self._slow)

    def delivered(self, peers: Collection[NodeId]) -> None:
        """These were cut for silence, and have delivered since: that explains nothing any longer."""
        for peer in peers:
            del self._slow[peer]
        if peers and not self._slow:
            self._last.pop(StallReason.HOLDER_SILENT, None)

    def gone(self, since_s: float) -> list[NodeId]:
        """The peers from which a fetch ended without a connection since then, and none in another way afterwards."""
        self._gone = {peer: at_s for peer, at_s in self._gone.items() if at_s >= since_s}
        return list(self._gone)

    def judge(
        self, replica: LocalReplica, *, now: float, alone: bool, holders: bool, readers: bool, unreached: bool = False
    ) -> StallReason | None:
        """The reason, or None while chunks come.

        Args:
            alone: no peer is usable though there should be some, or reading waits until the view has settled.
            holders: some peer holds a wanted chunk, or is being asked for one.
            readers: some host may read storage.
            unreached: some living peer had a wanted chunk, and cannot be connected to.
        """
        if now - max(replica.progress_s, replica.moved_s) < self._stall_s:
            return None
        for reason in (StallReason.DISK, StallReason.VERIFICATION):
            if self._was_lately(reason, _RECENT_STALLS * self._stall_s, now):
                return reason
        for reason in (StallReason.STORAGE, StallReason.HOLDER_SILENT):
            if reason in _hanging(replica, since_s=now - self._stall_s):
                return reason
        is_read = bool(replica.reads) or self._was_lately(StallReason.STORAGE, _STORAGE_RECENT_S, now)
        if holders or (unreached and not is_read):
            was_silent = self._was_lately(StallReason.HOLDER_SILENT, _RECENT_STALLS * self._stall_s, now)
            return StallReason.HOLDER_SILENT if was_silent or unreached else StallReason.ALL_BUSY
        if is_read or not readers:
            return StallReason.STORAGE
        return StallReason.MEMBERSHIP if alone else StallReason.NO_HOLDER

    def silent_peer(self, replica: LocalReplica, unreached: Collection[NodeId], now: float) -> NodeId | None:
        """Whom to name for ``HOLDER_SILENT``: the one that was named, while it is silent, else one that hangs, then one
        that was cut for silence, then one that cannot be connected to."""
        self._forget_old(now)
        hanging = [flight.supplier for flight in _hanging_flights(replica, since_s=now - self._stall_s)]
        peers = [supplier for supplier in hanging if not isinstance(supplier, Origin)]
        silent = peers or self._slow or unreached
        is_silent = self.named in peers or self.named in self._slow or self.named in unreached
        return self.named if is_silent else min(silent, default=None)

    def _forget_old(self, now: float) -> None:
        since_s = now - _RECENT_STALLS * self._stall_s
        self._slow = {peer: at_s for peer, at_s in self._slow.items() if at_s >= since_s}

    def is_news(self, reason: StallReason | None, peer: NodeId | None, now: float, *, reads: int) -> bool:
        """Note what is so now; whether it is worth a report. What reads wait for is reported again and again, because a
        limit of reads comes and goes, and their number too, without a word to the planner."""
        is_other = (reason, peer) != (self.reported, self.named)
        is_due = reason is StallReason.STORAGE and reads > 0 and now - self._told_s >= self._stall_s
        if is_other or is_due:
            self.reported, self.named, self._told_s = reason, peer, now
        return is_other or is_due

    def _was_lately(self, reason: StallReason, within_s: float, now: float) -> bool:
        return now - self._last.get(reason, -1e9) <= within_s


def _hanging(replica: LocalReplica, *, since_s: float) -> set[StallReason]:
    """The kinds of suppliers that have let a request hang since ``since_s`` or longer."""
    return {
        StallReason.STORAGE if flight.supplier is SOURCE else StallReason.HOLDER_SILENT
        for flight in _hanging_flights(replica, since_s=since_s)
    }


def _hanging_flights(replica: LocalReplica, *, since_s: float) -> list[Flight]:
    return [
        flight
        for flights in replica.flights.values()
        for flight in flights
        if max(flight.started_s, flight.moved_s) <= since_s and (flight.supplier is SOURCE or not flight.is_arriving)
    ]
