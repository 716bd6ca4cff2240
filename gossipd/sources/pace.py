"""When a source may be asked: one pace for each host, shared by all its reads.

Values only: ``now`` and the generator are passed in; ``admission`` owns the lock, and the reading threads wait.

After a failure the host is left alone for a pause. The pause doubles with each further failure, is drawn between half
and the whole so that seeds do not return together, and is at least the server's Retry-After. Then one request goes
first, and the others wait for its end. So a burst of 503 costs one request for each read in progress and one for each
pause. Repeats draw on a budget that good requests fill (source: the retry budgets of the SRE book, chapter 21).
"""

from __future__ import annotations

from random import Random

from gossipd.sources.settings import SourceSettings

FAILURES_MAX = 30  # doubling 0.2 s this often is beyond every ceiling
FOLLOWER_WAIT_S = 0.05  # how soon a read checks again while another goes first; of the order of a request


class Pace:
    def __init__(self, settings: SourceSettings, rng: Random) -> None:
        self._settings = settings
        self._rng = rng
        self.failures = 0
        self._not_before = 0.0
        self._scout_out = False
        self._budget = settings.retry_reserve

    def wait_s(self, now: float) -> float:
        """0: ask now; ``succeeded``, ``failed`` or ``left`` must follow. Else check again after this time."""
        if self.failures == 0:
            return 0.0
        if now < self._not_before:
            return self._not_before - now
        if self._scout_out:
            return FOLLOWER_WAIT_S
        self._scout_out = True
        return 0.0

    def succeeded(self) -> None:
        """A request had a good answer, or one that waiting cannot improve."""
        self.failures = 0
        self._scout_out = False
        self._budget = min(self._settings.retry_reserve, self._budget + self._settings.retry_share)

    def failed(self, now: float, retry_after_s: float | None = None) -> None:
        """A request failed in a way that waiting may cure."""
        self._scout_out = False
        ceiling = min(self._settings.backoff_max_s, self._settings.backoff_first_s * 2**self.failures)
        pause_s = ceiling * self._rng.uniform(0.5, 1.0)
        if retry_after_s is not None:
            asked_s = min(retry_after_s, self._settings.retry_after_max_s)
            pause_s = max(pause_s, asked_s * self._rng.uniform(1.0, 1.1))
        if now >= self._not_before:  # an earlier request, sent before the pause, says nothing new
            self.failures = min(self.failures + 1, FAILURES_MAX)
            self._not_before = now + pause_s
        elif retry_after_s is not None:
            self._not_before = max(self._not_before, now + pause_s)

    def left(self) -> None:
        """A request ended without news of the host (it was cancelled, or our disk refused)."""
        self._scout_out = False

    def take_retry(self) -> bool:
        """Use one repeat of the budget; False when none is left."""
        if self._budget < 1.0:
            return False
        self._budget -= 1.0
        return True
