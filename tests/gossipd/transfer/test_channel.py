"""One connection: heads and bodies arrive whole, however little the system takes at a time."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterable
from typing import Any

import pytest

from gossipd.runtime.rate_limit import RateLimit
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
        channel.send_memory(b"head:", b"b" * 20, RateLimit())
        channel.close()
        assert b"".join(iter(lambda: theirs.recv(64), b"")) == b"head:" + b"b" * 20


def test_a_body_that_is_under_way_follows_a_limit_that_is_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of it at 64 KiB/s, a quarter at twice that, the rest as fast as it comes, by a clock that waiting moves."""
    now = [0.0]
    monkeypatch.setattr("gossipd.runtime.rate_limit.time.monotonic", lambda: now[0])

    def wait(_: threading.Condition, timeout: float | None = None) -> bool:
        assert timeout is not None
        now[0] += timeout
        return False

    monkeypatch.setattr(threading.Condition, "wait", wait)
    whole = 64 * 1024
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(bytes(whole))
        throttle = RateLimit(whole)
        times: dict[int, float] = {}

        def on_piece(filled: int) -> None:
            times[filled] = now[0]
            if filled == whole // 2:
                throttle.set_rate(2 * whole)
            elif filled == whole * 3 // 4:
                throttle.set_rate(None)

        channel = Channel(ours, BulkSettings(), sends_bodies=False)
        channel.receive_body(memoryview(bytearray(whole)), throttle, piece_bytes=lambda: 4096, on_piece=on_piece)
    assert times[whole // 2] == pytest.approx(0.5, abs=0.05)
    assert times[whole * 3 // 4] == pytest.approx(0.625, abs=0.05)
    assert times[whole] == times[whole * 3 // 4]
