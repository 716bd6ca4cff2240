"""Marks of network packets: the names of Differentiated Services code points, and the queue of this host for each.

What lives here: names, numbers, priorities. What does not: sockets (``runtime.traffic_marks``) and the settings.
"""

from __future__ import annotations

import re

UNMARKED = 0
_DSCP_MAX = 63
# RFC 8622 (le), RFC 3246 (ef), RFC 5865 (va); cs0 to cs7 are RFC 2474's, af11 to af43 RFC 2597's.
_NAMES = {"le": 1, "ef": 46, "va": 44}
_BELOW_BEST_EFFORT = frozenset({1, 8, 10, 12, 14})  # le, cs1 and af1x
_URGENT_MIN = 32  # cs4: from here on routers serve it before the rest
# From include/uapi/linux/pkt_sched.h; those up to 6 may be set by anybody. ``pfifo_fast`` serves 6 first, 2 last.
_BEST_EFFORT, _BULK, _INTERACTIVE = 0, 2, 6


def parse_dscp(text: str) -> int:
    """0 to 63, from a name ("cs1", "le", "af41") or a number. Raises ValueError with a sentence: the operator's."""
    name = text.lower()
    if name in _NAMES:
        return _NAMES[name]
    if match := re.fullmatch(r"cs([0-7])", name):
        return 8 * int(match[1])
    if match := re.fullmatch(r"af([1-4])([1-3])", name):
        return 8 * int(match[1]) + 2 * int(match[2])
    if re.fullmatch(r"[0-9]{1,2}", name) and int(name) <= _DSCP_MAX:
        return int(name)
    raise ValueError(f"{text[:20]!r} must be cs0 to cs7, le, af11 to af43, va, ef, or a number from 0 to {_DSCP_MAX}")


def priority_of(dscp: int) -> int:
    """SO_PRIORITY for packets with this mark: which of this host's own queues they wait in."""
    if dscp in _BELOW_BEST_EFFORT:
        return _BULK
    return _INTERACTIVE if dscp >= _URGENT_MIN else _BEST_EFFORT
