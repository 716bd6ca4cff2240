"""Probes made for others: ping twice, then pass on the ack, or a nack, with our signed accusation if we are well."""

from __future__ import annotations

from membership import wire
from membership.judge import Judge
from membership.node import MembershipNode
from membership.pings import Pings
from membership.shares import Shares
from membership.verified_cache import Claim

_RELAYED_PER_S = 200.0  # more than all members' requests need, and no amplifier
_ASKED_BURST, _ASKED_PER_S = 10.0, 5.0  # by one member, which asks each of its helpers once a second at most
_WELL = 2  # health score up to which our word counts


class IndirectProber:
    """One per brain."""

    def __init__(self, node: MembershipNode, judge: Judge, pings: Pings, now: float) -> None:
        self._node = node
        self._judge = judge
        self._pings = pings
        self._relay_tokens = _RELAYED_PER_S
        self._relay_at = now
        self._shares = Shares(burst=_ASKED_BURST, per_s=_ASKED_PER_S)

    def on_ping_req(self, body: bytes, sender: Claim, now: float) -> None:
        """Probe a member for another node, within rates for all and for each; a nack for one that is not known here."""
        _, sequence, handle = wire.REQUEST_HEAD.unpack_from(body)
        node = self._node
        self._relay_tokens = min(_RELAYED_PER_S, self._relay_tokens + (now - self._relay_at) * _RELAYED_PER_S)
        self._relay_at = now
        subject = node.roster.claims.get(handle)
        if self._relay_tokens < 1 or subject is node.own or not self._shares.take(sender.handle, now):
            node.counts["requests_refused"] += 1
            return
        self._relay_tokens -= 1
        # Who asks after a member that only it has would else hear nobody, and never come to a verdict.
        ours = None if subject is None else self._pings.send(subject, now, sender, sequence)
        if ours is None:
            node.send(sender, wire.SEQUENCE_HEAD.pack(wire.NACK, sequence), now)
            return
        # Not stretched by our health, or the requester's round would be over: a node that is not well does not testify.
        half = node.settings.probe_timeout_s / 2
        node.at(now + half, lambda later: self._on_relay_half(ours, later))
        node.at(now + 2 * half, lambda later: self._on_relay_over(ours, later))

    def _on_relay_half(self, sequence: int, now: float) -> None:
        probe = self._pings.pending.get(sequence)
        if probe is not None and self._node.settings.second_try:
            self._pings.repeat(probe.subject, sequence, now)

    def _on_relay_over(self, sequence: int, now: float) -> None:
        probe = self._pings.pending.pop(sequence, None)
        if probe is None or probe.requester is None:
            return
        node = self._node
        if not node.settings.lifeguard:
            return
        claim = node.roster.claims.get(probe.subject.handle)
        well = node.health.factor(now) <= 1 + _WELL and not node.frozen and node.settings.corroborate
        testimony = b""
        if well and claim is not None and node.roster.is_live(claim.handle):
            testimony = self._judge.accusation(claim)
        node.send(probe.requester, wire.SEQUENCE_HEAD.pack(wire.NACK, probe.requester_sequence), now, testimony)
