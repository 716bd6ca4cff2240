"""Judges what is dropped into the inbox: a manifest becomes a deployment, and the file's place shows the result.

What lives here: when to look, what to remember between looks, and the messages for people. What does not: reading and
moving files (``drop_folder``), judging manifests (the daemon's ``offer``), and the file of what is remembered
(``stuck_files``).

One task looks when the kernel reports a change, when a waiting file has been quiet long enough, and every ``rescan_s``.
The rescan is needed because events are lost when the queue overflows, on network file systems, and when the folder is
deleted and made again (the watch stays silent; the task notices the new inode and watches that). It is rarer where the
kernel tells every change (``watched_rescan_s``). The loop waits for the watch's descriptor, so an idle inbox wakes
nothing.

A file is offered once per content, after a short rest: a good signature proves that it is whole. Some refusals may be
due to a half-written file (``unfinished_codes``: a cut envelope has a wrong signature). They are held back until the
file has been quiet for ``unfinished_s``; if it grows it is judged again. A disk that refuses the move delays only the
move, and what was accepted is remembered over a restart: else a file that stayed would bring back what was removed.

Rejected: watchfiles, because its thread wakes an idle daemon 25 times a second and reports a drop later.
"""

from __future__ import annotations

import errno
import math
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

import trio
from inotify_simple import INotify, flags
from msgspec import Struct

from gossipd.core.errors import GossipdError, QueueFullError
from gossipd.inbox.drop_folder import (
    ACCEPTED,
    HOST_TROUBLES,
    REJECTED,
    Drop,
    DropError,
    DropFolder,
    Print,
    UnfinishedError,
)
from gossipd.inbox.stuck_files import InboxMemory, NoMemory, StuckFile, stuck_from_bytes, stuck_to_bytes
from gossipd.runtime.logs import get_logger
from gossipd.runtime.look_interval import next_look_s
from gossipd.runtime.worker_threads import run_blocking

Offer = Callable[[bytes, str], Awaitable[str]]
"""Judge the bytes of a file of that name. Returns the result as a sentence ("qwen@3 accepted"). Raises GossipdError to
refuse the file, QueueFullError to be asked again later.
"""

_LOOK_S_MIN = 0.02
_RESCAN_WITHIN_S = 1.0  # of its time, together with what else the daemon looks at
# Not MODIFY, because a written file is closed later. CREATE is for hard links, which are whole at once.
_EVENTS = flags.CLOSE_WRITE | flags.MOVED_TO | flags.CREATE | flags.ATTRIB | flags.DELETE_SELF | flags.MOVE_SELF
_CURES = {
    errno.ENOSPC: "make room on the disk",
    errno.EDQUOT: "raise the quota, or delete files",
    errno.EROFS: "make the file system writable",
    **dict.fromkeys(HOST_TROUBLES, "it is tried again"),
}
_NO_LINK = flags.ONLYDIR | flags.DONT_FOLLOW
log = get_logger("inbox")


class InboxSettings(Struct, frozen=True, kw_only=True):
    """When to look, and how much to take on."""

    whole_s: float = 0.02  # short, because a pause of a writer costs only one vain look
    quiet_s: float = (
        1.0  # for refusals: operations practice: a file unchanged for a second is whole more often than not
    )
    unfinished_s: float = 4.0  # longer than the pauses of a running copy; delays only refusals
    rescan_s: float = 5.0
    watched_rescan_s: float = 5.0  # of an empty inbox; a missed event may cost 30 s at most (table of faults)
    bytes_max: int = 64 * 1024 * 1024 + 4096  # the manifest limit and its envelope
    drops_max: int = 256  # in one pass; the rest waits in the folder
    unfinished_codes: frozenset[str] = frozenset({"E_WATCH_EMPTY", "E_SIG_INVALID", "E_SIG_MISSING", "E_DECODE"})


class _Seen(Struct):
    """The state of one name: since when it has had this print, and the verdict."""

    print: Print
    since: float
    judged: bool = False
    reason: str | None = None  # of a refusal
    code: str = ""
    is_stuck: bool = False  # it is judged, and cannot be moved


class InboxStatistics(Struct):
    """For status and metrics. ``trouble`` says why the inbox does not work; None while it works."""

    accepted: int = 0
    refused: int = 0
    waiting: int = 0
    trouble: str | None = None


