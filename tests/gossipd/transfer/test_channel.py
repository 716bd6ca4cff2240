"""One connection: heads and bodies arrive whole, however little the system takes at a time."""

from __future__ import annotations

import fcntl
import os
import resource
import socket
import sys
import termios
import threading
from collections.abc import Iterable
from typing import Any

import pytest

from gossipd.runtime.rate_limit import RateLimit
from gossipd.transfer.channel import Channel, Cut, DisconnectedError
from gossipd.transfer.settings import BulkSettings


class Interrupted(socket.socket):
    """A socket whose gathered sends end early, as when a signal comes."""

    takes = 0

    def sendmsg(self, buffers: Iterable[Any], *arguments: Any) -> int:
        return self.send(b"".join(buffers)[: self.takes])


@pytest.mark.parametrize("takes", [0, 3, 5, 11, 25])
def test_a_head_and_a_body_that_are_sent_as_one_arrive_whole_when_a_signal_comes_in_between(takes: int) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.create_connection(listener.getsockname()) as theirs:
        interrupted = Interrupted(fileno=listener.accept()[0].detach())
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


def in_bursts(sock: socket.socket, bodies: Iterable[bytes], burst_bytes: int) -> None:
    """Send, each burst when the peer's kernel has the one before it."""
    for body in bodies:
        for at in range(0, len(body), burst_bytes):
            sock.sendall(body[at : at + burst_bytes])
            while int.from_bytes(fcntl.ioctl(sock, termios.TIOCOUTQ, bytes(4)), sys.byteorder):
                os.sched_yield()


def test_a_piece_wakes_its_thread_once_and_not_for_each_burst() -> None:
    body, length = os.urandom(512 * 1024), 128 * 1024
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.create_connection(listener.getsockname()) as ours:
        theirs = listener.accept()[0]
        channel = Channel(ours, BulkSettings(), sends_bodies=False)
        sender = threading.Thread(target=in_bursts, args=(theirs, [body], 4096))
        got = bytearray(len(body))
        sender.start()
        before = resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw
        for at in range(0, len(body), length):
            channel.receive(memoryview(got)[at : at + length])
        waits = resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw - before
        sender.join()
        theirs.close()
    assert got == body
    assert waits < 64, "of 128 bursts; a wait for the interpreter's lock counts too"


@pytest.mark.parametrize("burst_bytes", [7000, 16 * 1024, 100_000])
def test_heads_and_bodies_that_come_in_any_bursts_are_whole_and_none_is_awaited_for_ever(burst_bytes: int) -> None:
    """A small part after a large one, and a part that has come in half when it is asked for."""
    parts = [os.urandom(size) for size in (21, 64 * 1024, 192 * 1024 + 7, 14, 16 * 1024, 3, 150_000)]
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.create_connection(listener.getsockname()) as ours:
        ours.settimeout(None)
        theirs = listener.accept()[0]
        channel = Channel(ours, BulkSettings(), sends_bodies=False)
        sender = threading.Thread(target=in_bursts, args=(theirs, parts, burst_bytes))
        watch = threading.Timer(20.0, channel.cut, [Cut.STALLED])
        watch.start()
        sender.start()
        for part in parts:
            got = bytearray(len(part))
            channel.receive(memoryview(got))
            assert got == part
        watch.cancel()
        sender.join()
        theirs.close()


@pytest.mark.parametrize("here", [0, 1000])
@pytest.mark.parametrize("is_body", [False, True])
def test_a_wait_that_ends_early_takes_what_is_here_and_waits_for_the_rest(here: int, *, is_body: bool) -> None:
    """As where the receive window is full before all of a piece has come."""
    body = os.urandom(64 * 1024)
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.create_connection(listener.getsockname()) as ours:
        theirs = listener.accept()[0]
        channel = Channel(ours, BulkSettings(), sends_bodies=False)
        in_bursts(theirs, [body[:here]], 500)
        sender = threading.Thread(target=in_bursts, args=(theirs, [body[here:]], 16 * 1024))
        arrived, got = channel._arrived, bytearray(len(body))

        class Early:
            is_first = True

            def poll(self) -> None:
                if not self.is_first:
                    arrived.poll()
                elif here == 0:
                    self.is_first = False
                    sender.start()
                else:
                    self.is_first = False
                    threading.Timer(0.05, sender.start).start()

        channel._arrived = Early()  # type: ignore[assignment]
        watch = threading.Timer(10.0, channel.cut, [Cut.STALLED])
        watch.start()
        if is_body:
            channel.receive_body(memoryview(got), RateLimit(), piece_bytes=lambda: len(body))
        else:
            channel.receive(memoryview(got))
        watch.cancel()
        sender.join()
        theirs.close()
    assert got == body
    assert channel.cut_by is None, "it was asleep until then"


