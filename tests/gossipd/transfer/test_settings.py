"""What settings of bulk connections come to for a chunk."""

from __future__ import annotations

from gossipd.transfer.settings import KIB, MIB, BulkSettings


def test_what_waits_unsent_follows_the_chunk_size_within_bounds() -> None:
    settings = BulkSettings(unsent_bytes_min=64 * KIB, unsent_bytes_max=1 * MIB)
    assert settings.unsent_bytes(1) == 64 * KIB
    assert settings.unsent_bytes(1 * MIB) == 512 * KIB
    assert settings.unsent_bytes(64 * MIB) == 1 * MIB
