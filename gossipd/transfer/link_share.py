"""How much of a link's rate this daemon may use while others use the link, too.

What lives here: the decision for a host's link, by values. What does not: reading the interface and holding the rates
(``daemon.link_sharing``).

What the interface has carried beyond this daemon's own model bytes is what others have. While there is some, in either
direction, as requests are short and answers long, the daemon takes ``SHARE`` of what they leave in both, so that their
packets find the link free nearly always; they leave less when they want more. While there is none it takes all, and the
mode costs nothing. They count until none was seen for ``STAYS_S``.

How much the link can carry is what it has carried at most over some looks: one alone may have what a shaper had saved.
A daemon that keeps to its share would never learn of more, so now and then it tries: for a moment it may send beyond
what was carried. What trials and use do not show again fades.

The other end of a transfer may yield, too, and its limit would hide what a trial could show: so all hosts try at common
moments, multiples of a pause on the wall clock, and believe a trial that shows no more when the next one shows no more
than it. A host whose share the other end does not let it use goes along, and learns only of more.

Rejected: a pace by each connection's round trips, as LEDBAT has it: connections move for one chunk and pause, so their
paces come too late, and on an idle link a deployment took 13 to 30 % more time; the speed that an interface names, as a
virtual or shaped one names any; a congestion control of the kernel that yields, as hosts do not have one loaded.
"""

from __future__ import annotations

import math
from collections import deque

from msgspec import Struct

SHARE = 0.4  # of what others leave; more lets their packets wait behind ours
RATE_MIN = 2 * 1024 * 1024  # bytes per second: 32 connections that have less than 64 KiB each are cut as too slow
START = 8 * 1024 * 1024  # what a link can carry before anything is known of it
NOTICED_SHARE = 0.08  # of own bytes: heads of packets are reckoned, and what comes twice or too early is not counted
NOTICED_SHARE_HELD = 0.01  # the same while own bytes are held back, when little of that happens
NOTICED_MIN = 128 * 1024  # bytes per second; membership, control and an operator's shell take less
OTHERS_S = 1.0  # over which others are counted: requests come in bursts
STAYS_S = 3.0  # pauses of those others
CARRIED_S = 0.1  # over which the carried bytes are counted, and how long a trial takes
EARLY_S = 0.01  # of a look, which counts as one in time
TRIAL = 1.5  # times what the link has carried
# Each divides the next, so that hosts with different pauses try together, too.
TRIAL_SOON_S = 1.0  # after a trial that has shown more, or that is not believed yet
TRIAL_LESS_S = 20.0  # after one that has shown less, with as little to send as before
TRIAL_EVERY_S = 60.0  # after one that has shown what is known: others' packets wait for each
GREW = 1.2  # times what the share brought: with so much more in a trial the link was full
ALIKE = 0.1  # of what was known: within this, a trial has shown the same
FADES = 0.9  # of what was known, after a trial that has shown less, and each ``TRIAL_EVERY_S`` in which none was made
USED = 0.8  # of the rate: a daemon that does not use its share learns nothing of less from a trial
TRIED = 0.25  # of the rate: one that uses less than that is not held back by the other end alone, and tries for nothing


class LinkCounters(Struct, frozen=True):
    """Of one direction: bytes on the wire since any moment. Of its own, this daemon knows what it has handed to the
    interface, where some wait in a queue, and what has arrived."""

    link_bytes: int
    own_bytes: int
    own_arrived_bytes: int


