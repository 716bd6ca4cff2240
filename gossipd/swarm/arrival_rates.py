"""Which hosts take in chunks much more slowly than others, because their links are slower.

What lives here, for one deployment: the chunks per second that each host has shown, this host among them, and the
verdict. What does not: the consequences (``roles``, ``deployment_swarm``), and hosts that are far behind in what they
hold (``slow_hosts``).

What a host holds says little about its link while quicker hosts wait for it, because they hold hardly more; the best
rate that it has shown says more. It is compared with the rate that a quarter of the hosts exceed: fewer liars cannot
raise it. On busy machines the rates of equal hosts differ by up to half at first; so the first windows show only a
host that is far behind. Rejected: hosts that tell the rates of their links, because what they announce shows them.
"""

from __future__ import annotations

from msgspec import Struct

from membership.member import NodeId

_WINDOW_S = 1.0  # announcements come in batches
_WINDOW_CHUNKS = 20  # how they fall into windows changes a rate by a tenth; of fewer, equal hosts seem unequal
_FEW_CHUNKS = 10  # show a rate that is far from that of others, before a window has ended
_DECAY = 0.99  # of the highest rate, per window
_FAR_BEHIND_SHARE, _BEHIND_SHARE, _LEVEL_SHARE = 0.4, 0.7, 0.8
# Of the quick rate: below it a host is behind that has shown so many windows, the last one for all further windows.
_BEHIND_SHARES = (_FAR_BEHIND_SHARE, _FAR_BEHIND_SHARE, 0.5, 0.6, _BEHIND_SHARE)
_USEFUL_SHARE = 0.3  # of the quick rate: an idle uplink of this rate is quicker than a quick host's that three share
_RECENT_SMOOTH = 0.25  # weight of the newest window
_FILLED_SHARE = 0.9  # of the highest rate, which lies a little above the mean of a full link
_READY_LEAST = 8.0  # chunks that wait for this host's link, smoothed; with fewer the link waits for others
_READY_SMOOTH = 0.25
_LACKING_LEAST = 32  # chunks; with fewer hosts at half the rate need more than 1.1 of what their links need
_IDLE_SHARE = 0.8  # of what the link has shown: with more it is as good as full


class LinkUse(Struct, frozen=True):
    """What this host's link does. ``recent_rate`` and ``shown_rate``: chunks/s of late, and the most that it has shown;
    0 while unknown. ``is_waiting``: few chunks may be asked for that have not been."""

    recent_rate: float
    shown_rate: float
    is_waiting: bool

    @property
    def is_idle(self) -> bool:
        """Whether more could come in."""
        return self.is_waiting and 0.0 < self.recent_rate < _IDLE_SHARE * self.shown_rate


class _Meter:
    """The highest rate of chunks over short windows, and that of late."""

    __slots__ = ("_chunks", "_since_s", "early_rate", "rate", "recent_rate", "windows")

    def __init__(self, now: float) -> None:
        self._since_s = now
        self._chunks = self.windows = 0  # ``windows``: those that have ended
        self.rate = self.recent_rate = 0.0  # chunks/s; 0 while unknown
        self.early_rate = 0.0  # that of a window which has not ended; 0 while none had enough chunks

    def add(self, chunks: int, now: float) -> bool:
        """Whether the rate may be another now."""
        self._chunks += chunks
        span = now - self._since_s
        if span < _WINDOW_S or self._chunks < _FEW_CHUNKS:
            return False
        rate = self._chunks / span
        if self._chunks < _WINDOW_CHUNKS:
            self.early_rate = rate
            return not self.rate
        self.rate = max(self.rate * _DECAY, rate)
        self.recent_rate += (rate - self.recent_rate) * _RECENT_SMOOTH if self.recent_rate else rate
        self._since_s, self._chunks, self.windows = now, 0, self.windows + 1
        return True

    @property
    def behind_share(self) -> float:
        """Below this share of the quick rate the host is behind."""
        return _BEHIND_SHARES[min(self.windows, len(_BEHIND_SHARES) - 1)]


