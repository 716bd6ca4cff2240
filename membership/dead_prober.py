"""Probes of dead members: one at a time, for ever, so that any partition heals by itself; more when one answers."""

from __future__ import annotations

from membership.node import MembershipNode
from membership.pings import Pings

_CHAIN_MAX = 4  # more dead members tried when one answers,
_PER_S = 20.0  # and tried in a second at most


class DeadProber:
    """One per brain."""

    def __init__(self, node: MembershipNode, pings: Pings, now: float) -> None:
        self._node = node
        self._pings = pings
        self._tokens = _PER_S
        self._tokens_at = now
        node.at(now + node.rng.random() * node.settings.dead_probe_interval_s, self._on_tick)

    def _on_tick(self, now: float) -> None:
        node = self._node
        if node.has_left:
            return
        node.at(now + node.settings.dead_probe_interval_s * (0.75 + 0.5 * node.rng.random()), self._on_tick)
        self._try(1, now)

    def _try(self, count: int, now: float) -> None:
        dead = self._node.roster.dead()
        self._tokens = min(_PER_S, self._tokens + (now - self._tokens_at) * _PER_S)
        self._tokens_at = now
        for _ in range(min(count, len(dead), int(self._tokens))):
            self._tokens -= 1
            claim = self._node.roster.claims[dead[int(self._node.rng.random() * len(dead))]]
            self._pings.send(claim, now)

    def on_answered(self, now: float) -> None:
        """One dead member is back, so others may be: the partition heals from here."""
        self._node.counts["dead_answered"] += 1
        self._node.catching_up = True
        self._try(_CHAIN_MAX, now)
