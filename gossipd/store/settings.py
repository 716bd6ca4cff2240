"""Settings of the store, with what each trades."""

from __future__ import annotations

from enum import Enum

from msgspec import Struct

from gossipd.core.errors import ExitCode, LocalError

MIB = 1 << 20


class PageCache(Enum):
    """The fate of written pages: kept for peers and the job that loads the model, or dropped after each window."""

    KEEP = "keep"
    DROP = "drop"


class StoreSettingsError(LocalError):
    """A setting is outside its range. Fault: the operator. Retry: after correcting it."""

    code = "E_CONFIG"
    exit_code = ExitCode.USAGE


class StoreSettings(Struct, frozen=True):
    keep_versions: int = 2
    """Complete versions of a model to keep, 1 to 1000. More allow rollback and share more chunks; fewer save space."""
    reserve_bytes: int = 1 << 30
    """Free space to leave to the rest of the host; at most 5 % of the file system."""
    window_bytes: int = 64 * MIB
    window_s: float = 2.0
    """A power cut may lose the larger of these, written since the last sync. Smaller: more syncs, each of which delays
    every writer of the disk. 0.01 to 60 s, at least 1 MiB.
    """
    page_cache: PageCache = PageCache.KEEP
    """KEEP serves peers and the loading job from memory; DROP leaves the memory to the host's job."""
    scrub_bytes_per_s: int = 16 * MIB
    """Rate of reading and comparing published models, 0 is never. 500 GB take 8.7 hours at 16 MiB/s."""
    warm: bool = False
    """Current versions are read into the page cache by themselves, see ``warming``; else by order only."""
    warm_bytes_per_s: int = 1024 * MIB
    """Rate of that reading. Faster takes more of the disk from jobs."""
    open_files_max: int = 256
    """Descriptors kept open, 8 to 100,000. A model of 200 shards fits."""
    gather_pieces_max: int = 16
    """A chunk of more files than this is sent from one memory file."""

    def validate(self) -> None:
        """Raises StoreSettingsError with the first setting outside its range."""
        ranges = {
            "keep_versions": (1, 1000),
            "reserve_bytes": (0, 1 << 50),
            "window_bytes": (MIB, 1 << 40),
            "window_s": (0.01, 60.0),
            "scrub_bytes_per_s": (0, 1 << 40),
            "warm_bytes_per_s": (1, 1 << 40),
            "open_files_max": (8, 100_000),
            "gather_pieces_max": (1, 1024),
        }
        for name, (least, most) in ranges.items():
            value = getattr(self, name)
            if not least <= value <= most:
                raise StoreSettingsError(f"store.{name} is {value}, must be from {least} to {most}")
