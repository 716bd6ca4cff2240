"""What time it is, and which run of the kernel the monotonic clock belongs to."""

from __future__ import annotations

import time
from pathlib import Path


class Clock:
    """This machine's clocks; simulations and tests have their own. ``boot`` names this run of the kernel."""

    def __init__(self, boot: str | None = None) -> None:
        self.boot = boot if boot is not None else _boot_id()

    def monotonic(self) -> float:
        """Seconds since some moment of this boot."""
        return time.monotonic()

    def wall(self) -> float:
        """Seconds since 1970."""
        return time.time()


def _boot_id() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return "unknown"
