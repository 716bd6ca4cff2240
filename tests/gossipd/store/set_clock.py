"""A store's clock that says what a test wants."""

from __future__ import annotations

from collections.abc import Callable

from gossipd.store.clock import Clock


class SetClock(Clock):
    """Stands still unless told otherwise."""

    def __init__(
        self, *, boot: str = "a", now: Callable[[], float] = lambda: 0.0, wall: Callable[[], float] = lambda: 1000.0
    ) -> None:  # fmt: skip
        super().__init__(boot)
        self._now = now
        self._wall = wall

    def monotonic(self) -> float:
        return self._now()

    def wall(self) -> float:
        return self._wall()
