"""How quickly refusals follow each other: a peer that asks without end for what it does not get waits for each answer.

What lives here: the bound for each peer, whatever the number of its connections, and the pause. What does not: what is
refused (``server``), and the pause that a busy server asks for, which an honest peer keeps by itself.

A refusal costs this host more than it costs the peer that asks, so that a peer which asks without end would take a core
of it. An honest host is refused as often as others go before it, some tens of times a second; where it is more, a pause
costs it little, as it asks elsewhere meanwhile.
"""

from __future__ import annotations

import threading

from gossipd.runtime.quotas import Quotas
from membership.member import NodeId

BURST, PER_S = 4096.0, 256.0
PAUSE_S = 0.05  # of one connection


class RefusalPace:
    """Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._quotas = Quotas[NodeId](burst=BURST, per_s=PER_S)

    def pause_s(self, node: NodeId, now: float) -> float:
        """The peer was refused once more: for how long its connection waits before it asks again."""
        with self._lock:
            return 0.0 if self._quotas.take(node, now) else PAUSE_S
