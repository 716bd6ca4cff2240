"""How many requests per second a host of storage takes, learned from its refusals (status 429).

Values only. There is no limit until the first refusal. Then requests go out at even distances, first at the rate that
the host had taken in the second before. Where it had taken one or two, that second says nothing: one request asks
after a moment, and after twice the time since the last that was taken, until one is taken; the right rate lies
between the last two times. Afterwards the rate is searched between the highest that was taken and the lowest that was
refused. When these are close, the rate is held, and tried a little higher after a time that doubles.

Rejected: halving and adding, because a host that counts strictly from one request to the next refuses every second one
when it is asked a little too often, so time is lost on either side of the right rate. A host that refuses some requests
at any rate is left to the pauses of each request, after a search that did not help.
"""

from __future__ import annotations

from collections import deque

_WINDOW_S = 1.0  # the usual period of such limits
_TAKEN_MAX = 1024
_TRUSTED = 3  # requests taken in the window from which their count is a good first rate; fewer may be the first only
_BELOW = 0.96  # of that count, because our distances are not exact
_CLOSE = 1.12  # refused over taken, at which searching ends
_SHRINK = 0.7
_GROW = 2.0
_ASKED_AFTER_S = 1 / 16  # a host that takes as many has no limit that is worth finding sooner
_ASKED_MAX = 10  # doubled so often it is half a minute
_GROW_AFTER_HOLD = 1.1
_TRIED = 2  # requests that must be taken at a rate before it counts as taken
_HELD_S_MIN = 2.0
_HELD_S_MAX = 80.0
_RATE_MIN = 1 / 30
_CUTS_MAX = 6  # more with few taken between: what is refused is not refused for the number of requests
_TAKEN_BETWEEN = 6
_IGNORED_S_MIN = 10.0
_IGNORED_S_MAX = 320.0
_HELD_COST = 20  # a try costs a twentieth of the time at most, where each refusal makes us wait
_RATE_MAX = 1000.0  # a host that takes as many has no limit that matters
_LATE_S = 0.02  # a thread that wakes up this late makes up for it, so that the mean distance is right


class RequestRate:
    """For one host."""

    def __init__(self) -> None:
        self.rate: float | None = None
        """Requests per second; None while there is no limit."""
        self._taken: deque[float] = deque(maxlen=_TAKEN_MAX)
        self._next_s = 0.0
        self._since_s = 0.0  # when the present rate began
        self._run = 0  # requests that were taken since
        self._low = 0.0  # the highest rate that was taken
        self._cuts = 0  # refusals with few taken requests between them
        self._taken_since_cut = 0
        self._ignored_s = _IGNORED_S_MIN
        self._ignored_until = 0.0
        self._high: float | None = None  # the lowest that was refused
        self._grow = _GROW
        self._held_s = _HELD_S_MIN
        self._held_until: float | None = None
        self._last_taken_s = 0.0  # when the last request that was taken was sent
        self._asked = 0  # of the first search: requests that were refused, and the last distance of one
        self._refused_after_s = 0.0

    def wait_s(self, now: float) -> float:
        """0: a request may go out; ``sent`` must follow."""
        return max(0.0, self._next_s - now) if self.rate is not None else 0.0

    def sent(self, now: float) -> None:
        """A request goes out."""
        if self.rate is not None:
            self._next_s = (self._next_s if now - self._next_s < _LATE_S else now) + 1 / self.rate

    def answered(self, sent_s: float, now: float) -> None:
        """A request was taken."""
        self._taken.append(now)
        before_s, self._last_taken_s = self._last_taken_s, max(self._last_taken_s, sent_s)
        if self.rate is None or sent_s < self._since_s:
            return
        if self._asked:
            self._found(max(sent_s - before_s, 1 / _RATE_MAX), now)
            return
        self._run += 1
        self._taken_since_cut += 1
        if self._held_until is not None and now < self._held_until:
            return
        if self._run < (1 if self._high is None else _TRIED):
            return
        self._low = max(self._low, self.rate)
        if self._high is None:
            self._held_until = None
            self._set(self.rate * self._grow, now)
            self._grow = min(_GROW, self._grow * self._grow)
        elif self._held_until is not None:
            self._held_s = min(_HELD_S_MAX, 2 * self._held_s)
            self._held_until = self._high = None
            self._grow = _GROW_AFTER_HOLD
            self._set(self.rate * self._grow, now)
        elif self._high > _CLOSE * self._low:
            self._set((self._low * self._high) ** 0.5, now)
        else:
            self._held_until = now + self._held_s

    def refused(self, sent_s: float, now: float, retry_after_s: float = 0.0) -> None:
        """A request was refused for the number of requests. One that was sent before the last change says nothing."""
        if self.rate is None:
            if now >= self._ignored_until:
                self._begin(now, retry_after_s)
            return
        if sent_s < self._since_s:
            return
        if 0 < self._asked < _ASKED_MAX:
            self._refused_after_s = sent_s - self._last_taken_s
            self._ask(now)
            return
        self._cuts = 1 if self._taken_since_cut >= _TAKEN_BETWEEN else self._cuts + 1
        self._taken_since_cut = 0
        if self._cuts > _CUTS_MAX:
            self.rate = None
            self._ignored_until = now + self._ignored_s
            self._ignored_s = min(_IGNORED_S_MAX, 2 * self._ignored_s)
            return
        self._high, self._held_until = self.rate, None
        if self._low >= self.rate:
            self._low = self.rate / _CLOSE if self._run >= _TRIED else self.rate * _SHRINK
        if retry_after_s and self._low:  # searching costs too much
            self._held_s = max(self._held_s, _HELD_COST * retry_after_s)
            self._held_until = now + self._held_s
        self._set(self._low or self.rate * _SHRINK, now)

    def _ask(self, now: float) -> None:
        """One request, when twice the time since the last that was taken is over."""
        self._asked += 1
        self._set(1 / max(_ASKED_AFTER_S, now - self._last_taken_s), now)

    def _found(self, after_s: float, now: float) -> None:
        """The first search has ended: a request was taken so long after the one before."""
        self._asked = 0
        self._low = 1 / after_s
        if self._refused_after_s:
            self._high = 1 / self._refused_after_s
            self._set((self._low * self._high) ** 0.5, now)
        else:
            self._set(self._low, now)

    def _begin(self, now: float, retry_after_s: float) -> None:
        count = sum(at > now - _WINDOW_S for at in self._taken)
        if not count:
            return  # a host that takes nothing is left alone for growing pauses
        rate = _BELOW * count
        self._low, self._high, self._grow, self._held_s = 0.0, None, _GROW, _HELD_S_MIN
        self._held_until = now + _WINDOW_S if count >= _TRUSTED else None
        self._cuts = self._taken_since_cut = self._asked = 0
        self._refused_after_s = 0.0
        if count < _TRUSTED and not retry_after_s:
            self._ask(now)
        else:
            self._set(rate, now)

    def _set(self, rate: float, now: float) -> None:
        if rate > _RATE_MAX:
            self.rate = None
            return
        self.rate, self._since_s, self._run = max(_RATE_MIN, rate), now, 0
        self._next_s = now + 1 / self.rate
