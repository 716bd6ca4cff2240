"""What the background threads do when it is due: commits, probes of a disk that refuses, models that may fit now.

What lives here: one pass over all of it, for the background thread or a test. What does not: the thread.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress

from gossipd.store.disk.condition import FILE_SIZE, PROBE_BYTES, StoreHealth
from gossipd.store.disk.disk import open_unfinished, write_all
from gossipd.store.journal.claims import start_journal
from gossipd.store.journal.windows import commit, start_write_back
from gossipd.store.models import layout
from gossipd.store.models.context import Context
from gossipd.store.models.replica import ModelReplica
from gossipd.store.notices import SpaceFreed

_DUE_SHARE = 0.8  # the rest is for the journal's sync, before the next window may begin
_MEND_RETRY_S = 5.0  # for a journal that could not be replaced
_COMMIT_RETRY_S = 1.0  # for a window that the disk refused to commit


class StoreMaintenance:
    """Commits windows, probes the disk and replaces broken journals."""

    def __init__(self, context: Context, replicas: Callable[[], Sequence[ModelReplica]]) -> None:
        self._context = context
        self._replicas = replicas
        self._mend_at = 0.0

    def step(self) -> float | None:
        """Do what is due. Returns the seconds until the next step, None when nothing is expected."""
        waits = []
        for replica in self._replicas():
            opened_s = replica.window.opened_s
            if opened_s is None:
                continue
            waits.append(start_write_back(self._context, replica))
            due_s = max(opened_s + _DUE_SHARE * self._context.settings.window_s, replica.commit_at_s)
            left_s = due_s - self._context.clock.monotonic()
            if left_s <= 0:
                commit(self._context, replica)
                following_s = replica.window.opened_s
                left_s = _COMMIT_RETRY_S if following_s is not None else self._context.settings.window_s
                if following_s == opened_s:  # refused
                    replica.commit_at_s = self._context.clock.monotonic() + _COMMIT_RETRY_S
            waits.append(left_s)
        waits += self._mend_broken()
        probe_at = self._context.tracker.probe_at
        if probe_at is not None:
            if probe_at <= self._context.clock.monotonic():
                self._probe()
            probe_at = self._context.tracker.probe_at
            if probe_at is not None:
                waits.append(probe_at - self._context.clock.monotonic())
        return max(0.01, min(waits)) if waits else None

    def _mend_broken(self) -> list[float]:
        """Replace broken journals while the disk takes writes. Returns the seconds until the next attempt."""
        if self._context.tracker.condition.health is not StoreHealth.OK:
            return []
        broken = [replica for replica in self._replicas() if replica.ledger.broken]
        if broken and self._context.clock.monotonic() >= self._mend_at:
            self._mend_at = self._context.clock.monotonic() + _MEND_RETRY_S
            for replica in broken:
                self._mend(replica)
        return [_MEND_RETRY_S] if broken else []

    def _probe(self) -> None:
        tracker, clock = self._context.tracker, self._context.clock.monotonic
        need_bytes = max([replica.missing_bytes() for replica in self._replicas() if replica.is_sparse], default=0)
        try:
            free_bytes = tracker.space().free_bytes
            if tracker.condition.health is not StoreHealth.OK:
                self._write_probe()
        except OSError as error:
            tracker.probed(error, clock(), need_bytes=need_bytes, free_bytes=0)
            return
        for replica in self._replicas():
            self._mend(replica)
        for deployment in tracker.fitting(free_bytes):
            self._context.emit(SpaceFreed(deployment))
        tracker.probed(None, clock(), need_bytes=need_bytes, free_bytes=free_bytes)

    def _write_probe(self) -> None:
        """Where a file may not become large enough, as far out as the open models need; the rest of it is a hole."""
        disk, offset = self._context.disk, 0
        if self._context.tracker.condition.code == FILE_SIZE:
            offset = max((_largest_bytes(one) for one in self._replicas() if not one.is_whole), default=0)
        descriptor = open_unfinished(disk, layout.PROBE, mode=0o600)
        try:
            write_all(disk, descriptor, memoryview(bytes(PROBE_BYTES)), max(0, offset - PROBE_BYTES))
            disk.sync_data(descriptor)
        finally:
            disk.close(descriptor)
        disk.remove_file(layout.PROBE)

    def _mend(self, replica: ModelReplica) -> None:
        """Replace a broken journal before its model is written to. A failure here stops no other model."""
        with replica.committing:
            if replica.ledger.broken and not replica.is_closed:
                with suppress(OSError):
                    start_journal(self._context, replica)


def _largest_bytes(replica: ModelReplica) -> int:
    return max((replica.placement.size(one) for one in replica.placement.files()), default=0)
