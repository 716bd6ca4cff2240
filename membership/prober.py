"""Finds out which members answer: rounds of probes, and doubts about this node. ``indirect_prober`` probes for others.

One round, with all times multiplied by the health factor: ping at 0. Without an ack at ``probe_timeout_s`` ping again,
ask helpers in other racks, and ask the host to try the control channel. At ``probe_interval_s`` the verdict. A helper
pings twice and answers with the subject's ack or with a nack, which carries its own signed accusation if it is well.
Accusations are held back until the round has failed, and then go out together: a crash is accused from several racks at
once, and a lost datagram from none. A round in which not even the helpers answered accuses no member.

A member that has never answered may be nobody: its silence says nothing about this node's own health or isolation, and
the next probe goes to a member that has answered. So a liar's made-up members take every other probe at most.
"""

from __future__ import annotations

from membership import wire
from membership.dead_prober import DeadProber
from membership.events import ControlProbeWanted, Isolated
from membership.judge import Judge
from membership.member import Address, NodeId
from membership.node import MembershipNode, TimerNumber
from membership.pings import PendingPing, Pings
from membership.verified_cache import Claim

_EARLY = 0.2  # of a round that a late wake-up began: as much shorter, and none after it leaves the clock
_RETURN_S = 2.0  # after a freeze, seconds at most until this node judges again


