"""How many requests to one host of storage may be under way at once: as many as it answers.

Values only. What does not live here: pauses after failures (``host_pace``), requests per second (``request_rate``).

A request's *level* is the number of requests that are under way with it. The limit begins at two and goes up by one
when a request at that level is answered. For each level the share of answers, not refusals, is smoothed; the limit is
below the first level that is mostly refused. After a while one request more is let through as a trial; the time until
the next trial doubles while trials are refused. After a refused trial one place rests for a moment, so that another
seed behind the same address gets a place, too: hosts that have many give, and those that have few take.

A host whose requests are ended as too slow, two in a row and none quick in between, has too little for so many: half
as many are let through, down to one, and one more after each that came twice as quickly as it must, or after a while.

Rejected: halving at each refusal, because a mirror that refuses a third of its requests whatever their number would be
read over one connection, and one that allows two would be read over one for half of the time.
"""

from __future__ import annotations

from math import inf

LEVELS_MAX = 64  # ``sources.connections`` allows no more threads
START = 2
_REFUSED_BELOW = 0.25  # share of answers under which a level is of no use; a third of refusals is far from it
_SMOOTHING = 0.15  # nine refusals in a row drop a level that was always answered; noise of a third seldom does
_PROVEN = 8  # answers at a level that a trial has opened, until it is no chance
_TOLD_WEIGHT = 4  # a refusal with a Retry-After costs more, so fewer must do
_TRIAL_S_MIN = 0.25
_TRIAL_S_MAX = 6.0
_TRIAL_COST = 20  # trials cost at most a twentieth of the time where a refusal makes us wait
_REST_SHARE = 1 / 16  # of what the host allows, for those that have none of it
_REST_S_MAX = 1.5  # longer than a starving seed pauses
_SLOW_ROW = 2  # one alone may hang
_QUICK_S = 0.5
_WIDEN_S, _WIDEN_MAX_S = 10.0, 320.0  # a stall ends; the pause doubles while a host is narrowed again


class ConnectionLimit:
    """For one host. The limit never goes beyond ``LEVELS_MAX``."""

    def __init__(self) -> None:
        self._accepted_share = [1.0] * (LEVELS_MAX + 2)
        self._count = [0] * (LEVELS_MAX + 2)
        self.limit = START
        self.under_way = 0
        self._trial_s = _TRIAL_S_MIN
        self._next_trial_s: float | None = None  # None: the next level has never been refused
        self._trial = 0  # the level of a trial that is under way, or 0
        self._tried = 0  # the level that the last trial has opened
        self._rest_until = 0.0
        self._most = LEVELS_MAX  # while the host is slow
        self._slow_in_row = 0
        self._narrowed_s = -inf
        self._widen_s, self._pause_s = inf, _WIDEN_S  # when one more is let through by itself, and after how long next

    @property
    def is_single(self) -> bool:
        """Whether the host is so slow that one request at a time is let through."""
        return self._most == 1

    def was_slow(self, sent_s: float, now: float) -> None:
        """A request was ended as too slow. One that was sent before the last narrowing says nothing new."""
        self._slow_in_row += 1
        if self._slow_in_row >= _SLOW_ROW and sent_s >= self._narrowed_s:
            self._most, self._narrowed_s = max(1, min(self._most, self.under_way) // 2), now
            self._widen_s, self._pause_s = now + self._pause_s, min(2 * self._pause_s, _WIDEN_MAX_S)

    def range_came(self, received: int, waited_s: float, rate_bytes_min: int) -> None:
        """A range came whole. Where it came twice as quickly as it must, there is room for one more."""
        if received >= 2 * rate_bytes_min * waited_s:
            self._widen()

    def small_came(self, waited_s: float) -> None:
        """Too few bytes for a rate: the wait tells, as storage of small files has no others."""
        if waited_s < _QUICK_S:
            self._widen()

    def _widen(self) -> None:
        self._slow_in_row, self._most, self._pause_s = 0, min(LEVELS_MAX, self._most + 1), _WIDEN_S

    def places(self, now: float) -> int:
        """Requests that may be under way now."""
        if self._most < LEVELS_MAX and now >= self._widen_s:
            self._most, self._widen_s = self._most + 1, now + _WIDEN_S
        if now < self._rest_until:
            return min(self.limit - 1, self._most)
        is_due = self._next_trial_s is not None and now >= self._next_trial_s and not self._trial
        return min(self._most, self.limit + 1 if is_due and self.limit < LEVELS_MAX else self.limit)

    def begin(self) -> int:
        """A request goes out. Returns its level; ``ended`` must follow."""
        self.under_way += 1
        if self.under_way > self.limit:
            self._trial = self.under_way
        return self.under_way

    def ended(self, level: int) -> None:
        """The request is over, however it went."""
        self.under_way -= 1
        if level == self._trial:
            self._trial = 0

    def answered(self, level: int) -> None:
        """The host began to send what was asked for."""
        level = min(level, LEVELS_MAX)
        for lower in range(1, level + 1):  # what is answered at a level would be at a lower one
            self._learn(lower, 1.0)
        if level > self.limit:
            self._trial = 0
            self.limit = self._tried = level
            self._next_trial_s = None
        elif level == self.limit:
            if level == self._tried and self._count[level] >= _PROVEN:
                self._trial_s = _TRIAL_S_MIN
            if self._next_trial_s is None:
                self.limit = min(LEVELS_MAX, level + 1)

    def refused(self, level: int, now: float, retry_after_s: float = 0.0) -> None:
        """The host answered that it has too much to do."""
        if level > self.limit:  # a trial, or one that was under way when the limit went down
            if level == self._trial:
                self._trial = 0
                self._trial_s = min(_TRIAL_S_MAX, 2 * self._trial_s)
                self._rest_until = now + min(_REST_S_MAX, _REST_SHARE * self._trial_s * self.limit)
            self._try_later(now, retry_after_s)
            return
        for _ in range(_TOLD_WEIGHT if retry_after_s else 1):
            self._learn(level, 0.0)
        if self._accepted_share[level] < _REFUSED_BELOW:
            self.limit = max(1, level - 1)
            if level == self._tried:
                self._trial_s = min(_TRIAL_S_MAX, 2 * self._trial_s)
            for higher in range(level, LEVELS_MAX + 1):
                self._count[higher], self._accepted_share[higher] = 0, 1.0
            self._try_later(now, retry_after_s)

    def _try_later(self, now: float, retry_after_s: float) -> None:
        self._next_trial_s = now + max(self._trial_s, _TRIAL_COST * retry_after_s)

    def _learn(self, level: int, seen: float) -> None:
        """The mean of the first observations and one good one before them, later one that forgets."""
        self._count[level] += 1
        weight = max(_SMOOTHING, 1 / (self._count[level] + 1))
        self._accepted_share[level] += weight * (seen - self._accepted_share[level])
