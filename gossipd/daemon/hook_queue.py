"""Which hook runs next, and again after a failure: pure rules.

What lives here: what has been told, the order, retries and bounds. What does not: processes (``hooks``).

Each fact is told once in the life of a daemon, at least once over its restarts: what is complete at the start is told
again. One hook runs at a time, in the order of the facts. A hook that fails is tried again ``RETRIES`` times, before
the next one; then it is given up, and counted.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

WAITING_MAX = 256
TOLD_MAX = 4096
RETRY_S = (1.0, 5.0)  # after the first failure, after the second
RETRIES = len(RETRY_S)


@dataclass(frozen=True, slots=True)
class HookFact:
    """Something worth a hook: ``kind`` is complete, failed or alarm; ``fields`` go into the JSON."""

    kind: str
    fields: tuple[tuple[str, str | int], ...]


@dataclass(slots=True)
class HookFigures:
    """For status."""

    done: int = 0
    failed: int = 0
    dropped: int = 0
    last_failure: str | None = None


class HookQueue:
    """One owner; times are arguments."""

    def __init__(self) -> None:
        self._waiting: deque[HookFact] = deque()
        self._told: dict[HookFact, None] = {}
        self._failures = 0
        self._due_s = 0.0
        self.figures = HookFigures()

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def note(self, facts: list[HookFact], commands: Mapping[str, tuple[str, ...]]) -> None:
        """What is so now. Facts that were told are known; those without a command are not told later either."""
        for fact in facts:
            if fact in self._told:
                continue
            self._told[fact] = None
            if len(self._told) > TOLD_MAX:
                del self._told[next(iter(self._told))]
            if not commands.get(fact.kind):
                continue
            if len(self._waiting) >= WAITING_MAX:
                self.figures.dropped += 1
                self.figures.last_failure = f"{WAITING_MAX} hooks wait already; one for {fact.kind} was dropped"
                continue
            self._waiting.append(fact)

    def next(self, now: float) -> HookFact | None:
        """The fact whose hook is to run now; say with ``ended`` how it ended."""
        return self._waiting[0] if self._waiting and now >= self._due_s else None

    def ended(self, trouble: str | None, now: float) -> None:
        """The hook ended; ``trouble`` says how it failed, None is success."""
        if trouble is None:
            self.figures.done += 1
        else:
            self.figures.last_failure = trouble
            if self._failures < RETRIES:
                self._due_s = now + RETRY_S[self._failures]
                self._failures += 1
                return
            self.figures.failed += 1
        self._waiting.popleft()
        self._failures, self._due_s = 0, 0.0
