"""When a source may be asked: one pace for each host, shared by all reads of it.

Values only: ``now`` and the generator are passed in; the reader owns the lock and does the waiting.

After a failure the host is left alone for a while: twice as long after each further one, drawn between half and
the whole so that seeds do not come back together, or as long as its Retry-After says. Then one request goes first;
the others wait until it has ended. A burst of 503 therefore costs one request for each read that was under way and
one for each pause, not one for each read and pause. Repeats draw on a budget that only good requests fill (Source:
the retry budgets of the SRE book, chapter 21).
"""

from __future__ import annotations

from random import Random

from gossipd.sources.settings import SourceSettings

FAILURES_MAX = 30  # doubling 0.2 s so often is past every ceiling
FOLLOWER_WAIT_S = 0.05  # how soon a read looks again while another goes first; of the order of a request


class Pace:
    """The state of one host."""

    def __init__(self, settings: SourceSettings, rng: Random) -> None:
        self._settings = settings
        self._rng = rng
        self._failures = 0
        self._not_before = 0.0
        self._scout_out = False
        self._budget = settings.retry_reserve

    @property
    def failures(self) -> int:
        """In a row."""
        return self._failures

    def wait_s(self, now: float) -> float:
        """0: ask now (``finish`` or ``leave`` must follow). Else look again after so long."""
        if self._failures == 0:
            return 0.0
        if now < self._not_before:
            return self._not_before - now
        if self._scout_out:
            return FOLLOWER_WAIT_S
        self._scout_out = True
        return 0.0

    def succeeded(self) -> None:
        """A request has been answered as it should be, or in a way that waiting does not cure."""
        self._failures = 0
        self._scout_out = False
        self._budget = min(self._settings.retry_reserve, self._budget + self._settings.retry_share)

    def failed(self, now: float, retry_after_s: float | None = None) -> None:
        """A request has failed in a way that waiting may cure."""
        self._scout_out = False
        ceiling = min(self._settings.backoff_max_s, self._settings.backoff_first_s * 2**self._failures)
        pause_s = ceiling * self._rng.uniform(0.5, 1.0)
        if retry_after_s is not None:
            asked_s = min(retry_after_s, self._settings.retry_after_max_s)
            pause_s = max(pause_s, asked_s * self._rng.uniform(1.0, 1.1))
        if now >= self._not_before:  # else it was sent before the pause began, and says nothing new
            self._failures = min(self._failures + 1, FAILURES_MAX)
            self._not_before = now + pause_s
        elif retry_after_s is not None:
            self._not_before = max(self._not_before, now + pause_s)

    def left(self) -> None:
        """A request ended without saying anything about the host (it was cancelled, our disk refused)."""
        self._scout_out = False

    def take_retry(self) -> bool:
        """True when one more repeat is within the budget; it is then used."""
        if self._budget < 1.0:
            return False
        self._budget -= 1.0
        return True
