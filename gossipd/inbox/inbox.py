"""The inbox: a manifest dropped into a folder becomes a deployment, and its file says what became of it.

What lives here: when to look, what to remember between looks, and the words written for people. What does not: how a
file is read and moved (``drop_folder``); what a manifest is: the daemon's ``offer`` judges the bytes.

One task looks when the kernel reports a change, when a waiting file has been quiet long enough, and every
``rescan_s`` whatever the kernel says: events are lost when the queue overflows, on network file systems, and for good
when the folder is deleted and made again (the watch then stays silent; we notice the new inode and watch that).
The watch is a descriptor that the loop waits for: a drop is judged some 30 ms later, nothing wakes up while there is
none. Rejected: watchfiles, whose thread wakes up 25 times a second in an idle daemon, 8 % of what that takes, and
tells of a drop 50 to 100 ms later.

A file is offered once per content, as soon as it rests for a moment: a good signature proves that it is whole. A
refusal that a half-written file would also get (``unfinished_codes``: an envelope that is cut short has a wrong
signature) is kept back until the file has been quiet for ``unfinished_s``; if it grows in the meantime it is judged
anew. A disk that will not move the file away delays only the move.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

import structlog
import trio
from inotify_simple import INotify, flags

from gossipd.core.errors import GossipdError, LocalError
from gossipd.inbox.drop_folder import ACCEPTED, REJECTED, Drop, DropError, DropFolder, Print, UnfinishedError
from gossipd.runtime.worker_threads import run_blocking

Offer = Callable[[bytes, str], Awaitable[str]]
"""Judge the bytes of a file of that name. Returns a sentence on what was done with it ("qwen@3 accepted").
Raises GossipdError to refuse it, QueueFullError to be asked again later."""

_LOOK_S_MIN = 0.02
# Not MODIFY: what is still being written is closed later. CREATE is for a link, which is whole at once.
_EVENTS = flags.CLOSE_WRITE | flags.MOVED_TO | flags.CREATE | flags.ATTRIB | flags.DELETE_SELF | flags.MOVE_SELF
log = structlog.get_logger("inbox")


class QueueFullError(LocalError):
    """The daemon has as many live deployments as it may have. Fault: nobody. Retry: by itself, later."""

    code = "E_QUEUE_FULL"


@dataclass(frozen=True, slots=True, kw_only=True)
class InboxSettings:
    """When to look, and how much to take on."""

    whole_s: float = 0.02  # a good signature proves a file whole, so a pause of its writer costs one look in vain
    quiet_s: float = (
        1.0  # for refusals: operations practice: a file unchanged for a second is whole more often than not
    )
    unfinished_s: float = 4.0  # longer than any pause of a copy that still runs; delays only refusals
    rescan_s: float = 5.0  # the table of faults allows 30 s for a missed event; a listing costs under a millisecond
    bytes_max: int = 64 * 1024 * 1024 + 4096  # the manifest limit, and its envelope
    drops_max: int = 256  # looked at in one pass; the rest waits its turn in the folder, which is the queue
    unfinished_codes: frozenset[str] = frozenset({"E_WATCH_EMPTY", "E_SIG_INVALID", "E_SIG_MISSING", "E_DECODE"})


@dataclass(slots=True)
class _Seen:
    """What is remembered of one name: since when it has had this print, and the verdict on it."""

    print: Print
    since: float
    judged: bool = False
    reason: str | None = None  # of a refusal
    code: str = ""


@dataclass(slots=True)
class InboxStatistics:
    """For status and metrics. ``trouble`` is what keeps the inbox from working, in words; None when it works."""

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
    ) -> None:
        self._settings = settings or InboxSettings()
        self._folder = DropFolder(directory, bytes_max=self._settings.bytes_max)
        self._offer = offer
        self._wall = wall
        self._seen: dict[str, _Seen] = {}  # bounded by drops_max: names that are no longer listed are forgotten
        self._reasons_due: dict[str, str] = {}  # in rejected/ by name, when the disk would not take the reason yet
        self.statistics = InboxStatistics()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Never returns; cancelled with the daemon. Raises DropError at once when the folder is open to strangers."""
        self._folder.check()
        task_status.started()
        while True:
            watched = await self._inode()
            async with trio.open_nursery() as nursery:
                changed = _Wakeup()
                if watched is not None:
                    nursery.start_soon(self._watch, changed)
                while await self._inode() == watched:
                    delay = await self.look()
                    with trio.move_on_after(delay):
                        await changed.wait()
                nursery.cancel_scope.cancel()

    async def look(self) -> float:
        """One pass over the folder. Returns after how many seconds the next one is due."""
        try:
            await run_blocking(self._folder.check)
            drops, more = await run_blocking(self._folder.scan, self._settings.drops_max)
        except (OSError, DropError) as error:
            self._report_trouble(error)
            return self._settings.rescan_s
        trouble: OSError | None = None
        delay = self._settings.rescan_s if not more else 0.0
        listed = {drop.name for drop in drops}
        self._seen = {name: seen for name, seen in self._seen.items() if name in listed}
        for drop in drops:
            try:
                delay = min(delay, await self._advance(drop))
            except OSError as error:
                trouble = error  # no handles, no space, read-only: this file waits, the others go on
        trouble = await self._write_reasons() or trouble
        self.statistics.waiting = len(self._seen) + more
        self._report_trouble(trouble)
        return max(delay, _LOOK_S_MIN)

    async def _advance(self, drop: Drop) -> float:
        """Take one file as far as it will go now; returns when it wants to be looked at again."""
        now = trio.current_time()
        seen = self._seen.get(drop.name)
        if seen is None or seen.print != drop.print:
            # A file that was at rest long before we first saw it needs no waiting.
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
            seen.reason, seen.code = error.sentence, error.code
        seen.judged = True

    async def _settle(self, drop: Drop, seen: _Seen) -> None:
        folder = ACCEPTED if seen.reason is None else REJECTED
        name = await run_blocking(lambda: self._folder.settle(drop, folder=folder))
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

    async def _write_reasons(self) -> OSError | None:
        """What kept one from being written, if anything did; the others are."""
        trouble: OSError | None = None
        for name, reason in list(self._reasons_due.items()):
            try:
                await run_blocking(self._folder.write_reason, name, reason)
            except OSError as error:
                trouble = error
            else:
                del self._reasons_due[name]
        return trouble

    def _report_trouble(self, error: OSError | DropError | None) -> None:
        words = None
        if error is not None:
            words = error.sentence if isinstance(error, DropError) else f"E_WATCH_DISK: the inbox: {error.strerror}"
        if words != self.statistics.trouble:
            self.statistics.trouble = words
            if words is not None:
                log.warning("inbox does not work", reason=words)
            else:
                log.info("inbox works again")

    async def _inode(self) -> int | None:
        try:
            return (await run_blocking(self._folder.directory.stat)).st_ino
        except OSError:
            return None

    async def _watch(self, changed: _Wakeup) -> None:
        """Ring at every change, for ever. While the kernel will not watch, the rescan remains."""
        said = ""
        while True:
            try:
                await self._ring(changed)
            except OSError as error:
                reason = error.strerror or str(error)
                if reason != said:
                    said = reason
                    log.warning("inbox is only looked at now and then", every_s=self._settings.rescan_s, reason=reason)
            await trio.sleep(self._settings.rescan_s)

    async def _ring(self, changed: _Wakeup) -> None:
        watch = await run_blocking(INotify)  # finding the C library takes some 10 ms, once
        with watch:
            watch.add_watch(self._folder.directory, _EVENTS)
            changed.ring()  # for what came before there was a watch
            while True:
                await trio.lowlevel.wait_readable(watch)
                watch.read(timeout=0)
                changed.ring()


class _Wakeup:
    """Wakes one waiter; ringing before it waits is remembered."""

    def __init__(self) -> None:
        self._event = trio.Event()

    def ring(self) -> None:
        self._event.set()

    async def wait(self) -> None:
        await self._event.wait()
        self._event = trio.Event()
