"""What every part of a store works with."""

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
    """One for each store."""

    disk: Disk
    whole_sync: WholeSync
    handles: Handles
    tracker: ConditionTracker
    settings: StoreSettings
    emit: Emit
    clock: Callable[[], float]
    wall: Callable[[], float]
    wake: Callable[[], None]
    """Tell the background thread that something is due earlier than it thought."""
    has_thread: bool
    """A background thread ends windows; without it writers never wait for one to end."""
    stopping: Event = field(default_factory=Event)
    """The store is being closed: nobody ends windows any more, and what takes long is left to the next start."""
