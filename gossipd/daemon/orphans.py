"""Processes that others left to this one, ended: as process 1 of a container the daemon is their parent.

What lives here: which of them nobody waits for, and taking them off the system's table. What does not: the daemon's own
programs (``hook_program``), whose parts wait for them at once.

A container without an init (``docker run --init`` has one) gives process 1 what a hook leaves running, and each keeps a
place of ``pids.max`` until it is waited for. What is seen ended at two looks is nobody's: the part that has begun a
process waits for it, or takes its end within moments.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from gossipd.runtime.look_interval import until_next_look

LOOK_S = 10.0
_ENDED = "Z"


class Orphans:
    """One per daemon, on the trio loop."""

    def __init__(self) -> None:
        self._seen: frozenset[int] = frozenset()

    async def run(self) -> None:
        """Returns at once where the daemon is not process 1."""
        while os.getpid() == 1:
            await until_next_look(LOOK_S)
            self.look()

    def look(self) -> None:
        """Wait for those that had ended at the last look."""
        ended = frozenset(_ended_children())
        for process in ended & self._seen:
            with suppress(ChildProcessError):
                os.waitpid(process, os.WNOHANG)
        self._seen = ended - self._seen


def _ended_children() -> list[int]:
    """Empty where /proc is not mounted."""
    try:
        places = [place for place in Path("/proc").iterdir() if place.name.isdigit()]
    except OSError:
        return []
    return [int(place.name) for place in places if _is_ended_child(place)]


def _is_ended_child(place: Path) -> bool:
    try:
        state, parent = (place / "stat").read_text().rpartition(")")[2].split()[:2]
    except (OSError, ValueError):
        return False
    return state == _ENDED and int(parent) == os.getpid()