class ArrivalRates:
    """The rates as one host sees them."""

    def __init__(self, own: NodeId) -> None:
        self._own = own
        self._meters: dict[NodeId, _Meter] = {}
        self._ready = 0.0
        self._has_news, self._counts_own = False, False
        self.known: frozenset[NodeId] = frozenset()
        """Hosts whose rate is known, this one perhaps among them; as of the last ``look``."""
        self.behind: frozenset[NodeId] = frozenset()
        """Those of them that are much slower than others."""
        self.useful: frozenset[NodeId] = frozenset()
        """Those behind whose uplinks are worth asking while quick ones are busy."""
        self.alike: frozenset[NodeId] = frozenset()
        """Where this host is much slower than others: the hosts that are, too, but not much slower than this one."""

    @property
    def is_own_behind(self) -> bool:
        """Whether this host is much slower than others."""
        return self._own in self.behind

    @property
    def is_own_filled(self) -> bool:
        """Whether this host takes in of late nearly as much as its link has shown that it can."""
        own = self._meters.get(self._own)
        return own is not None and own.recent_rate >= _FILLED_SHARE * own.rate

    def lacks_uplinks(self, ready: int) -> bool:
        """Whether this quick host waits for the uplinks of its rack, because some of them are slow. ``ready``: chunks
        that it may ask its rack peers for."""
        return bool(self.behind) and not self.is_own_behind and ready >= _LACKING_LEAST

    def link_use(self, shown_rate: float) -> LinkUse:
        """What this host's link does of late. ``shown_rate``: see LinkUse."""
        own = self._meters.get(self._own)
        return LinkUse(own.recent_rate if own is not None else 0.0, shown_rate, self._ready < _READY_LEAST * 0.75)

    def stored(self, now: float) -> None:
        """This host has received a chunk."""
        self.heard(self._own, 1, now)

    def heard(self, node: NodeId, chunks: int, now: float) -> None:
        """A host has so many chunks more than when it was heard before."""
        meter = self._meters.get(node)
        if meter is None:
            self._meters[node] = _Meter(now)  # nobody knows since when these have come
        else:
            self._has_news |= meter.add(chunks, now)

    def forget(self, node: NodeId) -> None:
        """A host is out of reach: its next message may tell of a long time."""
        self._has_news |= self._meters.pop(node, None) is not None
        self.behind -= {node}
        self.useful -= {node}
        self.alike -= {node}

    def look(self, ready: int) -> frozenset[NodeId]:
        """Judge all hosts whose rate is known. ``ready``: chunks that this host may ask for and has not: where they are
        few, its link waits for others, and its own rate says nothing."""
        self._ready += (ready - self._ready) * _READY_SMOOTH
        counts_own = self._ready >= _READY_LEAST
        if not self._has_news and counts_own is self._counts_own:
            return self.behind  # the same rates lead to the same verdicts
        self._has_news, self._counts_own = False, counts_own
        meters = self._meters.items()
        rates = {node: meter.rate for node, meter in meters if meter.rate}
        quick = sorted(rates.values())[len(rates) * 3 // 4] if rates else 0.0
        few = {node: meter.early_rate for node, meter in meters if not meter.rate and meter.early_rate}
        rates.update((node, rate) for node, rate in few.items() if rate < _FAR_BEHIND_SHARE * quick)
        if not counts_own:
            rates.pop(self._own, None)
        before = self.behind
        self.known = frozenset(rates)
        shares = {node: _LEVEL_SHARE if node in before else self._meters[node].behind_share for node in rates}
        self.behind = frozenset(node for node, rate in rates.items() if rate < quick * shares[node])
        self.useful = frozenset(node for node in self.behind if rates[node] >= _USEFUL_SHARE * quick)
        own = rates[self._own] if self._own in self.behind else 0.0
        alike = [node for node in self.behind if rates[node] >= _BEHIND_SHARE * own and node != self._own]
        self.alike = frozenset(alike) if own else frozenset()
        return self.behind
