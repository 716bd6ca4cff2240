"""Links and flows: who gets how much of what, max-min fair.

What lives here: ports (host up and down, rack up and down, external), flows over them, and their rates. What does not:
why a flow exists.

Rates are recomputed in full at most every quantum (a twentieth of a chunk time), by progressive filling: all flows
grow together until a link is full, its flows are fixed, the others grow on. In between, a flow that ends gives its
rate back to its links and a flow that begins takes what is left on its own, so that no capacity lies idle for a
quantum. Exact max-min at every change would cost some 50 times more at 1,000 hosts for the same totals. Where nothing
began or ended since the last time (storage that needs a hundred quanta for a chunk) the rates are what they were.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush


class Flow:
    """Bytes under way over some links."""

    __slots__ = ("filling", "key", "links", "moved_s", "rate", "remaining")

    def __init__(self, key: object, links: tuple[int, ...], length: float, now: float) -> None:
        self.key = key
        self.links = links
        self.remaining = length
        self.rate = 0.0
        self.moved_s = now
        self.filling = 0  # the last one that set the rate


class Fabric:
    """All links of a cluster. Capacities in bytes/s; a link is an index."""

    def __init__(self) -> None:
        self.capacity: list[float] = []
        self.free: list[float] = []
        self._flows: list[dict[Flow, None]] = []  # ordered, so that runs repeat exactly
        self.flows: dict[Flow, None] = {}
        self._has_changed = False
        self._filling = 0

    def add_link(self, capacity: float) -> int:
        """A new link; returns its index."""
        self.capacity.append(capacity)
        self.free.append(capacity)
        self._flows.append({})
        return len(self.capacity) - 1

    def begin(self, flow: Flow) -> None:
        """A flow starts with what is free on its links."""
        self.flows[flow] = None
        self._has_changed = True
        rate = min(self.free[link] for link in flow.links)
        flow.rate = max(0.0, rate)
        for link in flow.links:
            self._flows[link][flow] = None
            self.free[link] -= flow.rate

    def end(self, flow: Flow) -> None:
        """A flow is over, whether or not all of it has moved."""
        self.flows.pop(flow, None)
        self._has_changed = True
        for link in flow.links:
            self._flows[link].pop(flow, None)
            self.free[link] += flow.rate

    def busy(self, link: int) -> float:
        """How much of a link is in use, 0 to 1."""
        capacity = self.capacity[link]
        return 1.0 - max(0.0, self.free[link]) / capacity if capacity else 1.0

    def recompute(self, now: float, until: float) -> list[tuple[float, Flow]]:
        """Set all rates afresh if they may differ; returns the flows that end before ``until``, with the time."""
        if self._has_changed:
            self._has_changed = False
            self._fill(now)
        return [
            (max(now, flow.moved_s + flow.remaining / flow.rate), flow)
            for flow in self.flows
            if flow.remaining <= flow.rate * (until - flow.moved_s)
        ]

    def _fill(self, now: float) -> None:
        """Max-min fair rates by progressive filling. A flow whose rate is fixed bears the number of this filling.

        What is left of the links is free. One pass over the flows: it moves their bytes up to now as well.
        """
        flows_of = self._flows
        self._filling += 1
        filling = self._filling
        left = list(self.capacity)
        open_count = [len(flows) for flows in flows_of]
        heap = [(left[link] / count, link) for link, count in enumerate(open_count) if count]
        heapify(heap)
        while heap:
            share, link = heappop(heap)
            count = open_count[link]
            if not count:
                continue
            fair = left[link] / count
            if fair > share * (1 + 1e-9):
                heappush(heap, (fair, link))
                continue
            for flow in flows_of[link]:
                if flow.filling != filling:
                    flow.filling = filling
                    flow.remaining -= flow.rate * (now - flow.moved_s)
                    flow.moved_s = now
                    flow.rate = fair
                    for other in flow.links:
                        left[other] -= fair
                        open_count[other] -= 1
        self.free = left