def test_one_wait_is_for_several_heads_and_bodies() -> None:
    parts = [bytes(8), bytes(64 * 1024)] * 4
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.create_connection(listener.getsockname()) as ours:
        theirs = listener.accept()[0]
        channel = Channel(ours, BulkSettings(), sends_bodies=False)
        sender = threading.Thread(target=in_bursts, args=(theirs, parts, 4096))
        sender.start()
        channel.expect(sum(map(len, parts)), 20.0)
        unread = int.from_bytes(fcntl.ioctl(ours, termios.FIONREAD, bytes(4)), sys.byteorder)
        sender.join()
        theirs.close()
    assert unread == sum(map(len, parts))


@pytest.mark.parametrize("end", ["closed", "cut", "patience"])
def test_a_wait_for_several_pieces_ends_though_they_do_not_come(end: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.create_connection(listener.getsockname()) as ours:
        theirs = listener.accept()[0]
        theirs.sendall(bytes(1000))
        channel = Channel(ours, BulkSettings(), sends_bodies=False)
        ends = {"closed": theirs.close, "cut": lambda: channel.cut(Cut.CANCELLED), "patience": lambda: None}[end]
        timer = threading.Timer(0.05, ends)
        timer.start()
        channel.expect(100_000, 0.1 if end == "patience" else 3600.0)
        timer.join()
        theirs.close()


def test_a_piece_ends_early_when_a_relay_hurries() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.create_connection(listener.getsockname()) as ours:
        theirs = listener.accept()[0]
        channel = Channel(ours, BulkSettings(), sends_bodies=False)
        filled: list[int] = []
        first = threading.Event()

        def on_piece(count: int) -> None:
            filled.append(count)
            first.set()

        def receive() -> None:
            view = memoryview(bytearray(256 * 1024))
            channel.receive_body(view, RateLimit(), piece_bytes=lambda: len(view), on_piece=on_piece)

        receiver = threading.Thread(target=receive)
        receiver.start()
        in_bursts(theirs, [bytes(100 * 1024)], 4096)
        assert not filled
        while not first.wait(0.001):
            channel.hurry(64 * 1024)
        in_bursts(theirs, [bytes(156 * 1024)], 4096)
        receiver.join()
        theirs.close()
    assert 64 * 1024 <= filled[0] <= 100 * 1024
    assert filled[-1] == 256 * 1024


def test_a_piece_whose_size_was_settled_before_a_relay_hurried_ends_early() -> None:
    """The relay comes when the receiver knows how much it will receive next, and does not sleep yet."""
    filled: list[int] = []
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.create_connection(listener.getsockname()) as ours:
        theirs = listener.accept()[0]
        channel = Channel(ours, BulkSettings(), sends_bodies=False)
        channel.begin()
        body = memoryview(bytearray(256 * 1024))
        sender = threading.Thread(target=in_bursts, args=(theirs, [bytes(100 * 1024)], 4096))

        def piece_bytes() -> int:
            if not filled:
                channel.hurry(64 * 1024)
                sender.start()
            return len(body)

        def on_piece(count: int) -> None:
            if not filled:
                theirs.sendall(bytes(len(body) - 100 * 1024))
            filled.append(count)

        watch = threading.Timer(5.0, channel.cut, [Cut.STALLED])
        watch.start()
        channel.receive_body(body, RateLimit(), piece_bytes=piece_bytes, on_piece=on_piece)
        watch.cancel()
        sender.join()
        theirs.close()
    assert 64 * 1024 <= filled[0] <= 100 * 1024


def test_the_next_transfer_is_not_hurried_by_the_relays_of_the_last() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.create_connection(listener.getsockname()) as ours:
        theirs = listener.accept()[0]
        channel = Channel(ours, BulkSettings(), sends_bodies=False)
        channel.begin()
        channel.hurry(64 * 1024)
        channel.begin()
        body = memoryview(bytearray(128 * 1024))
        sender = threading.Thread(target=in_bursts, args=(theirs, [bytes(len(body))], 4096))
        sender.start()
        filled: list[int] = []
        channel.receive_body(body, RateLimit(), piece_bytes=lambda: len(body), on_piece=filled.append)
        sender.join()
        theirs.close()
    assert filled == [len(body)]


def test_hurrying_leaves_a_wait_for_a_head_as_it_is() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.create_connection(listener.getsockname()) as ours:
        channel = Channel(ours, BulkSettings(), sends_bodies=False)
        channel.hurry(64 * 1024)
        assert ours.getsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT) == 1


def test_a_cut_ends_the_wait_for_a_piece() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.create_connection(listener.getsockname()) as ours:
        theirs = listener.accept()[0]
        channel = Channel(ours, BulkSettings(), sends_bodies=False)
        theirs.sendall(bytes(1000))
        cutter = threading.Timer(0.05, channel.cut, [Cut.CANCELLED])
        cutter.start()
        with pytest.raises(DisconnectedError) as caught:
            channel.receive(memoryview(bytearray(64 * 1024)))
        assert caught.value.cut_by is Cut.CANCELLED
        cutter.join()
        theirs.close()
