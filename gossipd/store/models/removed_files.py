"""Looking for published models from which somebody removed, renamed or moved files.

What lives here: the look, which costs one ``stat`` for each directory. What does not: making the files again
(``repair``), and files whose bytes changed (``scrub``).

A directory's time changes with each name in it. So a model whose directories all have the times of the look before is
as it was; of another one each file is looked at. Without this, a model that somebody deleted by hand counts as complete
until its next chunk is read: with many models that is hours later, and a job is told a path that is not there.

A look goes over at most ``DIRECTORIES_MAX`` directories and goes on where the last one ended.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from threading import Lock

from msgspec import Struct

from gossipd.core.ids import DeploymentId
from gossipd.store.disk.disk import Disk
from gossipd.store.models.context import Context
from gossipd.store.models.repair import mend_tree
from gossipd.store.models.replica import ModelReplica

DIRECTORIES_MAX = 2_000


class _Directories(Struct, frozen=True):
    """Those of one model, and what they had in them when all its files were there."""

    paths: tuple[str, ...]
    mark: int


class RemovedFiles:
    """One per store. Only one thread at a time calls ``look``."""

    def __init__(self, context: Context, published: Callable[[], Sequence[ModelReplica]]) -> None:
        self._context = context
        self._published = published
        self._lock = Lock()
        self._seen: dict[DeploymentId, _Directories] = {}
        self._last: DeploymentId | None = None

    def add(self, replica: ModelReplica) -> None:
        """It is published, and all its files are there. Raises OSError."""
        paths = tuple(sorted(one for one in replica.directories() if one.startswith(replica.tree)))
        found = _Directories(paths, _mark_of(self._context.disk, paths))
        with self._lock:
            self._seen[replica.deployment] = found

    def look(self) -> list[ModelReplica]:
        """Make removed files again, as far as the disk lets us. Returns the models that had lost some; their chunks are
        told as lost.
        """
        mended = []
        for replica, seen in self._turn():
            try:
                if _mark_of(self._context.disk, seen.paths) != seen.mark:
                    if mend_tree(self._context, replica):
                        mended.append(replica)
                    self.add(replica)
            except OSError as error:
                self._context.tracker.refused(error, self._context.clock.monotonic(), need_bytes=0)
        return mended

    def _turn(self) -> list[tuple[ModelReplica, _Directories]]:
        """Those that this look is about, after those of the last one."""
        published = {replica.deployment: replica for replica in self._published()}
        with self._lock:
            self._seen = {one: seen for one, seen in self._seen.items() if one in published}
            ids = list(self._seen)
            first = ids.index(self._last) + 1 if self._last in self._seen else 0
            turn: list[tuple[ModelReplica, _Directories]] = []
            count = 0
            for one in ids[first:] + ids[:first]:
                count += len(self._seen[one].paths)
                if turn and count > DIRECTORIES_MAX:
                    break
                turn.append((published[one], self._seen[one]))
                self._last = one
        return turn


def _mark_of(disk: Disk, paths: Sequence[str]) -> int:
    """Another number when a name in one of the directories came or went. Raises OSError."""
    return hash(tuple(disk.names_mark(path) for path in paths))
