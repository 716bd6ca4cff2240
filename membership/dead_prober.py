"""Probes of dead members: one at a time, for ever, so that any partition heals by itself; more when one answers.

Now and then a peer is asked after some of those that are gone here: it may have forgotten them while this node was
away. Digests cannot show that, because the gone are not in them.
"""

from __future__ import annotations

from membership import wire
from membership.node import MembershipNode
from membership.pings import Pings

_CHAIN_MAX = 4  # more dead members tried when one answers,
_PER_S = 20.0  # and tried in a second at most
_ASK_EACH = 10  # ticks; each while catching up
_ASKED_MAX = 4  # what a peer answers at once


class DeadProber:
    """One per brain."""

    def __init__(self, node: MembershipNode, pings: Pings, now: float) -> None:
        self._node = node
        self._pings = pings
        self._tokens = _PER_S
        self._tokens_at = now
        self._ticks = 0
        self._wait(node.rng.random(), now)

    def _wait(self, intervals: float, now: float) -> None:
        settings = self._node.settings
        self._node.at(settings.probe_s(now + settings.dead_probe_interval_s * intervals), self._on_tick)

    def _on_tick(self, now: float) -> None:
        node = self._node
        if node.has_left:
            return
        self._wait(0.75 + 0.5 * node.rng.random(), now)
        self._try(1, now)
        self._ticks += 1
        if node.catching_up or self._ticks % _ASK_EACH == 0:
            self._ask()

    def _try(self, count: int, now: float) -> None:
        dead = self._node.roster.dead()
        self._tokens = min(_PER_S, self._tokens + (now - self._tokens_at) * _PER_S)
        self._tokens_at = now
        for _ in range(min(count, len(dead), int(self._tokens))):
            self._tokens -= 1
            claim = self._node.roster.claims[dead[int(self._node.rng.random() * len(dead))]]
            self._pings.send(claim, now)

    def _ask(self) -> None:
        node = self._node
        gone = list(node.roster.gone)
        asked = node.rng.sample(gone, min(_ASKED_MAX, len(gone)))
        if asked:
            node.send_some(1, bytes((wire.WORRY_WANT,)) + b"".join(asked))

    def on_answered(self, now: float) -> None:
        """One dead member is back, so others may be: the partition heals from here."""
        self._node.counts["dead_answered"] += 1
        self._node.catching_up = True
        self._try(_CHAIN_MAX, now)
