"""Settings refuse what cannot work, all at once."""

from __future__ import annotations

import pytest

from gossipd.transfer.settings import KIB, MIB, BulkSettings


def test_the_defaults_are_valid() -> None:
    BulkSettings().validate()


def test_every_wrong_field_is_named_at_once() -> None:
    with pytest.raises(ValueError) as caught:
        BulkSettings(slots=2, slots_per_peer=4, idle_in_s=10, stall_s=0, rate_min=-1).validate()
    for name in ("slots_per_peer", "idle_in_s", "stall_s", "rate_min"):
        assert name in str(caught.value)


def test_what_waits_unsent_follows_the_chunk_size_within_bounds() -> None:
    settings = BulkSettings(unsent_bytes_min=64 * KIB, unsent_bytes_max=1 * MIB)
    assert settings.unsent_bytes(1) == 64 * KIB
    assert settings.unsent_bytes(1 * MIB) == 512 * KIB
    assert settings.unsent_bytes(64 * MIB) == 1 * MIB
