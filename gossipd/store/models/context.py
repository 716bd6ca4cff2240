"""What every part of a store works with."""

from __future__ import annotations

import errno
from dataclasses import dataclass, field
from threading import Event

from gossipd.runtime.ports import StoreWriteError
from gossipd.store.clock import Clock
from gossipd.store.disk.condition import ConditionTracker
from gossipd.store.disk.disk import Disk
from gossipd.store.disk.handles import Handles
from gossipd.store.disk.whole_sync import WholeSync
from gossipd.store.notices import Emit
from gossipd.store.settings import StoreSettings


@dataclass(frozen=True, slots=True)
class Context:
    """One for each store."""

    disk: Disk
    whole_sync: WholeSync
    handles: Handles
    tracker: ConditionTracker
    settings: StoreSettings
    emit: Emit
    clock: Clock
    has_thread: bool
    """A background thread ends windows; without it writers never wait for one to end."""
    due: Event = field(default_factory=Event)
    """Tells the background thread that something is due earlier than it thought."""
    stopping: Event = field(default_factory=Event)
    """The store is being closed: nobody ends windows any more, and what takes long is left to the next start."""

    def refused(self, error: OSError, need_bytes: int) -> StoreWriteError:
        """Gives an OSError its name, and has the disk probed; ``need_bytes``: what was to be written."""
        if error.errno == errno.ELOOP:  # says nothing about the disk
            return StoreWriteError(f"{error.filename or 'a path'} is a symlink; remove it", code="E_PATH_SYMLINK")
        refusal = self.tracker.refused(error, self.clock.monotonic(), need_bytes=need_bytes)
        self.due.set()
        return refusal
