"""When a host had completed a deployment: what it tells, at most the time at which that was heard here.

What lives here: that rule. What does not: the table of records (``deployment.progress_table``), and when a deployment
began (``core.start_time``).

A deployment is complete when its last host is, so the latest end of all counts, and one host that lies or whose clock
is ahead could put it into any year. But a host says that it is complete a moment after it is. So none was complete
later than this host has heard it say so first, on this host's clock, and what it says of its end afterwards moves that
no further. A host that is complete again, after it was not, has another end. Rejected: to leave out what is later than
most hosts' ends, as for the beginning, because the last host is often much slower than the others.
"""

from __future__ import annotations

from msgspec.structs import replace

from gossipd.deployment.progress_record import HostState, Progress


def with_end(told: Progress, before: Progress | None, heard_s: float) -> Progress:
    """The record as it counts: its times are moved together, so that its duration stays.

    Args:
        told: a record that was heard.
        before: the host's record as it counted until now.
        heard_s: now, in seconds since 1970 on this host's clock.
    """
    if told.state is not HostState.COMPLETE:
        return told
    latest_s = int(heard_s)
    if before is not None and before.state is HostState.COMPLETE and before.started_s:
        latest_s = min(latest_s, before.started_s + before.elapsed_s)
    if told.started_s + told.elapsed_s <= latest_s:
        return told
    started_s = max(1, latest_s - told.elapsed_s)
    return replace(told, started_s=started_s, elapsed_s=max(0, latest_s - started_s))
