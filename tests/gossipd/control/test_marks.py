"""Marks of the control port's connections, at both ends, as they go over the wire."""

from __future__ import annotations

import pytest
import trio
from msgspec.structs import replace

from gossipd.sessions.peer_channel import Endpoint
from tests.gossipd.control.nodes import QUICK, start, until
from tests.wire_marks import marks_of

HOST = "127.77.0.2"  # nobody else's


@pytest.mark.parametrize("dscp", [0, 18])
async def test_dialled_and_accepted_links_carry_the_mark(dscp: int) -> None:
    settings = replace(QUICK, dscp=dscp)
    with marks_of(receiver=HOST) as said, marks_of(sender=HOST) as heard:
        async with trio.open_nursery() as nursery:
            one = await start(nursery, 1, settings=settings)
            other = await start(nursery, 2, settings=settings, address=HOST)
            one.host.introduce(other.host, other.port)
            other.host.introduce(one.host, one.port)
            one.host.directory[other.host.node] = Endpoint(HOST, other.port, other.host.secret.public.curve25519)
            one.open()
            one.subscribe(other.host.node)
            await until(lambda: other.greetings)
            assert (said(other.port), heard(other.port)) == (dscp, dscp)
            nursery.cancel_scope.cancel()