class Prober:
    """One per brain."""

    def __init__(self, node: MembershipNode, judge: Judge, pings: Pings, now: float) -> None:
        settings = node.settings
        self._node = node
        self._judge = judge
        self._pings = pings
        self._lost = DeadProber(node, pings, now)
        self._current: tuple[int, PendingPing] | None = None
        self._timeout: TimerNumber = 0  # the current probe's, until it runs or is called off; 0 is no timer's
        self._isolation = node.isolation
        self._wants_heard = False  # the last probe went to a member that never answered, nor did it now
        self._return_number = 0
        node.at(settings.probe_s(now + node.rng.random() * settings.probe_interval_s), self._on_tick)

    # ---- our own probes

    def _on_tick(self, now: float) -> None:
        node = self._node
        if node.has_left:
            return
        self._conclude(now)
        factor = node.health.factor(now)
        node.at(node.settings.probe_s(now + node.settings.probe_interval_s * factor, early=_EARLY), self._on_tick)
        sequence = self._ping_next(now)
        if sequence is None:
            return
        self._current = (sequence, self._pings.pending[sequence])
        timeout_s = now + node.settings.probe_timeout_s * factor
        self._timeout = node.at(timeout_s, lambda later: self._on_timeout(sequence, later))

    def _ping_next(self, now: float) -> int | None:
        """Of a member to which a ping is withheld nothing is said, and the next one is asked."""
        roster = self._node.roster
        subject = (roster.next_to_probe(heard=True) if self._wants_heard else None) or roster.next_to_probe()
        self._wants_heard = False
        sequence = None if subject is None else self._pings.send(subject, now)
        if subject is not None and sequence is None:
            subject = roster.next_to_probe(heard=True)
            sequence = None if subject is None else self._pings.send(subject, now)
        return sequence

    def _on_timeout(self, sequence: int, now: float) -> None:
        self._timeout = 0
        probe = self._pings.pending.get(sequence)
        if probe is None or self._current is None or self._current[0] != sequence:
            return
        node = self._node
        subject = probe.subject
        if node.settings.second_try:
            self._pings.repeat(subject, sequence, now)
        helpers = node.roster.pick_helpers(node.settings.helper_count, subject)
        probe.helpers = tuple(helper.handle for helper in helpers)
        head = wire.REQUEST_HEAD.pack(wire.PING_REQ, sequence, subject.handle)
        for helper in helpers:
            node.send(helper, head, now)
        known = node.roster.is_live(subject.handle) and node.roster.has_answered(subject.handle)
        if known and node.settings.second_try:
            node.tell(ControlProbeWanted(subject.node))

    def _conclude(self, now: float) -> None:
        """The round is over; accuse the subject if it did not answer."""
        if self._current is None:
            return
        sequence, probe = self._current
        self._current = None
        if sequence not in self._pings.pending:
            return  # answered
        node = self._node
        probe.is_over = True  # stays a while, for late nacks
        node.at(now + node.settings.probe_interval_s * 2, lambda _: self._pings.pending.pop(sequence, None))
        heard = probe.nacks > 0 or not probe.helpers
        if node.roster.has_answered(probe.subject.handle):
            self._doubt(probe, now, heard=heard)
        else:
            node.counts["probes_of_unheard_failed"] += 1
            self._wants_heard = True
        claim = node.roster.claims.get(probe.subject.handle)
        if claim is None or not node.roster.is_live(claim.handle) or claim.record.boot != probe.subject.record.boot:
            return
        if node.settings.isolation_freeze and (not heard or node.frozen):
            return
        self._judge.on_accuse(self._judge.accusation(claim), now)
        for accusation in probe.accusations:
            self._judge.on_accuse(accusation, now)

    def _doubt(self, probe: PendingPing, now: float, *, heard: bool) -> None:
        """A member that has answered before did not: it may be this node that is ill, or cut off."""
        node = self._node
        node.counts["probes_failed"] += 1
        helpers = sum(map(node.roster.has_answered, probe.helpers))
        node.health.worsen(max(0, min(2, helpers - probe.nacks)) if helpers else 1)
        self._note(probe.subject, now, answered=False)
        if not heard:
            self._isolation.note_silence()
        self._review(now)

    def _note(self, subject: Claim, now: float, *, answered: bool) -> None:
        if subject.record.rack != self._node.own.record.rack:
            self._isolation.note_outside(now, subject.handle, answered=answered)

    # ---- answers

    def on_ping(
        self, body: bytes, sender: Claim | None, source: NodeId, address: Address, now: float, *, told: bool
    ) -> None:
        """Answer; ask an unknown sender for its record, contradict a sender that told us that we are ill. A ping from
        elsewhere than the address in its sender's record may be a repeated one: the answer is no longer than it."""
        _, sequence, *_ = wire.PROBE_HEAD.unpack_from(body)
        if sender is None:
            self._node.send_to_address(address, self._pings.head(wire.ACK, sequence, now, wire.FLAG_WHO), source)
        elif address != sender.address:
            self._node.send_bare(sender, self._pings.head(wire.ACK, sequence, now))
        else:
            proof = self._node.own.proof if told else b""
            self._node.send(sender, self._pings.head(wire.ACK, sequence, now), now, proof)

    def on_ack(self, body: bytes, sender: Claim, now: float) -> bool:
        """From the subject itself, or from a helper that passes it on. True when this node had chosen the sender."""
        _, sequence, _, _, flags = wire.PROBE_HEAD.unpack_from(body)
        node = self._node
        if flags & wire.FLAG_WHO:
            node.send_bare(sender, bytes((wire.ITEMS,)) + node.own.item + node.own.proof)
        probe = self._pings.pending.get(sequence)
        if probe is None:
            return False
        subject = probe.subject
        if sender.handle != subject.handle and sender.handle not in probe.helpers:
            node.counts["acks_unexpected"] += 1
            return False
        del self._pings.pending[sequence]
        if self._timeout and self._current is not None and self._current[0] == sequence:
            node.call_off(self._timeout)
            self._timeout = 0
        # A helper knows the number, and may answer in the name of a member that does not exist.
        if sender.handle == subject.handle and sender.address == subject.address and not probe.helpers:
            node.note_answered(sender.handle)
        self._isolation.answered()
        if probe.requester is not None:
            node.send(probe.requester, self._pings.head(wire.ACK, probe.requester_sequence, now), now)
        elif subject.handle in node.roster.gone:
            self._lost.on_answered(now)
        else:
            node.counts["probes_answered"] += 1
            node.health.improve()
            self._note(subject, now, answered=True)
        self._review(now)
        return probe.requester is None and sender.handle == subject.handle

    def on_control_result(self, subject: NodeId, now: float) -> None:
        """The control channel answered, which counts as an ack."""
        if self._current is None or self._current[1].subject.node != subject:
            return
        sequence, probe = self._current
        if self._pings.pending.pop(sequence, None) is not None:
            self._node.counts["probes_saved_by_control"] += 1
            self._isolation.answered()
            self._note(probe.subject, now, answered=True)
            self._review(now)

    def on_nack(self, body: bytes, sender: Claim, now: float) -> None:
        """A helper could not reach the subject either."""
        _, sequence = wire.SEQUENCE_HEAD.unpack_from(body)
        node = self._node
        probe = self._pings.pending.get(sequence)
        if probe is None or sender.handle not in probe.helpers:
            return
        probe.nacks += 1
        self._isolation.answered()
        for accusation in wire.split_items(body, wire.SEQUENCE_HEAD.size):
            if accusation[0] != wire.ACCUSE or wire.parse_accusation(accusation)[1] != probe.subject.handle:
                continue
            if probe.is_over and not node.frozen:
                self._judge.on_accuse(accusation, now)
            elif len(probe.accusations) < 8:
                probe.accusations.append(accusation)
        self._review(now)

    # ---- doubts about ourselves

    def _review(self, now: float) -> None:
        node = self._node
        if not node.settings.isolation_freeze:
            return
        several = node.roster.live > node.settings.isolation_subjects_min
        isolated = several and (self._isolation.hears_nobody() or self._isolation.hears_only_own_rack())
        if isolated == node.isolated:
            return
        node.isolated = isolated
        node.counts["isolations"] += isolated
        node.tell(Isolated(isolated))
        if isolated:
            self._judge.withdraw_accusations()
        else:
            self.come_back(now)

    def come_back(self, now: float) -> None:
        """This node hears again, or runs again: it catches up first, then judges."""
        node = self._node
        node.returning = True
        node.catching_up = True
        self._judge.restart_suspicions(now)
        self._return_number = number = self._return_number + 1
        node.at(now + _RETURN_S, lambda _: self._end_return(number))

    def _end_return(self, number: int) -> None:
        if number == self._return_number:
            self._node.returning = False

    def on_gap(self, now: float) -> None:
        """This node was stopped: its probes may have been answered long ago, or never."""
        node = self._node
        node.counts["gaps"] += 1
        node.health.worsen(1)
        if self._current is not None:
            self._pings.pending.pop(self._current[0], None)
            self._current = None
        self._isolation.clear()
        self.come_back(now)
