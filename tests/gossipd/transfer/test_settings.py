"""Settings refuse what cannot work, all at once, and size sockets from rate and delay."""

from __future__ import annotations

import pytest

from gossipd.transfer.settings import KIB, MIB, BulkSettings, socket_buffer_bytes


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
    assert settings.unsent_bytes(1 * MIB) == 256 * KIB
    assert settings.unsent_bytes(64 * MIB) == 1 * MIB


def test_a_socket_buffer_covers_the_path_twice() -> None:
    assert socket_buffer_bytes(1.25e9, 0.001) == 2_500_000
    assert socket_buffer_bytes(1000, 0.001) == 64 * KIB
