"""What can be set about the store, with what it trades."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from gossipd.core.errors import LocalError

MIB = 1 << 20


class PageCache(Enum):
    """What becomes of written pages: kept for the job that loads the model next, or dropped after each window."""

    KEEP = "keep"
    DROP = "drop"


class StoreSettingsError(LocalError):
    """A setting outside its range. Fault: the operator. Retry: corrected."""

    code = "E_CONFIG"


@dataclass(frozen=True, slots=True)
class StoreSettings:
    """Limits and intervals of one store."""

    keep_versions: int = 2
    """Complete versions of a model that stay, 1 to 1000. More: roll-back and more shared chunks; fewer: space."""

    reserve_bytes: int = 1 << 30
    """Free space that is never taken, so that the rest of the host can go on; at most 5 % of the file system."""

    window_bytes: int = 64 * MIB
    window_s: float = 2.0
    """A power cut may lose the larger of these: what was written since the last sync. Smaller: more syncs, each of
    which holds up every writer of the disk; at 1.6 GB/s a window of 2 s is 3 GB. 0.01 to 60 s, at least 1 MiB."""

    page_cache: PageCache = PageCache.KEEP
    """KEEP serves peers and the job that loads the model from memory; DROP leaves the memory to the job beside us."""

    scrub_bytes_per_s: int = 16 * MIB
    """Rate at which published models are read and compared, 0 is never. 500 GB take 8.7 hours at 16 MiB/s, which is
    between one and ten per cent of what a disk reads."""

    open_files_max: int = 256
    """Descriptors kept open for reading and writing, 8 to 100,000. A model of 200 shards fits."""

    gather_pieces_max: int = 16
    """A chunk of more files than this is sent from one memory file instead of one descriptor each."""

    def validate(self) -> None:
        """Raises StoreSettingsError naming the first setting that is outside its range."""
        ranges = {
            "keep_versions": (1, 1000),
            "reserve_bytes": (0, 1 << 50),
            "window_bytes": (MIB, 1 << 40),
            "window_s": (0.01, 60.0),
            "scrub_bytes_per_s": (0, 1 << 40),
            "open_files_max": (8, 100_000),
            "gather_pieces_max": (1, 1024),
        }
        for name, (least, most) in ranges.items():
            value = getattr(self, name)
            if not least <= value <= most:
                raise StoreSettingsError(f"store.{name} is {value}, must be from {least} to {most}")
