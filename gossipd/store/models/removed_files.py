"""Looking for published models from which somebody removed, renamed or moved files.

What lives here: the look, which costs one ``stat`` for each directory. What does not: telling an operator (the daemon),
making the files again (``repair``), and files whose bytes changed (``scrub``).

A directory's time changes with each name in it. So a model whose directories all have the times of the look before is
as it was; of another one each file is looked at. Without this, nobody hears of a model that was deleted by hand until
its next chunk is read: with many models that is hours later.

A host that cannot look, as one without a free descriptor, keeps the verdict of the look before.

Rejected: making the files again at once, because a reader of their directory would find zeros where it finds no file.

A look goes over at most ``DIRECTORIES_MAX`` directories, and goes on where the last one ended. A model with more of
them is looked at when so many looks have passed that the mean is kept.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from threading import Lock

from msgspec import Struct

from gossipd.core.ids import DeploymentId
from gossipd.runtime.system_refusals import note_refusal
from gossipd.store.disk.disk import Disk, NotAFileError
from gossipd.store.journal.recovery import wrong_sizes
from gossipd.store.models.context import Context
from gossipd.store.models.replica import ModelReplica

DIRECTORIES_MAX = 2_000
_GONE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EXDEV)  # the last two: behind a link, or outside the store


class _Directories(Struct, frozen=True):
    """Those of one model, and what they had in them when its files were last looked at; None before the first time."""

    paths: tuple[str, ...]
    mark: int | None
    lacks: bool = False


class RemovedFiles:
    """One per store. Thread-safe; only looks wait, for each other."""

    def __init__(self, context: Context, published: Callable[[], Sequence[ModelReplica]]) -> None:
        self._context = context
        self._published = published
        self._looking = Lock()
        self._seen: dict[ModelReplica, _Directories] = {}
        self._glanced: list[ModelReplica] = []  # that ``glance`` found to lack files; each once
        self._last: DeploymentId | None = None
        self._saved = 0
        """Directories that earlier looks left out, for a model that has more than one look goes over."""

    def look(self) -> list[ModelReplica]:
        """The models that lack files now, and did not at the look before."""
        with self._looking:
            published = self._published()
            self._seen = {one: self._seen.get(one) or _Directories(_directories(one), None) for one in published}
            glanced, self._glanced = self._glanced, []
            return [*glanced, *(replica for replica in self._turn() if self._look_at(replica))]

    def look_again(self, replica: ModelReplica) -> None:
        """The daemon has mended a model: look whether it still lacks what it lacked."""
        if not self.lacks(replica):
            return  # without the lock, as a look over others may take long
        with self._looking:
            if self.lacks(replica):
                self._look_at(replica)

    def glance(self) -> None:
        """Look for trees that are gone as a whole, and again at models that lack files. Nothing while a look goes on,
        which sees as much."""
        if not self._looking.acquire(blocking=False):
            return
        try:
            for replica in self._published():
                seen = self._seen.get(replica) or _Directories(_directories(replica), None)
                if seen.lacks or self._context.disk.names_mark(replica.tree) is None:
                    self._seen[replica] = seen
                    if self._look_at(replica):
                        self._glanced.append(replica)
        finally:
            self._looking.release()

    def lacks(self, replica: ModelReplica) -> bool:
        """Whether a published model lacked files at the last look. Waits for nothing."""
        seen = self._seen.get(replica)
        return seen is not None and seen.lacks

    def any_lack(self) -> bool:
        """Whether any model lacked files at the last look. Waits for nothing."""
        return any(seen.lacks for seen in list(self._seen.values()))

    def _look_at(self, replica: ModelReplica) -> bool:
        """Whether it lacks files now, and did not at the look before."""
        seen = self._seen[replica]
        mark = _mark_of(self._context.disk, seen.paths)
        if mark is not None and mark == seen.mark and not seen.lacks:
            return False
        try:
            lacks = self._lacks(replica) and not replica.is_closed
        except OSError as error:  # what this host lacks, or its disk, and nobody's deed; the next look sees
            note_refusal(error)
            return False
        self._seen[replica] = _Directories(seen.paths, mark, lacks)
        return lacks and not seen.lacks

    def _turn(self) -> list[ModelReplica]:
        """Those that this look is about, after those of the last one."""
        known = list(self._seen)
        ids = [one.deployment for one in known]
        first = ids.index(self._last) + 1 if self._last in ids else 0
        turn: list[ModelReplica] = []
        left, self._saved = self._saved + DIRECTORIES_MAX, 0
        for replica in known[first:] + known[:first]:
            left -= len(self._seen[replica].paths)
            if left < 0:
                self._saved = 0 if turn else left + len(self._seen[replica].paths)
                break
            turn.append(replica)
            self._last = replica.deployment
        return turn

    def _lacks(self, replica: ModelReplica) -> bool:
        """Whether a file is gone or cut short, or cannot be reached where it belongs, as behind a link. Raises OSError:
        nobody can tell."""
        try:
            return bool(wrong_sizes(self._context, replica))
        except NotAFileError:
            return True
        except OSError as error:
            if error.errno not in _GONE:
                raise
            return True


def _directories(replica: ModelReplica) -> tuple[str, ...]:
    return tuple(sorted(one for one in replica.directories() if one.startswith(replica.tree)))


def _mark_of(disk: Disk, paths: Sequence[str]) -> int | None:
    """Another number when a name in one of the directories came or went; None where that cannot be told."""
    try:
        return hash(tuple(disk.names_mark(path) for path in paths))
    except OSError:
        return None
