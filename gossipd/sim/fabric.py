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


class Link:
    """One direction of a port. Rates in bytes/s."""

    __slots__ = ("capacity", "flows", "free", "number", "open_count")

    def __init__(self, number: int, capacity: float) -> None:
        self.number = number
        self.capacity = capacity
        self.free = capacity
        self.flows: dict[Flow, None] = {}  # ordered, so that runs repeat exactly
        self.open_count = 0  # of its flows, those whose rate this filling has not set

    def busy(self) -> float:
        """How much is in use, 0 to 1."""
        return 1.0 - max(0.0, self.free) / self.capacity if self.capacity else 1.0


class Flow:
    """Bytes under way over some links."""

    __slots__ = ("filling", "key", "links", "moved_s", "rate", "remaining")

    def __init__(self, key: object, links: tuple[Link, ...], length: float, now: float) -> None:
        self.key = key
        self.links = links
        self.remaining = length
        self.rate = 0.0
        self.moved_s = now
        self.filling = 0  # the last one that set the rate


class Fabric:
    """All links of a cluster."""

    def __init__(self) -> None:
        self._links: list[Link] = []
        self.flows: dict[Flow, None] = {}
        self._has_changed = False
        self._filling = 0

    def add_link(self, capacity: float) -> Link:
        """A new link."""
        link = Link(len(self._links), capacity)
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
        """A flow is over, whether or not all of it has moved."""
        self.flows.pop(flow, None)
        self._has_changed = True
        for link in flow.links:
            link.flows.pop(flow, None)
            link.free += flow.rate

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

        One pass over the flows: it moves their bytes up to now as well.
        """
        self._filling += 1
        filling, links = self._filling, self._links
        heap: list[tuple[float, int]] = []
        for link in links:
            link.free = link.capacity
            link.open_count = len(link.flows)
            if link.open_count:
                heap.append((link.free / link.open_count, link.number))
        heapify(heap)
        while heap:
            share, number = heappop(heap)
            link = links[number]
            if not link.open_count:
                continue
            fair = link.free / link.open_count
            if fair > share * (1 + 1e-9):
                heappush(heap, (fair, number))
                continue
            for flow in link.flows:
                if flow.filling != filling:
                    flow.filling = filling
                    flow.remaining -= flow.rate * (now - flow.moved_s)
                    flow.moved_s = now
                    flow.rate = fair
                    for other in flow.links:
                        other.free -= fair
                        other.open_count -= 1
