"""Marks of bulk connections, at both ends, as they go over the wire."""

from __future__ import annotations

import socket

import pytest

from gossipd.daemon.link_sharing import WINDOW_BYTES_MIN
from gossipd.runtime.bulk_sockets import BULK_SOCKETS, WindowLimit
from gossipd.transfer.settings import BulkSettings, Encryption
from tests.gossipd.transfer.pairs import pair
from tests.wire_marks import marks_of

LE = 1
HOST = "127.77.0.1"  # nobody else's


@pytest.mark.parametrize("encryption", Encryption)
@pytest.mark.parametrize("dscp", [0, LE])
def test_requests_and_bodies_carry_the_mark(encryption: Encryption, dscp: int) -> None:
    settings = BulkSettings(encryption=encryption, dscp=dscp)
    with (
        marks_of(receiver=HOST) as asked,
        marks_of(sender=HOST) as served,
        pair(encryption, settings=lambda _: settings, host=HOST) as two,
    ):
        assert two.fetch(0) == two.bodies[0]
        port = two.endpoint[1]
        assert (asked(port), served(port)) == (dscp, dscp)


def test_what_yields_in_the_network_yields_in_this_host_s_queues_at_both_ends() -> None:
    with pair(Encryption.TLS, settings=lambda _: BulkSettings(dscp=LE)) as two:
        two.fetch(0)
        channels = [*two.server._watchdog.channels(), *two.client._watchdog.channels()]
        assert [one._socket.getsockopt(socket.SOL_SOCKET, socket.SO_PRIORITY) for one in channels] == [2, 2]


@pytest.mark.parametrize("encryption", Encryption)
def test_bodies_arrive_through_the_smallest_windows(encryption: Encryption) -> None:
    BULK_SOCKETS.limit_windows(WindowLimit(WINDOW_BYTES_MIN))
    try:
        with pair(encryption) as two:
            before = BULK_SOCKETS.look()
            for chunk in range(4):
                assert two.fetch(chunk) == two.bodies[chunk]
            moved, bodies = BULK_SOCKETS.look(), sum(map(len, two.bodies[:4]))
            assert min(moved.received - before.received, moved.sent - before.sent) >= bodies
    finally:
        BULK_SOCKETS.limit_windows(None)
