"""The application payload of the member record."""

from __future__ import annotations

import pytest

from gossipd.swarm.capabilities import NodeCapabilities


@pytest.mark.parametrize(
    "capabilities",
    [
        NodeCapabilities(),
        NodeCapabilities(True),
        NodeCapabilities(True, 7),
        NodeCapabilities(False, 2**32 - 1, True),
        NodeCapabilities(in_clear=True),
        NodeCapabilities(True, 7, prints=bytes(range(20))),
    ],
)
def test_what_is_said_is_what_is_heard(capabilities: NodeCapabilities) -> None:
    assert NodeCapabilities.from_bytes(capabilities.to_bytes()) == capabilities


@pytest.mark.parametrize("payload", [b"", b"\x00\x01\x00\x00\x00\x07", b"\x01\x01"])
def test_a_payload_that_is_none_says_nothing(payload: bytes) -> None:
    assert NodeCapabilities.from_bytes(payload) == NodeCapabilities()


def test_a_newer_payload_is_read_as_far_as_it_is_known() -> None:
    newer = bytes([9]) + NodeCapabilities(True, 3).to_bytes()[1:] + b"more"
    assert NodeCapabilities.from_bytes(newer) == NodeCapabilities(True, 3)


def test_prints_that_are_cut_short_are_none() -> None:
    told = NodeCapabilities(True, 3, prints=bytes(range(20))).to_bytes()
    assert NodeCapabilities.from_bytes(told[:-1]) == NodeCapabilities(True, 3)
    assert NodeCapabilities.from_bytes(told + b"more").prints == bytes(range(20))
