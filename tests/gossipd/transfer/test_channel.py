"""One connection: heads and bodies arrive whole, however little the system takes at a time."""

from __future__ import annotations

import socket
from collections.abc import Iterable
from typing import Any

import pytest

from gossipd.throttle import Throttle
from gossipd.transfer.channel import Channel
from gossipd.transfer.settings import BulkSettings


class Interrupted(socket.socket):
    """A socket whose gathered sends end early, as when a signal comes."""

    takes = 0

    def sendmsg(self, buffers: Iterable[Any], *arguments: Any) -> int:
        return self.send(b"".join(buffers)[: self.takes])


@pytest.mark.parametrize("takes", [0, 3, 5, 11, 25])
def test_a_head_and_a_body_that_are_sent_as_one_arrive_whole_when_a_signal_comes_in_between(takes: int) -> None:
    with socket.create_server(("127.0.0.1", 0)) as door, socket.create_connection(door.getsockname()) as theirs:
        interrupted = Interrupted(fileno=door.accept()[0].detach())
        interrupted.takes = takes
        channel = Channel(interrupted, BulkSettings(), sends_bodies=True)
        channel.send_memory(b"head:", b"b" * 20, Throttle())
        channel.close()
        assert b"".join(iter(lambda: theirs.recv(64), b"")) == b"head:" + b"b" * 20
