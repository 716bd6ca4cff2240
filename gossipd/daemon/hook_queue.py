"""Which hook runs next, and again after a failure: pure rules.

What lives here: which hooks a fact has, what has been told, the order, retries and bounds. What does not: processes
(``hooks``).

Each fact is told once to each hook that it has when it begins, and again when it has ended and begins again, also over
restarts: what is complete at the start is told again. What finds no room is told when there is some, and counted as
dropped if it ends before. One hook runs at a time, in the order of the facts. A hook that fails is tried
again ``RETRIES`` times, before the next one; then it is given up, and counted. What waits for a hook that a reload has
taken away is dropped; one for the same kind and names takes it over, so that a corrected command is the next try.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from fnmatch import fnmatchcase

from msgspec import Struct

WAITING_MAX = 256
RETRY_S = (1.0, 5.0)  # after the first failure, after the second
RETRIES = len(RETRY_S)
TIMEOUT_S = 30.0


class HookFact(Struct, frozen=True):
    """Something worth a hook: ``kind`` is complete, failed or alarm; ``fields`` go into the JSON. ``key``: what makes
    it the same fact while its words change; without one, all fields."""

    kind: str
    fields: tuple[tuple[str, str | int], ...]
    key: tuple[str | int, ...] = ()

    @property
    def identity(self) -> tuple[object, ...]:
        """Equal for one fact, however it is worded."""
        return self.kind, self.key or self.fields


class Hook(Struct, frozen=True):
    """A program for facts of one kind.

    ``command`` is its argument vector, which is not empty; ``names`` are patterns of a fact's ``name``, or of its
    ``code`` where it is an alarm."""

    kind: str
    command: tuple[str, ...]
    names: tuple[str, ...] = ("*",)
    timeout_s: float = TIMEOUT_S

    def is_for(self, fact: HookFact) -> bool:
        """Whether it runs for that fact."""
        if fact.kind != self.kind:
            return False
        name = next((str(value) for key, value in fact.fields if key in ("name", "code")), "")
        return any(fnmatchcase(name, pattern) for pattern in self.names)


class HookFigures(Struct):
    """For status."""

    done: int = 0
    failed: int = 0
    dropped: int = 0
    last_failure: str | None = None


class HookQueue:
    """One owner; times are arguments."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[Hook, HookFact]] = deque()
        self._told: set[tuple[object, ...]] = set()
        """Of the facts that are so."""
        self._late: dict[tuple[object, ...], str] = {}
        """Those that found no room, with their kind."""
        self._failures = 0
        self._due_s = 0.0
        self.figures = HookFigures()

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def note(self, facts: list[HookFact], hooks: Sequence[Hook]) -> None:
        """What is so now, and the hooks of now. Facts that were told are known; a hook that comes later is not told."""
        self._follow(hooks)
        present = {fact.identity for fact in facts}
        self._told &= present
        self._drop_late(present)
        for fact in facts:
            if fact.identity in self._told:
                continue
            takers = [hook for hook in hooks if hook.is_for(fact)]
            if len(self._waiting) + len(takers) > WAITING_MAX:
                self._late[fact.identity] = fact.kind
                continue
            self._told.add(fact.identity)
            self._late.pop(fact.identity, None)
            self._waiting += [(hook, fact) for hook in takers]

    def next(self, now: float) -> tuple[Hook, HookFact] | None:
        """The hook to run now, and for what; say with ``ended`` how it ended."""
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

    def _drop_late(self, present: set[tuple[object, ...]]) -> None:
        for identity in [one for one in self._late if one not in present]:
            kind = self._late.pop(identity)
            self.figures.dropped += 1
            self.figures.last_failure = f"{WAITING_MAX} hooks waited already; one for {kind} was dropped"

    def _follow(self, hooks: Sequence[Hook]) -> None:
        """Give what waits to the hooks of now."""
        if all(hook in hooks for hook, _ in self._waiting):
            return
        takers = [(_taker(hook, hooks), fact) for hook, fact in self._waiting]
        if takers[0][0] is None:
            self._failures, self._due_s = 0, 0.0
        self._waiting = deque((taker, fact) for taker, fact in takers if taker is not None)


def _taker(hook: Hook, hooks: Sequence[Hook]) -> Hook | None:
    """The hook of now for what waits for that one."""
    if hook in hooks:
        return hook
    return next((one for one in hooks if (one.kind, one.names) == (hook.kind, hook.names)), None)
