"""External storage: one for all hosts, fast or slow, true or lying, there or not.

What lives here: how long a read takes and what it brings. What does not: retries within a read, which the sources hand
does and which cost some of the time here; who reads what (the planner).
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from gossipd.core.events import FailReason
from tests.sim.campaign.model import Model

_FAIL_S = (0.5, 2.0)  # some retries with their pauses
_SLOW_FACTOR = 15.0
_LIE_SHARE = 0.4


class Storage:
    """``ailments`` are kinds of faults in force now, of all storage; ``slow_until_s``: when it is quick again.
    ``struck`` hears of each read that met a fault."""

    def __init__(self, random: Random, struck: Callable[[str], None], *, chunk_s: float, flows: int) -> None:
        self._random = random
        self._struck = struck
        self._chunk_s = chunk_s
        self._flows = flows
        self.ailments: set[str] = set()
        self.slow_until_s = 0.0
        self.reads = 0
        self.chunks_given = 0

    def probe(self) -> bool:
        """Whether a byte can be read now."""
        for kind in ("source_failing", "source_changed"):
            if kind in self.ailments:
                self._struck(kind)
                return False
        return True

    def read_s(self, chunk_count: int, now: float) -> float:
        """How long a read that begins now takes. One that is under way when storage is quick again goes on quickly."""
        if "source_failing" in self.ailments or "source_changed" in self.ailments:
            return self._random.uniform(*_FAIL_S)
        share = max(1.0, self.reads / self._flows)
        quick_s = chunk_count * self._chunk_s * share * self._random.uniform(0.9, 1.1)
        if "source_slow" not in self.ailments:
            return quick_s
        self._struck("source_slow")
        slow_s = max(0.0, self.slow_until_s - now)
        return min(_SLOW_FACTOR * quick_s, slow_s + max(0.0, quick_s - slow_s / _SLOW_FACTOR))

    def give(self, model: Model, chunk: int) -> tuple[bytes, FailReason | None]:
        """The bytes of a chunk as they come, or why none come."""
        for kind in ("source_failing", "source_changed"):
            if kind in self.ailments:
                self._struck(kind)
                return b"", FailReason.SOURCE
        self.chunks_given += 1
        if "source_lying" in self.ailments and self._random.random() < _LIE_SHARE:
            self._struck("source_lying")
            return bytes(len(model.chunks[chunk])), None
        return model.chunks[chunk], None
