"""The parts that all modules of a store share."""

from __future__ import annotations

from threading import Event

from msgspec import Struct, field

from gossipd.runtime.ports import StoreWriteError
from gossipd.store.clock import Clock
from gossipd.store.disk.condition import ConditionTracker, fault_of_path
from gossipd.store.disk.disk import Disk
from gossipd.store.disk.handles import Handles
from gossipd.store.disk.whole_sync import WholeSync
from gossipd.store.notices import Emit
from gossipd.store.settings import StoreSettings


class Context(Struct, frozen=True):
    disk: Disk
    whole_sync: WholeSync
    handles: Handles
    tracker: ConditionTracker
    settings: StoreSettings
    emit: Emit
    clock: Clock
    has_thread: bool
    """A background thread commits windows; without it writers never wait for a commit."""
    due: Event = field(default_factory=Event)
    """Tells the background thread that something may be due earlier."""
    stopping: Event = field(default_factory=Event)
    """The store is closing: no thread commits windows, and long work is left to the next start."""

    def refused(self, error: OSError, need_bytes: int) -> StoreWriteError:
        """Turns an OSError, and the bytes that were needed, into the error to raise; the disk is probed soon, unless
        the fault is of one path."""
        if (fault := fault_of_path(error)) is not None:
            code, sentence = fault
            return StoreWriteError(sentence, code=code)
        refusal = self.tracker.refused(error, self.clock.monotonic(), need_bytes=need_bytes)
        self.due.set()
        return refusal
