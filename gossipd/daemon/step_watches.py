"""Finished steps of training runs become versions by themselves: the tables ``[[publish.watch]]``.

What lives here: one task for each table, which follows a reload, and what an operator is told. What does not: when a
step is finished (``publish.step_watch``, as for ``gossipd watch``), and publishing (``job_publishing``).

Where a table names no user, files of any owner are published, so nobody else may write to the directory. With a user
they must be that one's, as if it had published them. The first look comes some seconds after the daemon's start: a host
that has lost its state hears first which steps were published.
"""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import trio
from msgspec import Struct, field

from gossipd.api.ports import PublishStep
from gossipd.config.job_sections import WatchEntry
from gossipd.core.errors import GossipdError
from gossipd.core.units import printable
from gossipd.daemon.alarms import Alarms
from gossipd.daemon.live_settings import LiveSettings
from gossipd.publish.step_watch import KnownSteps, PublishStepDirectory, StepListing, StepWatch
from gossipd.runtime.directory_safety import open_directory
from gossipd.runtime.file_access import user_number
from gossipd.runtime.logs import get_logger
from gossipd.runtime.look_interval import until_next_look
from gossipd.runtime.worker_threads import run_blocking

if TYPE_CHECKING:
    from gossipd.publish.step_listing import StepLister

ALARM = "E_STEPS"
START_S = 5.0  # gossip tells a new host what is published within two
LOOK_S = 0.5
RESTING_LOOK_S = 1.0  # without a directory to watch: when the daemon is awake anyway
SHOWN = 3
NOBODY = -1
log = get_logger("watch")


class StepPublishing(Protocol):
    """What ``job_publishing`` does."""

    def publish(
        self, user: int, directory: str, name: str, *, version: int | None, step: int | None, how: str,
        keep_last: int | None = None, keep_every: int | None = None, exclude: str = "",
    ) -> AsyncGenerator[PublishStep, None]: ...  # fmt: skip

    def known_steps(self, name: str) -> KnownSteps: ...


class _Watched(Struct, eq=False):
    """One directory under watch."""

    entry: WatchEntry
    lister: StepLister
    steps: StepWatch | None = None
    """Made with the first listing, for which the last version counts that is known then."""
    trouble: str = ""
    """Why the directory itself cannot be looked at."""
    scope: trio.CancelScope = field(default_factory=trio.CancelScope)

    def sentences(self) -> list[str]:
        """What an operator has to see to."""
        found = [f"{self.entry.directory}: {self.trouble}"] if self.trouble else []
        troubles = self.steps.troubles() if self.steps is not None else {}
        return found + [f"{self.entry.directory}/{name}: {words}" for name, words in sorted(troubles.items())]


class StepWatches:
    """One per daemon."""

    def __init__(self, live: LiveSettings, publishing: StepPublishing, alarms: Alarms) -> None:
        self._live = live
        self._publishing = publishing
        self._alarms = alarms
        self._watched: dict[WatchEntry, _Watched] = {}
        self._unlistable: dict[WatchEntry, str] = {}
        """Of the tables, those for which what lists could not be imported, and why; tried again at each look."""

    async def run(self, *, start_s: float = START_S) -> None:
        """Never returns."""
        await trio.sleep(start_s)
        async with trio.open_nursery() as nursery:
            while True:
                self._follow(nursery)
                self._tell()
                await until_next_look(LOOK_S if self._watched else RESTING_LOOK_S)

    def _follow(self, nursery: trio.Nursery) -> None:
        """Watch what the configuration says now. A publication of a table that has gone ends."""
        wanted = self._live.config.publish.watch
        self._unlistable.clear()
        for entry in set(self._watched) - set(wanted):
            self._watched.pop(entry).scope.cancel()
        for entry in wanted:
            if entry not in self._watched:
                try:
                    from gossipd.publish.step_listing import StepLister  # only hosts that watch a directory need it
                except (OSError, ImportError, MemoryError) as error:
                    self._unlistable[entry] = f"{entry.directory}: what lists it cannot be loaded: {error}"
                    continue
                exclude, marker = "\n".join(entry.exclude), entry.marker or None
                watched = _Watched(entry, StepLister(Path(entry.directory), entry.pattern, exclude, marker))
                self._watched[entry] = watched
                nursery.start_soon(self._watch, watched)

    def _tell(self) -> None:
        sentences = list(self._unlistable.values())
        sentences += [sentence for one in self._watched.values() for sentence in one.sentences()]
        if not sentences:
            self._alarms.cured(ALARM)
            return
        more = f"; and {len(sentences) - SHOWN} more" if len(sentences) > SHOWN else ""
        self._alarms.ring_as(ALARM, f"not published: {'; '.join(sentences[:SHOWN])}{more}")

    async def _watch(self, watched: _Watched) -> None:
        with watched.scope:
            while True:
                await self._look(watched)
                await until_next_look(LOOK_S)

    async def _look(self, watched: _Watched) -> None:
        entry = watched.entry
        try:
            listings = await run_blocking(_listed, watched)
        except FileNotFoundError:  # the job has not made it yet
            listings = {}
            watched.trouble = ""
            if watched.steps is None:
                return
        except OSError as error:
            watched.trouble = error.strerror or str(error)
            return
        watched.trouble = ""
        if watched.steps is None:
            watched.steps = StepWatch(
                marker=entry.marker or None, known=self._publishing.known_steps(entry.name),
                keep_last=entry.keep_last or None, keep_every=entry.keep_every or None,
            )  # fmt: skip
        steps = watched.steps
        steps.looked(listings, trio.current_time())
        while commands := steps.drain():
            for command in commands:
                if isinstance(command, PublishStepDirectory):
                    await self._publish(entry, command, steps)
                else:
                    log.warning(
                        "step not published",
                        directory=printable(_path(entry, command.directory)),
                        reason=command.sentence,
                    )

    async def _publish(self, entry: WatchEntry, command: PublishStepDirectory, steps: StepWatch) -> None:
        user = os.geteuid() if not entry.user else user_number(entry.user)
        lines = self._publishing.publish(
            NOBODY if user is None else user, _path(entry, command.directory), entry.name, version=None,
            step=command.step, how="copy", keep_last=entry.keep_last or None, keep_every=entry.keep_every or None,
            exclude="\n".join(entry.exclude),
        )  # fmt: skip
        try:
            async with aclosing(lines) as told:
                async for line in told:
                    version, made = line.version, (line.file_count, line.bytes_total)
        except GossipdError as error:
            steps.failed(command.directory, error.sentence, trio.current_time())
        else:
            log.info("step published", directory=_path(entry, command.directory), name=entry.name, version=version)
            steps.published(command.directory, trio.current_time(), made)


def _listed(watched: _Watched) -> dict[str, StepListing]:
    """In a thread. Raises OSError."""
    if not watched.entry.user:
        try:
            os.close(open_directory(watched.entry.directory))
        except PermissionError as error:
            raise PermissionError(0, f"{error.strerror}; or name its user in publish.watch") from None
    return watched.lister.look()


def _path(entry: WatchEntry, directory: str) -> str:
    return str(Path(entry.directory, directory))
