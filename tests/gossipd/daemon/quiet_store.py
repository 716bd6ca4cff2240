"""A store in a real directory, without threads, whose events nobody hears."""

from __future__ import annotations

from pathlib import Path

from gossipd.store.chunk_store import ChunkStore
from gossipd.store.settings import StoreSettings


def quiet_store(directory: Path) -> ChunkStore:
    """Of a directory that is made if need be."""
    directory.mkdir(exist_ok=True)
    settings = StoreSettings(reserve_bytes=0)
    return ChunkStore(directory, settings=settings, on_event=lambda event: None, background=False)
