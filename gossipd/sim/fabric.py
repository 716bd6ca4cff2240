"""Links and flows: the rate that each flow gets, max-min fair.

What lives here: links (host up and down, rack up and down, external), flows over them, and their rates.

Rates are recomputed in full at most every quantum (a twentieth of a chunk time), by progressive filling: all flows grow
together until a link is full, its flows are fixed, the others grow on. A flow that would end before the next quantum is
slowed so that it ends just then, and the others get what it leaves; else half a quantum of every flow's rate would lie
idle. A flow that begins takes what is free on its own links. Where no flow began or ended since the last time, the
rates stay. Rejected: exact max-min at every change, because it costs some 50 times more for the same totals.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush

_ROUNDING = 1e-9  # of sums of some hundred rates


class FabricLink:
    """One direction of a port. Rates in bytes/s."""

    __slots__ = ("capacity", "flows", "free", "number", "open_count")

    def __init__(self, number: int, capacity: float) -> None:
        self.number = number
        self.capacity = capacity
        self.free = capacity
        self.flows: dict[Flow, None] = {}  # ordered, so that runs repeat exactly
        self.open_count = 0  # flows of the link whose rate this filling has not set

    def busy(self) -> float:
        """The part of the capacity that is in use, 0 to 1."""
        return 1.0 - max(0.0, self.free) / self.capacity if self.capacity else 1.0


class Flow:
    """Bytes under way over some links. When ``told_at`` bytes are left the owner is told, and may set another mark."""

    __slots__ = ("filling", "key", "length", "links", "moved_s", "rate", "remaining", "told_at")

    def __init__(
        self, key: object, links: tuple[FabricLink, ...], length: float, now: float, *, told_at: float = 0.0
    ) -> None:
        self.key = key
        self.links = links
        self.length = length
        self.remaining = length
        self.rate = 0.0
        self.moved_s = now
        self.told_at = told_at
        self.filling = 0  # number of the last filling that set the rate


class Fabric:
    """All links of a cluster."""

    def __init__(self) -> None:
        self._links: list[FabricLink] = []
        self.flows: dict[Flow, None] = {}
        self._has_changed = False
        self._filling = 0

    def add_link(self, capacity: float) -> FabricLink:
        """A new link."""
        link = FabricLink(len(self._links), capacity)
        self._links.append(link)
        return link

    def begin(self, flow: Flow) -> None:
        """A flow starts with what is free on its links."""
        self.flows[flow] = None
        self._has_changed = True
        rate = min(link.free for link in flow.links)
        flow.rate = max(0.0, rate)
        for link in flow.links:
            link.flows[flow] = None
            link.free -= flow.rate

    def end(self, flow: Flow) -> None:
        """A flow is over, whether all of it has moved or not."""
        self.flows.pop(flow, None)
        self._has_changed = True
        for link in flow.links:
            link.flows.pop(flow, None)
            link.free += flow.rate

    def recompute(self, now: float, until: float) -> tuple[list[tuple[float, Flow]], list[Flow]]:
        """Set all rates afresh if they may differ.

        Returns: the flows that end before ``until``, with the time; and those that pass ``told_at`` before it."""
        if self._has_changed:
            self._has_changed = False
            self._fill(now, until)
        ending: list[tuple[float, Flow]] = []
        told: list[Flow] = []
        for flow in self.flows:
            moves = flow.rate * (until - flow.moved_s) * (1 + _ROUNDING)
            if flow.remaining - moves <= flow.told_at:
                if flow.remaining <= moves:
                    ending.append((min(until, max(now, flow.moved_s + flow.remaining / flow.rate)), flow))
                else:
                    flow.told_at = 0.0
                    told.append(flow)
        return ending, told

    def _fill(self, now: float, until: float) -> None:
        """Max-min fair rates by progressive filling. A flow with a fixed rate bears the number of this filling."""
        self._filling += 1
        filling, links, quantum = self._filling, self._links, until - now
        for link in links:
            link.free = link.capacity
            link.open_count = len(link.flows)
        for flow in self.flows:
            left = flow.remaining = flow.remaining - flow.rate * (now - flow.moved_s)
            flow.moved_s = now
            if left <= flow.rate * quantum:
                self._end_later(flow, quantum)
        heap = [(link.free / link.open_count, link.number) for link in links if link.open_count]
        heapify(heap)
        while heap:
            share, number = heappop(heap)
            link = links[number]
            if not link.open_count:
                continue
            fair = link.free / link.open_count
            if fair > share * (1 + _ROUNDING):
                heappush(heap, (fair, number))
                continue
            for flow in link.flows:
                if flow.filling != filling:
                    flow.filling = filling
                    flow.rate = fair
                    for other in flow.links:
                        other.free -= fair
                        other.open_count -= 1

    def _end_later(self, flow: Flow, quantum: float) -> None:
        """Slow a flow down so that it ends with the quantum; not where no other flow is there to use the rest."""
        if all(len(link.flows) == 1 for link in flow.links):
            return
        flow.filling = self._filling
        flow.rate = flow.remaining / quantum
        for link in flow.links:
            link.free -= flow.rate
            link.open_count -= 1