class Inbox:
    """Watches one folder for ever. ``statistics`` may be read at any time."""

    def __init__(
        self,
        directory: Path,
        offer: Offer,
        *,
        settings: InboxSettings | None = None,
        wall: Callable[[], float] = time.time,
        memory: InboxMemory | None = None,
    ) -> None:
        """Raises what ``memory`` raises."""
        self._settings = settings or InboxSettings()
        self._folder = DropFolder(directory, bytes_max=self._settings.bytes_max)
        self._offer = offer
        self._wall = wall
        self._memory = memory or NoMemory()
        self._kept = self._memory.inbox()
        self._seen = {  # bounded by drops_max: unlisted names are dropped
            one.name: _Seen(one.print, -math.inf, judged=True, is_stuck=True) for one in stuck_from_bytes(self._kept)
        }
        self._reasons_due: dict[str, str] = {}  # by name in rejected/, while the disk refuses the reason file
        self._is_watched = False
        self.statistics = InboxStatistics()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Never returns; cancelled with the daemon. Raises DropError at once when others can write to the folder."""
        self._folder.check()
        task_status.started()
        while True:
            watched = await run_blocking(self._inode)
            async with trio.open_nursery() as nursery:
                changed = _Wakeup()
                if watched is not None:
                    nursery.start_soon(self._watch, changed)
                while (delay := await self._look(partial(self._is_inode, watched))) is not None:
                    with trio.move_on_at(self._next_look_s(delay)):
                        await changed.wait()
                nursery.cancel_scope.cancel()

    def _next_look_s(self, delay: float) -> float:
        if delay < self._settings.rescan_s:
            return trio.current_time() + delay
        return next_look_s(_RESCAN_WITHIN_S, delay_s=delay)  # nobody waits for a rescan

    async def look(self) -> float:
        """One pass over the folder. Returns the seconds until the next one is due."""
        delay = await self._look(lambda: True)
        assert delay is not None, "any folder will do"
        return delay

    async def _look(self, is_watched: Callable[[], bool]) -> float | None:
        """``look``; None when another folder stands in the place of the one that is watched."""
        try:
            found = await run_blocking(self._scan, is_watched)
            if found is None:
                return None
            drops, more = found
        except (OSError, DropError) as error:
            self._report_trouble(error)
            return self._settings.rescan_s
        trouble: OSError | GossipdError | None = None
        delay = self._settings.rescan_s if not more else 0.0
        listed = {drop.name for drop in drops}
        self._seen = {name: seen for name, seen in self._seen.items() if name in listed}
        for drop in drops:
            try:
                delay = min(delay, await self._advance(drop))
            except (OSError, DropError) as error:
                trouble = error  # no descriptors, no space, read-only, a folder that is not ours: only this file waits
        trouble = await self._write_reasons() or trouble
        forgotten = await self._remember()
        trouble = trouble or forgotten
        self.statistics.waiting = len(self._seen) + more
        self._report_trouble(trouble)
        if self._is_watched and not (self._seen or more or trouble):
            return self._settings.watched_rescan_s
        return max(delay, _LOOK_S_MIN)

    def _scan(self, is_watched: Callable[[], bool]) -> tuple[list[Drop], int] | None:
        if not is_watched():
            return None
        return self._folder.scan(self._settings.drops_max)

    async def _advance(self, drop: Drop) -> float:
        """Take one file as far as possible now. Returns the seconds until its next look."""
        now = trio.current_time()
        seen = self._seen.get(drop.name)
        if seen is None or seen.print != drop.print:
            # A file that was at rest long before the first look need not wait.
            rest = 0.0 if seen is not None else max(0.0, self._wall() - drop.modified_s)
            seen = self._seen[drop.name] = _Seen(drop.print, now - rest)
        quiet = now - seen.since
        if quiet < self._settings.whole_s:
            return self._settings.whole_s - quiet
        if not seen.judged:
            try:
                await self._judge(drop, seen)
            except UnfinishedError:
                return self._settings.quiet_s
            except QueueFullError:
                return self._settings.rescan_s
        if seen.reason is not None and quiet < self._settings.quiet_s:
            return self._settings.quiet_s - quiet
        if seen.code in self._settings.unfinished_codes and quiet < self._settings.unfinished_s:
            return self._settings.unfinished_s - quiet
        await self._settle(drop, seen)
        return self._settings.rescan_s

    async def _judge(self, drop: Drop, seen: _Seen) -> None:
        try:
            content = await run_blocking(self._folder.read, drop)
            if not content:
                raise DropError(f"{drop.shown} is empty", code="E_WATCH_EMPTY")
            sentence = await self._offer(content, drop.shown)
            log.info("manifest taken", file=drop.shown, outcome=sentence)
        except QueueFullError:
            raise
        except GossipdError as error:
            if error.code == "E_WATCH_DIRECTORY":
                raise  # the folder's fault, not the file's
            seen.reason, seen.code = error.sentence, error.code
        seen.judged = True

    async def _settle(self, drop: Drop, seen: _Seen) -> None:
        try:
            name = await self._leave(drop, seen)
        except (OSError, DropError):
            seen.is_stuck = True
            raise
        del self._seen[drop.name]
        if name is None:
            return
        if seen.reason is None:
            self.statistics.accepted += 1
            return
        self.statistics.refused += 1
        log.warning("manifest refused", file=drop.shown, code=seen.code, reason=seen.reason)
        if len(self._reasons_due) < self._settings.drops_max:
            self._reasons_due[name] = seen.reason

    async def _leave(self, drop: Drop, seen: _Seen) -> str | None:
        """Move the file out of the inbox, or delete it where it is accepted and cannot be moved. Returns its name, None
        when it is gone. Raises DropError when it stays.
        """
        folder = ACCEPTED if seen.reason is None else REJECTED
        try:
            return await run_blocking(lambda: self._folder.settle(drop, folder=folder))
        except OSError as error:
            refused = error
        words = f"{self._folder.directory / folder}: {refused.strerror}"
        if folder == ACCEPTED and refused.errno not in HOST_TROUBLES:
            try:
                await run_blocking(self._folder.delete, drop)
            except OSError as error:
                words += f", and it cannot be deleted: {error.strerror}"
            else:
                log.warning("manifest deleted instead of moved", file=drop.shown, reason=words)
                return drop.name
        cure = _CURES.get(refused.errno or 0, "move the file out of the inbox")
        raise DropError(f"{drop.shown} is judged and cannot be moved to {words}; {cure}", code="E_WATCH_DISK")

    async def _remember(self) -> OSError | GossipdError | None:
        """Keep what is accepted and cannot be moved, where that has changed. Returns the error, if any. What is refused
        is judged again by the next start, when its reason may have gone."""
        stuck = [StuckFile(name, one.print) for name, one in self._seen.items() if one.is_stuck and one.reason is None]
        kept = stuck_to_bytes(stuck)
        if kept == self._kept:
            return None
        try:
            await run_blocking(self._memory.keep_inbox, kept)
        except (OSError, GossipdError) as error:
            return error
        self._kept = kept
        return None

    async def _write_reasons(self) -> OSError | DropError | None:
        """Write the reasons that are due. Returns the last error, if any."""
        trouble: OSError | DropError | None = None
        for name, reason in list(self._reasons_due.items()):
            try:
                await run_blocking(self._folder.write_reason, name, reason)
            except (OSError, DropError) as error:
                trouble = error
            else:
                del self._reasons_due[name]
        return trouble

    def _report_trouble(self, error: OSError | GossipdError | None) -> None:
        words = None
        if isinstance(error, GossipdError):
            words = error.sentence
        elif error is not None:
            words = f"E_WATCH_DISK: the inbox {self._folder.directory}: {error.strerror}"
        if words != self.statistics.trouble:
            self.statistics.trouble = words
            if words is not None:
                log.warning("inbox does not work", reason=words)
            else:
                log.info("inbox works again")

    def _is_inode(self, watched: int | None) -> bool:
        return self._inode() == watched

    def _inode(self) -> int | None:
        try:
            return self._folder.directory.stat().st_ino
        except OSError:
            return None

    async def _watch(self, changed: _Wakeup) -> None:
        """Wake the task at every change, for ever. While the kernel cannot watch, the rescan remains."""
        said = ""
        while True:
            try:
                await self._ring(changed)
            except OSError as error:
                reason = error.strerror or str(error)
                if reason != said:
                    said = reason
                    log.warning("inbox is scanned at intervals only", every_s=self._settings.rescan_s, reason=reason)
            await trio.sleep(self._settings.rescan_s)

    async def _ring(self, changed: _Wakeup) -> None:
        watch = await run_blocking(INotify)  # loads the C library at the first use
        with watch:
            watch.add_watch(self._folder.directory, _EVENTS | _NO_LINK)
            self._is_watched = True
            changed.ring()  # for changes before the watch
            try:
                while True:
                    await trio.lowlevel.wait_readable(watch)
                    watch.read(timeout=0)
                    changed.ring()
            finally:
                self._is_watched = False


class _Wakeup:
    """Wakes one waiter; a ring before the wait is remembered."""

    def __init__(self) -> None:
        self._event = trio.Event()

    def ring(self) -> None:
        self._event.set()

    async def wait(self) -> None:
        await self._event.wait()
        self._event = trio.Event()
