"""A byte budget shared by threads: no limit when unset, exact when set, changeable at any time.

What lives here: one limit for one direction, which may lie within a wider one. What does not: fairness beyond first
come, first served.

How it works. There are two running totals: ``issued``, the bytes that callers have asked for, and ``paid``, the bytes
that time has allowed. A caller adds its bytes to ``issued`` and waits until ``paid`` reaches that mark. Both only grow,
so the long-run rate is exact, however late threads wake. A new rate changes the growth of ``paid`` and wakes the
waiters; when it is lower, what waits is paid as soon as it would have been before. Unused time is credited up to
``BANKED_S``.

Rejected: a token bucket per thread, because their sum drifts; SO_MAX_PACING_RATE, because it limits no downloads.
"""

from __future__ import annotations

import threading
import time

# Twice the latest wake-ups on a busy two-core machine (some 20 ms), so that the rate stays exact.
BANKED_S = 0.05
# A piece takes this long at the set rate: short against every deadline, long against the cost of a wake-up. Pieces come
# and go as fast as the link can, each in front of others' packets.
PIECE_S = 0.01
ROUNDING_BYTES = 1.0  # floats: otherwise the last fraction of a byte could be awaited again and again
PIECE_BYTES_MIN = 4096  # a page; smaller pieces only cost system calls


class RateLimit:
    """``take(n)`` returns when ``n`` more bytes may move. Thread-safe. ``rate``: bytes per second over all callers, or
    None for no limit. ``within``: a wider limit, which counts the same bytes too, and may itself lie within another.
    """

    __slots__ = ("_changed", "_closed", "_issued", "_paid", "_paid_at", "_piece_rate", "_rate", "_within")

    def __init__(self, rate: float | None = None, *, within: RateLimit | None = None) -> None:
        _check(rate)
        self._within = within
        self._changed = threading.Condition()
        self._rate = self._piece_rate = rate
        self._issued = 0.0
        self._paid = 0.0
        self._paid_at = time.monotonic()
        self._closed = False

    @property
    def rate(self) -> float | None:
        """Bytes per second, or None; the lower of this limit and the wider one."""
        return _lower(self._rate, None if self._within is None else self._within.rate)

    def set_rate(self, rate: float | None, *, piece_rate: float | None = None) -> None:
        """Change the rate, for waiting callers too. ``piece_rate``: the one of which pieces are a part, where ``rate``
        holds only for a moment and they end after it."""
        _check(rate)
        with self._changed:
            self._pay(time.monotonic())
            debt, before = self._issued - self._paid, self._rate
            if debt > 0 and before is not None and rate is not None and rate < before:
                # What was asked for before is paid as soon as it would have been: at a small part of the rate its
                # callers would wait so long that their peers cut them.
                self._paid = self._issued - debt * rate / before
            self._rate, self._piece_rate = rate, _lower(rate, piece_rate)
            self._changed.notify_all()

    def piece(self, nbytes: int) -> int:
        """How much of ``nbytes`` to move at once, so that no caller waits for long."""
        rate = self._rate_of_pieces()
        if rate is None:
            return nbytes
        return min(nbytes, max(PIECE_BYTES_MIN, int(rate * PIECE_S)))

    def _rate_of_pieces(self) -> float | None:
        return _lower(self._piece_rate, None if self._within is None else self._within._rate_of_pieces())

    def take(self, nbytes: int) -> None:
        """Wait until ``nbytes`` more may move."""
        if self.rate is None:
            return
        marks = [(limit, limit._issue(nbytes)) for limit in self._all()]  # before all waits, so that they overlap
        for limit, mark in marks:
            limit._wait(mark)

    def _all(self) -> list[RateLimit]:
        return [self] if self._within is None else [self, *self._within._all()]

    def _issue(self, nbytes: int) -> float | None:
        if self._rate is None:
            return None
        with self._changed:
            self._pay(time.monotonic())
            self._issued += nbytes
            return self._issued

    def _wait(self, mark: float | None) -> None:
        if mark is None:
            return
        with self._changed:
            self._pay(time.monotonic())
            while not self._closed and self._rate is not None and self._paid < mark - ROUNDING_BYTES:
                self._changed.wait((mark - self._paid) / self._rate)
                self._pay(time.monotonic())

    def close(self) -> None:
        """Wake every waiter and limit nothing from now on; for shutdown."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _pay(self, now: float) -> None:
        if self._rate is None:
            self._paid = self._issued
        else:
            earned = self._paid + (now - self._paid_at) * self._rate
            self._paid = min(earned, self._issued + self._rate * BANKED_S)
        self._paid_at = now


def _lower(rate: float | None, other: float | None) -> float | None:
    return other if rate is None else rate if other is None else min(rate, other)


def _check(rate: float | None) -> None:
    assert rate is None or rate > 0, "a rate is positive, or None for no limit"
