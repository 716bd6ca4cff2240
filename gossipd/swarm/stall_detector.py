"""Why no chunk has come for a while, in one word for status.

What lives here: recent failures and the choice among reasons. Causes at home come before causes abroad: a full disk
also makes peers look busy. What was begun and hangs comes before what could not be begun: its chunk is asked of nobody
else meanwhile, and who lets it hang has not said that he is busy. Storage comes before holders, who may be silent
because they relay a read that hangs.

A read of our own, however young, is what we wait for where nobody holds anything. It hangs when it is as old as the
stall, whether it has brought bytes or not: storage that drips holds us up as well. A fetch hangs when it has brought
nothing, or was cut for being slow; a holder that sends, but slowly, is busy.
"""

from __future__ import annotations

from gossipd.core.events import FailReason, StallReason
from gossipd.core.ids import SOURCE
from gossipd.swarm.local_replica import LocalReplica

_HOME = {FailReason.DISK: StallReason.DISK, FailReason.CORRUPT: StallReason.VERIFICATION}
_OF_FETCHES = {**_HOME, FailReason.SLOW: StallReason.HOLDER_SILENT}
_OF_READS = {**_HOME, FailReason.SLOW: StallReason.STORAGE, FailReason.SOURCE: StallReason.STORAGE}
# For how many stall times a failure explains one. With a full disk or a peer that hangs the next fetch fails within 2:
# the bulk hand cuts a silent transfer after ``stall_s`` too. Storage is asked again after 30 s at most
# (``source_read_planner``).
_RECENT_STALLS = 4
_STORAGE_RECENT_S = 30.0


class StallWatch:
    """Watches one deployment."""

    def __init__(self, stall_s: float) -> None:
        self._stall_s = stall_s
        self._last: dict[StallReason, float] = {}
        self.reported: StallReason | None = None

    def fetch_failed(self, reason: FailReason, now: float) -> None:
        """A fetch from a peer ended without a chunk."""
        if reason in _OF_FETCHES:
            self._last[_OF_FETCHES[reason]] = now

    def read_failed(self, reason: FailReason, now: float) -> None:
        """A read from storage ended without a chunk."""
        if reason in _OF_READS:
            self._last[_OF_READS[reason]] = now

    def judge(
        self, replica: LocalReplica, *, now: float, alone: bool, holders: bool, readers: bool
    ) -> StallReason | None:
        """The reason, or None while chunks come.

        Args:
            alone: no peer is usable though there should be some, or reading waits for the view to settle.
            holders: some peer holds something that we want, or is being asked for it.
            readers: somebody may read storage.
        """
        if now - replica.progress_s < self._stall_s:
            return None
        for reason in (StallReason.DISK, StallReason.VERIFICATION):
            if self._was_lately(reason, _RECENT_STALLS * self._stall_s, now):
                return reason
        for reason in (StallReason.STORAGE, StallReason.HOLDER_SILENT):
            if reason in _hanging(replica, since_s=now - self._stall_s):
                return reason
        if holders:
            was_silent = self._was_lately(StallReason.HOLDER_SILENT, _RECENT_STALLS * self._stall_s, now)
            return StallReason.HOLDER_SILENT if was_silent else StallReason.ALL_BUSY
        if replica.reads or self._was_lately(StallReason.STORAGE, _STORAGE_RECENT_S, now) or not readers:
            return StallReason.STORAGE
        return StallReason.MEMBERSHIP if alone else StallReason.NO_HOLDER

    def _was_lately(self, reason: StallReason, within_s: float, now: float) -> bool:
        return now - self._last.get(reason, -1e9) <= within_s


def _hanging(replica: LocalReplica, *, since_s: float) -> set[StallReason]:
    """Whom we have waited for since ``since_s`` or longer."""
    return {
        StallReason.STORAGE if flight.supplier is SOURCE else StallReason.HOLDER_SILENT
        for flights in replica.flights.values()
        for flight in flights
        if flight.started_s <= since_s and (flight.supplier is SOURCE or not flight.is_arriving)
    }
