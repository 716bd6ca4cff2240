"""Whose turn it is to hash or copy: few publications that move, however many hang.

What lives here: threads for publications, and why one of them does not move. What does not: what they do
(``job_publishing``).

A directory on a network file system whose server is gone gives no byte and no error, and nothing ends the thread that
reads it. A publication that has not moved for a while so takes no turn from the others.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, TypeVarTuple

import trio
from msgspec import Struct

from gossipd.api.ports import PublishStep
from gossipd.daemon.publishing_job import PublishingJob
from gossipd.publish.errors import PublishError
from gossipd.runtime.worker_threads import run_blocking

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

AT_ONCE = 4  # publications that hash or copy and move
HANGING_MAX = 12  # beside these: their threads
STILL_S = 30.0  # network file systems try again by themselves for some ten seconds


class _Work(Struct, eq=False):
    """What one publication does in a thread, or waits to do; ``step`` is the last that was looked at, and when it was
    new."""

    job: PublishingJob
    has_begun: bool = False
    step: PublishStep | None = None
    moved_s: float = 0.0


class PublishingTurns:
    """One per daemon; in trio's thread."""

    def __init__(self) -> None:
        self._limiter = trio.CapacityLimiter(AT_ONCE)
        self._works: dict[int, _Work] = {}  # by identity
        self._names: dict[str, trio.Lock] = {}

    def of_name(self, name: str) -> trio.Lock:
        """Publications of one name go one after the other: the version depends on the last."""
        self._names = {key: lock for key, lock in self._names.items() if lock.statistics().locked}
        return self._names.setdefault(name, trio.Lock())

    async def run(self, job: PublishingJob, call: Callable[[*Ts], T], *args: *Ts, must_end: bool = False) -> T:
        """``call`` in a thread, when its turn has come. A job that is ended leaves the thread behind, unless what it
        does must end first. Raises PublishError where too many hang."""
        if self._look() >= HANGING_MAX:
            why = f"{HANGING_MAX} publications wait for directories that do not answer; see their file systems"
            raise PublishError(f"{job.step.name} is not published: {why}")

        work = _Work(job)
        self._works[id(work)] = work

        def in_turn() -> T:
            work.has_begun = True
            try:
                return call(*args)
            finally:
                self._works.pop(id(work), None)

        try:
            return await run_blocking(in_turn, limiter=self._limiter, abandon_on_cancel=not must_end)
        finally:
            if not work.has_begun:
                self._works.pop(id(work), None)

    def why_still(self, job: PublishingJob) -> str:
        """Why a job does not move, in words; empty: it moves, or does other things. Ask every second or so."""
        self._look()
        works, name = list(self._works.values()), job.step.name
        own = next((work for work in works if work.job is job), None)
        if own is None:  # it waits for the name, or does what needs no turn
            is_behind = any(work.job.step.name == name for work in works)
            return f"another publication of {name} is under way" if is_behind else ""
        if not own.has_begun:
            return f"{AT_ONCE} other publications are under way" if self._limiter.available_tokens <= 0 else ""
        still_s = trio.current_time() - own.moved_s
        return f"nothing has been read for {still_s:.0f} s; see its file system" if still_s >= STILL_S else ""

    def _look(self) -> int:
        """Give those that hang no turn. Returns how many do."""
        now_s, hanging = trio.current_time(), 0
        for work in list(self._works.values()):
            if not work.has_begun:
                continue
            if work.step is not work.job.step:
                work.step, work.moved_s = work.job.step, now_s
            hanging += now_s - work.moved_s >= STILL_S
        self._limiter.total_tokens = AT_ONCE + min(hanging, HANGING_MAX)
        return hanging
