"""How long things may take in one deployment, and how many at once, by what this host's link and the peers have shown.

What lives here: the time of a chunk, pauses, waits, timeouts, and the bounds of the window of fetches. What does not:
the measuring (``bandwidth_meter``, ``peers``), and what is done in that time.
"""

from __future__ import annotations

import math

from gossipd.core.model import Shape
from gossipd.swarm.arrival_rates import ArrivalRates
from gossipd.swarm.bandwidth_meter import BandwidthMeter
from gossipd.swarm.local_replica import LocalReplica
from gossipd.swarm.peers import Peers
from gossipd.swarm.settings import PlannerSettings

_CHUNK_TIME_FALLBACK_S = 0.05
_FETCH_CHUNK_TIMES = 8.0  # what a fetch takes beside as many others, until one has ended
_TIMEOUT_USUALS = 20  # of the usual duration of a fetch; a slow peer's chunk is hedged long before
_SILENT_S_MIN, _SILENT_USUALS = 1.0, 2.0  # a relay is silent while what it relays has not begun to come
# Beside ``window_min``; simulated: with fewer hosts at half the rate need more than 1.1 of what their links need.
_BEHIND_FILLED, _BEHIND_UNFILLED = -1, 3
# How long news waits, in chunk times at most, and after how many chunks from either end it is one chunk time.
_BATCH_CHUNKS_MAX, _BATCH_RAMP = 4.0, 24
_BATCH_S_MAX = 0.16  # simulated: with 0.2 quick hosts beside slow ones end 2 % later
_UNCERTAIN_SHARE = 0.25
_TICK_S_MIN = 0.25  # roles, hedges, stalls and subscriptions are looked at this often,
_TICK_S_MAX = 0.5  # or twice per chunk time where chunks take long; a stall is due after 3 s


class LinkTimes:
    """Of one deployment; ``measure`` is called before each plan."""

    def __init__(self, settings: PlannerSettings, shape: Shape, link: BandwidthMeter, peers: Peers) -> None:
        self._planner_settings = settings
        self._shape = shape
        self._link = link
        self._peers = peers
        self._link_version = -1
        self.chunk_time_s = _CHUNK_TIME_FALLBACK_S  # seconds that a chunk takes on this host's link
        # How long to leave busy and silent peers alone: what a chunk takes, or the time that the first chunks have been
        # under way. Announcements do not wait for that: after a slow start others would read the same chunks.
        self.pause_s = _CHUNK_TIME_FALLBACK_S
        self.late_wait_s = 0.0  # how long to leave a chunk to hosts of a lower rank
        self.is_level = True  # no other host is known to be slower
        self._batch_s = settings.batch_s_min  # how long urgent announcements wait at least
        in_memory = settings.pool_bytes // shape.chunk_bytes_mean + settings.fetches_unleased
        self._fetches_max = min(settings.fetches_max, max(settings.fetches_min, in_memory))
        self._flows = min(self._fetches_max, settings.flows(shape.chunk_count))
        self.window_min = self.window_max = self._flows
        self.tick_interval_s = _TICK_S_MIN
        self.measure()

    def measure(self) -> None:
        """Take over what the link and the peers have shown since the last plan."""
        if self._link.version != self._link_version:
            self._link_version = self._link.version
            self.chunk_time_s = self._link.chunk_time_s(self._shape.chunk_bytes_mean, _CHUNK_TIME_FALLBACK_S)
            self.pause_s = max(self.chunk_time_s, self._link.waited_s)
            self.tick_interval_s = min(_TICK_S_MAX, max(_TICK_S_MIN, self.chunk_time_s / 2))
            settings = self._planner_settings
            self._batch_s = max(settings.batch_s_min, settings.batch_chunk_share * self.chunk_time_s)
            least = self._flows + int(settings.handling_s / self.chunk_time_s)
            most = least + settings.fetches_slack + math.ceil(settings.pipeline_s / self.chunk_time_s)
            self.window_min, self.window_max = min(self._fetches_max, least), min(self._fetches_max, most)
        usual_s = self._peers.usual_s or _FETCH_CHUNK_TIMES * self.chunk_time_s
        self.late_wait_s = self._planner_settings.late_wait * usual_s

    def batch_s(self, replica: LocalReplica) -> float:
        """How long urgent announcements wait for more. Near the beginning and the end others wait for each; in between
        they have other chunks to ask for, unless quick hosts wait for slow ones. Rejected: one time throughout, because
        it costs three to four times itself at the end."""
        if not self.is_level:
            return self._batch_s
        share = min(_BATCH_CHUNKS_MAX, min(replica.held_count, replica.missing_count) / _BATCH_RAMP)
        return max(self._batch_s, min(_BATCH_S_MAX, share * self.chunk_time_s))

    def shown_rate(self) -> float:
        """The most that this host's link has shown, in chunks/s; 0 while unknown."""
        return self._link.rate / self._shape.chunk_bytes_mean

    def window(self, backlog: int) -> int:
        """How many fetches keep the link busy while so many chunks may be asked for."""
        return min(self.window_max, self.window_min + int(backlog * self._planner_settings.backlog_share))

    def window_behind(self, rates: ArrivalRates, replica: LocalReplica) -> int:
        """How many fetches a host has at once whose link is slower than others'. More than fill the link take uplinks
        from quicker hosts only; where its suppliers are busy, its link is filled by more. In the first quarter of the
        model a quick host may still be taken for a slow one. Rejected: always few, because a host with one supplier in
        its rack then needs far longer than its link does."""
        is_few = rates.is_own_filled and replica.held_count >= _UNCERTAIN_SHARE * self._shape.chunk_count
        return max(1, self.window_min + (_BEHIND_FILLED if is_few else _BEHIND_UNFILLED))

    @property
    def silent_s(self) -> float:
        """How long a fetch may bring nothing until it is taken not to use the link."""
        return max(_SILENT_S_MIN, _SILENT_USUALS * (self._peers.usual_s or _FETCH_CHUNK_TIMES * self.chunk_time_s))

    def fetch_timeout_s(self) -> float:
        """How long a fetch that begins now may take."""
        first_s = self._shape.chunk_bytes / self._planner_settings.fetch_rate_min
        return max(self._planner_settings.fetch_timeout_s_min, _TIMEOUT_USUALS * self._peers.usual_s or first_s)