class Direction:
    """One of the two of a link."""

    def __init__(self) -> None:
        self.rate: float | None = None
        """Bytes per second for all model bytes of this daemon; None: no limit."""
        self.held: float | None = None
        """The same without the moment of a trial."""
        self._capacity = float(START)
        self._others = self._own = 0.0  # bytes per second
        self._looks: deque[tuple[LinkCounters, float]] = deque()  # bounded by ``OTHERS_S``
        self._counted: tuple[LinkCounters, float] | None = None  # at the beginning of the present count
        self._tries_from: float | None = None  # the capacity before the trial that goes on
        self._is_used = False
        self._shown: float | None = None  # by the trial before
        self._next_trial_s = -math.inf  # of the wall clock
        self._fades_s = math.inf

    def forget(self) -> None:
        """Bytes of this daemon's were not counted: they must not pass for others'."""
        self._looks.clear()
        self._counted = None
        self.take_all()

    def heard(self, counters: LinkCounters, now: float, wall_s: float) -> bool:
        """Take in a look. Returns whether others use this direction."""
        self._count(counters, now, wall_s)
        self._looks.append((counters, now))
        while len(self._looks) > 1 and self._looks[1][1] <= now - OTHERS_S:
            self._looks.popleft()
        first, began_s = self._looks[0]
        elapsed_s = now - began_s
        if elapsed_s < OTHERS_S:
            return False
        self._own = (counters.own_arrived_bytes - first.own_arrived_bytes) / elapsed_s
        link_bytes = counters.link_bytes - first.link_bytes
        # At most so many were ours, whatever waited before the first look, and waits now.
        own_bytes = counters.own_bytes - first.own_arrived_bytes
        self._others = max(0, link_bytes - own_bytes) / elapsed_s
        share = NOTICED_SHARE if self.rate is None else NOTICED_SHARE_HELD
        return self._others > max(NOTICED_MIN, share * self._own)

    def _count(self, counters: LinkCounters, now: float, wall_s: float) -> None:
        if self._counted is None or now - self._counted[1] < CARRIED_S - EARLY_S:
            self._counted = self._counted or (counters, now)
            return
        (first, began_s), self._counted = self._counted, (counters, now)
        carried = (counters.link_bytes - first.link_bytes) / (now - began_s)
        own = (counters.own_arrived_bytes - first.own_arrived_bytes) / (now - began_s)
        before, self._tries_from = self._tries_from, None
        if before is None:
            self._capacity = max(self._capacity, carried)
            return
        is_common = wall_s % TRIAL_EVERY_S < TRIAL_SOON_S
        pause_s = self._judge(before, carried, is_full=own > GREW * self._own, is_common=is_common)
        self._next_trial_s = _following(wall_s, pause_s)
        if self._is_used:
            self._fades_s = now + 2 * TRIAL_EVERY_S

    def _judge(self, before: float, carried: float, *, is_full: bool, is_common: bool) -> float:
        """What a trial has shown. ``is_common``: all hosts have tried, even those with the longest pause. Returns the
        pause until the next."""
        shown, self._shown = self._shown, carried
        if carried > (1 + ALIKE) * before:
            self._capacity = carried
            return TRIAL_SOON_S
        if shown is None or carried > (1 + ALIKE) * shown:
            return TRIAL_SOON_S  # the other end's limit, which rises by trials, may have cut this one
        if self._is_used and (is_full or is_common):
            self._capacity = carried if is_full else max(carried, FADES * before)
        return TRIAL_LESS_S if carried < (1 - ALIKE) * before and not is_full else TRIAL_EVERY_S

    def share(self, now: float, wall_s: float) -> None:
        """Fix the rate while others use the link."""
        if self._tries_from is not None:
            return
        self.held = rate = max(RATE_MIN, SHARE * (self._capacity - self._others))
        held = None if self.rate is None else min(rate, self.rate)
        if self._is_moment(wall_s) and held is not None and self._own >= TRIED * held:
            self._is_used = self._own >= USED * held
            self._tries_from, rate = self._capacity, TRIAL * self._capacity
            self._counted = (self._looks[-1][0], now)
        elif now >= self._fades_s:
            # The share is not used: there is little to send, or the link cannot carry it.
            self._capacity, self._fades_s = max(RATE_MIN, FADES * self._capacity), now + TRIAL_EVERY_S
        self._fades_s = min(self._fades_s, now + 2 * TRIAL_EVERY_S)
        self.rate = rate

    def _is_moment(self, wall_s: float) -> bool:
        """Whether this is the first look after the moment of a trial."""
        if self._next_trial_s - TRIAL_EVERY_S <= wall_s < self._next_trial_s:  # else the clock was set
            return False
        is_known, self._next_trial_s = self._next_trial_s > -math.inf, _following(wall_s, TRIAL_SOON_S)
        return is_known

    def take_all(self) -> None:
        """Nobody else uses the link."""
        self.rate = self.held = self._tries_from = self._shown = None
        self._fades_s = math.inf


class LinkShare:
    """Of one host's link."""

    def __init__(self) -> None:
        self.sending, self.receiving = Direction(), Direction()
        self._noticed_s = -math.inf

    @property
    def is_shared(self) -> bool:
        """Whether others use the link."""
        return self.sending.rate is not None

    def heard(
        self, sent: LinkCounters, received: LinkCounters, now: float, wall_s: float, *, is_blind: bool = False
    ) -> None:
        """Judge a look at the counters, all cumulative. ``wall_s``: now on the clock that hosts have in common.
        ``is_blind``: since the last look not all bytes of this daemon were counted, so that nobody can be told from it:
        it takes all."""
        if is_blind:
            self._noticed_s = -math.inf
            self.sending.forget()
            self.receiving.forget()
            return
        is_noticed = self.sending.heard(sent, now, wall_s)
        is_noticed |= self.receiving.heard(received, now, wall_s)
        if is_noticed:
            self._noticed_s = now
        for direction in (self.sending, self.receiving):
            if now - self._noticed_s < STAYS_S:
                direction.share(now, wall_s)
            else:
                direction.take_all()


def _following(wall_s: float, pause_s: float) -> float:
    """The next multiple of the pause."""
    return (math.floor(wall_s / pause_s) + 1) * pause_s
