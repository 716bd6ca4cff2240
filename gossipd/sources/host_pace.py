"""When a host of storage may be asked: pauses after failures, for all requests to that host together.

Values only: ``now`` and the generator are passed in; ``admission`` owns the lock, and the reading threads wait. What
does not live here: which of several mirrors is asked (``mirror_rates``).

A request that fails while the host answers others is repeated after a pause of its own, and the others go on. How many
may be under way is learned from refusals (``connection_limit``), how many may go out in a second from status 429
(``request_rate``).

When nothing has been answered since the failed request was sent, the host itself is left alone for a pause. The pause
doubles with each further failure and is drawn between half and the whole so that seeds do not return together. Then one
request goes first, and the others wait for its answer. A Retry-After is a pause for all requests in either case. So a
burst of 503 costs one request for each read in progress and one for each pause. Repeats draw on a budget that good
requests fill (source: the retry budgets of the SRE book, chapter 21).
"""

from __future__ import annotations

from math import inf
from random import Random

from msgspec import Struct

from gossipd.sources.connection_limit import ConnectionLimit
from gossipd.sources.request_rate import RequestRate
from gossipd.sources.settings import SourceSettings

REFUSED_PAUSE_S_MAX = 1.0  # a host that is full of others' requests is asked for a place this often
FAILURES_MAX = 30  # doubling 0.2 s this often is beyond every ceiling
FOLLOWER_WAIT_S = 0.1  # how soon a read checks again when nobody wakes it
_REFUSALS_IN_ORDER = 4  # without an answer, while the right number per second is searched


class Turn(Struct, eq=False):
    """One request, from its permission to its end. ``is_struggling``: the host's last answers were failures."""

    level: int
    sent_s: float
    is_struggling: bool
    is_answered: bool = False


class Pace:
    """For one host."""

    def __init__(self, settings: SourceSettings, rng: Random) -> None:
        self._source_settings = settings
        self._rng = rng
        self.failures = 0
        self.answered_s = -inf
        """When the host began to send what it was asked for, last."""
        self.connections = ConnectionLimit()
        self.requests = RequestRate()
        self._refusals = 0  # since the last answer
        self._streams = 0  # answered requests that are under way
        self._not_before = 0.0
        self._told_until = 0.0
        self._scout: Turn | None = None
        self._budget = settings.retry_reserve

    def wait_s(self, now: float) -> float:
        """0: ``begin`` may be called. Else check again after this time, or when a request ends."""
        pause_s = max(self._told_until, self._not_before if self.failures else 0.0) - now
        if pause_s > 0.0:
            return pause_s
        if self.failures and self._scout is not None:
            return FOLLOWER_WAIT_S
        if self.connections.under_way >= self.connections.places(now):
            return FOLLOWER_WAIT_S
        return self.requests.wait_s(now)

    def begin(self, now: float) -> Turn:
        """A request goes out; ``ended`` must follow, and before it ``answered`` or ``failed`` when there is news."""
        self.requests.sent(now)
        turn = Turn(self.connections.begin(), now, self.failures > 0)
        if turn.is_struggling:
            self._scout = turn
        return turn

    def answered(self, turn: Turn, now: float) -> None:
        """The host gave a good answer, or one that waiting cannot improve; its body may still be on the way."""
        if turn.is_answered:
            return
        turn.is_answered = True
        self._streams += 1
        self.failures = self._refusals = 0
        self._scout = None
        self.answered_s = now
        self.connections.answered(turn.level)
        self.requests.answered(turn.sent_s, now)

    def refused(self, turn: Turn, now: float, *, is_too_many: bool, retry_after_s: float | None) -> None:
        """The host has too much to do: 503, or 429, which is ``is_too_many``. Called before ``failed``."""
        told_s = min(retry_after_s or 0.0, self._source_settings.retry_after_max_s)
        self._refusals += 1
        if self.failures:
            return  # the pauses are enough
        self.connections.refused(turn.level, now, told_s)
        if is_too_many:
            self.requests.refused(turn.sent_s, now, told_s)

    def failed(self, turn: Turn, now: float, retry_after_s: float | None = None) -> None:
        """A request failed in a way that waiting may cure."""
        if retry_after_s is not None:
            asked_s = min(retry_after_s, self._source_settings.retry_after_max_s)
            self._told_until = max(self._told_until, now + asked_s * self._rng.uniform(1.0, 1.1))
        if turn.is_answered or self._is_alive(turn):
            return
        if self.requests.rate is not None and 0 < self._refusals <= _REFUSALS_IN_ORDER:
            return
        if now >= self._not_before:  # an earlier request, sent before the pause, says nothing new
            pause_s = self.pause_s(self.failures)
            self._not_before = now + (min(pause_s, REFUSED_PAUSE_S_MAX) if self._refusals else pause_s)
            self.failures = min(self.failures + 1, FAILURES_MAX)

    def ended(self, turn: Turn, *, is_good: bool) -> None:
        """The request is over. ``is_good``: it brought what it was for, or a good part of it."""
        self._streams -= turn.is_answered
        self.connections.ended(turn.level)
        if self._scout is turn:
            self._scout = None
        if is_good:
            self._budget = min(self._source_settings.retry_reserve, self._budget + self._source_settings.retry_share)

    def pause_s(self, failures: int) -> float:
        """The pause after so many failures before."""
        ceiling = min(self._source_settings.backoff_max_s, self._source_settings.backoff_first_s * 2.0**failures)
        return ceiling * self._rng.uniform(0.5, 1.0)

    def take_retry(self) -> bool:
        """Use one repeat of the budget; False when none is left."""
        if self._budget < 1.0:
            return False
        self._budget -= 1.0
        return True

    def _is_alive(self, turn: Turn) -> bool:
        """Whether the host has answered others while this request was on its way, or is sending to them."""
        return self._streams > 0 or self.answered_s >= turn.sent_s
