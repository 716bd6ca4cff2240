"""The parts that all modules of a store share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Event

from gossipd.store.disk.condition import ConditionTracker
from gossipd.store.disk.disk import Disk
from gossipd.store.disk.handles import Handles
from gossipd.store.disk.whole_sync import WholeSync
from gossipd.store.notices import Emit
from gossipd.store.settings import StoreSettings


@dataclass(frozen=True, slots=True)
class Context:
    disk: Disk
    whole_sync: WholeSync
    handles: Handles
    tracker: ConditionTracker
    settings: StoreSettings
    emit: Emit
    clock: Callable[[], float]
    wall: Callable[[], float]
    wake: Callable[[], None]
    """Tell the background thread that something may be due earlier."""
    has_thread: bool
    """A background thread commits windows; without it writers never wait for a commit."""
    stopping: Event = field(default_factory=Event)
    """The store is closing: no thread commits windows, and long work is left to the next start."""
