"""How long a call that waits bears a daemon that does not answer.

What lives here: that rule. What does not: what is waited for (``client``).

A job may start before its daemon, as on a host that boots, and a daemon that is upgraded is away for some seconds. So
silence alone ends no wait that has a time-out. Without one, a daemon that has never answered ends it after a minute:
most likely the socket's path is wrong, and nobody would be told for ever.
"""

from __future__ import annotations

import time

from gossipd.api.client import DaemonUnreachableError

RETRY_S = 0.5
START_S = 60.0  # systemd gives a service 90 s to start; a daemon takes some seconds, on a host that boots


class Patience:
    """Of one call."""

    def __init__(self, deadline_s: float | None) -> None:
        """``deadline_s``: of the call, by ``time.monotonic``."""
        self._deadline_s = deadline_s
        self._silent_since_s: float | None = None
        self._has_answered = False

    def answered(self) -> None:
        self._has_answered = True

    def wait_or_raise(self, error: DaemonUnreachableError) -> None:
        """Sleep until the daemon is asked again, at most until the deadline. Raises ``error``: it has never answered,
        and the time is up."""
        if self._silent_since_s is None:
            self._silent_since_s = time.monotonic()
        ends_s = self._silent_since_s + START_S if self._deadline_s is None else self._deadline_s
        is_bounded = self._deadline_s is not None or not self._has_answered
        time.sleep(max(0.0, min(RETRY_S, ends_s - time.monotonic())) if is_bounded else RETRY_S)
        if not self._has_answered and time.monotonic() >= ends_s:
            raise error
