"""Whether the kernel says that something keeps the wall clock right.

What lives here: that one question. What does not: whether other hosts' clocks agree (``deployment.cluster_clock``).
"""

from __future__ import annotations

import ctypes

_UNSYNCHRONISED = 5  # TIME_ERROR of adjtimex(2)


def is_clock_kept() -> bool | None:
    """What ``adjtimex`` answers; None where it may not be asked."""
    buffer = ctypes.create_string_buffer(512)  # struct timex with all its zeroes: mode 0 only reads
    answer = ctypes.CDLL(None, use_errno=True).adjtimex(buffer)
    return None if answer < 0 else answer != _UNSYNCHRONISED
