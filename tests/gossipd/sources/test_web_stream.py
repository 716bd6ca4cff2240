"""Ranges of web objects: redirects are refused at every request, and good connections are used again."""

from __future__ import annotations

import itertools
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import pytest
from msgspec.structs import replace

from gossipd.manifest.source_url import parse_source_url
from gossipd.sources import web_stream
from gossipd.sources.errors import SourceSlowError
from gossipd.sources.location import Location
from gossipd.sources.reader import SourceReader
from gossipd.sources.request_watch import RequestWatch
from gossipd.sources.settings import SourceSettings
from gossipd.sources.web_stream import _RatedIncoming
from tests.gossipd.sources.models import CHUNK_BYTES, sign
from tests.gossipd.sources.raw import partial, raw_server
from tests.gossipd.sources.test_reader import ONE_FILE, QUICK, Seat, one_file
from tests.servers import FaultServer, fault_server

BODY = Random(2).randbytes(3 * CHUNK_BYTES)


@contextmanager
def forbidden_host() -> Iterator[tuple[int, list[bytes]]]:
    """A server of this host that no source may name; its port, and what it was sent."""
    heard: list[bytes] = []

    def listen() -> None:
        with suppress(OSError):
            while True:
                with listener.accept()[0] as sock:
                    heard.append(sock.recv(4096))
                    sock.sendall(partial(BODY, 0, len(BODY)))

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=listen)
        thread.start()
        try:
            yield int(listener.getsockname()[1]), heard
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_after_a_good_first_look_reads_nothing_from_the_other_host(status: int) -> None:
    with forbidden_host() as (port, heard):
        target = f"http://user:secret@127.0.0.1:{port}/latest/meta-data/?token=1"

        def answer(start: int, stop: int) -> bytes:
            if stop - start == 1:
                return partial(BODY, start, stop, 'ETag: "1"')
            return f"HTTP/1.1 {status} Elsewhere\r\nLocation: {target}\r\nContent-Length: 0\r\n\r\n".encode()

        with raw_server(answer) as url:
            seat = Seat(sign({"a.bin": BODY}, url), allow=[url])
            error = seat.read().errors[-1]
        assert error.code == "E_SOURCE_REDIRECT"
        assert f"{url.removeprefix('http://')} redirects to 127.0.0.1:{port}, which" in str(error)
        assert "secret" not in str(error)
        assert "token" not in str(error)
        assert heard == []


@pytest.mark.parametrize("target", ["", "http://[", "file:///etc/passwd", "//\u00e9", "http://169.254.169.254/", "\\"])
def test_any_target_of_a_redirect_is_an_error_that_names_the_object(target: str) -> None:
    def answer(start: int, stop: int) -> bytes:
        if stop - start == 1:
            return partial(BODY, start, stop)
        return f"HTTP/1.1 302 Found\r\nLocation: {target}\r\nContent-Length: 0\r\n\r\n".encode()

    with raw_server(answer) as url:
        error = Seat(sign({"a.bin": BODY}, url), allow=[url]).read().errors[-1]
    assert error.code == "E_SOURCE_REDIRECT"
    assert f"{url}/a.bin" in str(error)


@pytest.fixture
def server() -> Iterator[FaultServer]:
    with fault_server(dict(ONE_FILE)) as running:
        yield running


