"""The application payload of the member record."""

from __future__ import annotations

import pytest

from gossipd.swarm.capabilities import Standing


@pytest.mark.parametrize(
    "standing",
    [Standing(), Standing(True), Standing(True, 7), Standing(False, 2**32 - 1, True), Standing(in_clear=True)],
)
def test_what_is_said_is_what_is_heard(standing: Standing) -> None:
    assert Standing.from_bytes(standing.to_bytes()) == standing


@pytest.mark.parametrize("payload", [b"", b"\x00\x01\x00\x00\x00\x07", b"\x01\x01"])
def test_a_payload_that_is_none_says_nothing(payload: bytes) -> None:
    assert Standing.from_bytes(payload) == Standing()


def test_a_newer_payload_is_read_as_far_as_it_is_known() -> None:
    newer = bytes([9]) + Standing(True, 3).to_bytes()[1:] + b"more"
    assert Standing.from_bytes(newer) == Standing(True, 3)
