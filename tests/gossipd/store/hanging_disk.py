"""A disk of which each call waits while it does not answer."""

from __future__ import annotations

from threading import Event
from typing import Any

from tests.gossipd.store.memory_disk import MemoryDisk

WAIT_S = 10.0


class HangingDisk:
    """A ``Disk`` in memory that a test has answer or not. Made by tests that let it answer at their end."""

    def __init__(self) -> None:
        self.memory = MemoryDisk()
        self.answers, self.was_asked = Event(), Event()
        self.answers.set()
        self.hangs: frozenset[str] = frozenset()
        """The methods that hang; empty: all."""

    def __getattr__(self, name: str) -> Any:
        def call(*words: object, **more: object) -> object:
            if not self.answers.is_set() and (not self.hangs or name in self.hangs):
                self.was_asked.set()
                assert self.answers.wait(WAIT_S)
            return getattr(self.memory, name)(*words, **more)

        return call