def connections_of(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """Where every connection from now on goes to."""
    made: list[tuple[str, int]] = []
    connect = socket.create_connection

    def remember(address: tuple[str, int], **named: float) -> socket.socket:
        made.append(address)
        return connect(address, **named)  # type: ignore[arg-type]

    monkeypatch.setattr("gossipd.sources.web_connection.socket.create_connection", remember)
    return made


def test_ranges_of_one_server_share_a_connection_that_ends_with_the_reader(
    server: FaultServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = connections_of(monkeypatch)
    seat = one_file(server)
    for chunk in range(3):
        assert seat.read(chunk).failed == ()
    assert len(made) == 1, "also the first look"
    kept = seat.reader._requests._web.connections()._idle
    assert len(kept) == 1
    seat.reader.close()
    assert kept[0][-1].fileno() == -1


def test_small_files_of_one_server_share_a_connection(server: FaultServer, monkeypatch: pytest.MonkeyPatch) -> None:
    made = connections_of(monkeypatch)
    files = {f"small-{number}": bytes([number]) * 1000 for number in range(20)}
    server.objects.update(files)
    seat = Seat(sign(files, server.url), settings=replace(QUICK, connections=1))
    assert seat.read().failed == ()
    assert (len(made), len(server.gets())) == (1, 20)


def test_a_kept_connection_to_an_address_that_is_no_longer_the_hosts_is_not_used(
    server: FaultServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    addresses = ["127.0.0.1"]
    settings = replace(QUICK, admission_s=0.0)
    url = server.url.replace("127.0.0.1", "localhost")
    seat = Seat(sign(ONE_FILE, url), settings=settings, find=lambda _source, _what: (addresses[0],))
    assert seat.read(0).failed == ()
    made = connections_of(monkeypatch)
    addresses[0] = "127.0.0.2"
    seat.read(1)
    assert {host for host, _ in made} == {"127.0.0.2"}


def test_a_request_that_cannot_be_written_leaves_no_connection_open(
    server: FaultServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[socket.socket] = []

    def refuse(sock: socket.socket, *_: object) -> None:
        opened.append(sock)
        raise ValueError("Invalid header value")

    monkeypatch.setattr(web_stream, "ask", refuse)
    assert one_file(server).read().stored == ()
    assert opened and all(sock.fileno() == -1 for sock in opened)


def test_a_kept_connection_that_the_server_has_closed_costs_no_failure(server: FaultServer) -> None:
    seat = one_file(server)
    assert seat.read(0).failed == ()
    seat.reader._requests._web.connections()._idle[0][-1].shutdown(socket.SHUT_RDWR)
    assert seat.read(1, 2).failed == ()
    assert isinstance(seat.reader, SourceReader)


class Watched(RequestWatch):
    """One that finds each look slow."""

    def __init__(self) -> None:
        where = Location.of(parse_source_url("http://a"), "b")
        super().__init__(cast(Any, SimpleNamespace(given_up=lambda mirror: None)), "http://a", where, 1000)
        self.looks: list[tuple[int, float]] = []

    def look(self, received: int, waited_s: float) -> bool:
        self.looks.append((received, waited_s))
        return True


def incoming_of(ours: socket.socket, step_s: float, watch: RequestWatch | None = None) -> _RatedIncoming:
    """Each look at the clock is so much later."""
    seconds = itertools.count()
    settings = replace(SourceSettings(), rate_grace_s=0.4)
    incoming = _RatedIncoming(ours, settings, lambda: step_s * next(seconds), watch, "http://a/b")
    incoming.deadline = time.monotonic() + 60.0
    return incoming


def test_the_least_rate_is_that_of_the_body_and_its_error_names_the_object() -> None:
    """A head is some 200 bytes and may take the time-out."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        incoming = incoming_of(ours, 0.25)
        theirs.send(bytes(200))
        assert incoming.readinto(bytearray(200)) == 200
        incoming.is_body = True
        theirs.send(bytes(200))
        with pytest.raises(SourceSlowError, match=r"http://a/b: 400 bytes in 0\.5 s"):
            incoming.readinto(bytearray(200))


def test_a_head_that_took_long_costs_the_body_nothing() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        incoming = incoming_of(ours, 0.25)
        incoming.waited_s = incoming.head_s = 5.5
        incoming.is_body = True
        theirs.send(bytes(200))
        assert incoming.readinto(bytearray(200)) == 200


def test_a_thread_that_was_late_does_not_count_its_own_time_as_the_sources() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        incoming = incoming_of(ours, 60.0)
        incoming.is_body = True
        theirs.send(bytes(100_000))
        assert incoming.readinto(bytearray(100)) == 100, "no least rate is missed"
        assert incoming.waited_s <= 0.25


def test_a_request_is_not_made_again_while_its_bytes_wait_here() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        watch = Watched()
        incoming = incoming_of(ours, 0.25, watch)
        theirs.send(bytes(300))
        assert incoming.readinto(bytearray(200)) == 200
        assert watch.looks == [(200, 0.25)], "it looked slow, and 100 bytes more were here"
        with pytest.raises(SourceSlowError, match="far quicker"):
            incoming.readinto(bytearray(200))
