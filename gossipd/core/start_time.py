"""When a deployment began, by what its hosts tell of their own beginnings.

What lives here: that rule. What does not: what each host tells (``deployment.progress_record``).

The earliest time of all would be what any one host says, which may lie or have a wrong clock. Hosts begin within
seconds of each other, so a time counts that is at most a minute before that at which a tenth of the hosts had begun, or
the second of few hosts. A host alone is believed.
"""

from __future__ import annotations

from collections.abc import Iterable

SHARE_LEFT_OUT = 10  # one in so many hosts may say anything, and one host at least
APART_MAX_S = 60


def began_s(told: Iterable[int]) -> int:
    """Seconds since 1970; 0 where no host has begun."""
    times = sorted(moment for moment in told if moment > 0)
    if not times:
        return 0
    usual = times[min(len(times) - 1, max(1, len(times) // SHARE_LEFT_OUT))]
    return next(moment for moment in times if moment >= usual - APART_MAX_S)
