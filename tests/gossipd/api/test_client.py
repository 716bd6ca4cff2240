"""The client of the status socket: a daemon that stops in the middle of its answer is one that does not answer, and one
that refuses before it has read the request is heard all the same."""

from __future__ import annotations

import http.client
import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gossipd.api.client import DaemonUnreachableError, RefusedByDaemonError, StatusClient

HALF = b'HTTP/1.1 200 OK\r\nContent-Length: 100\r\nConnection: close\r\n\r\n{"half":'
ASKED: list[Callable[[StatusClient], object]] = [
    StatusClient.status, StatusClient.metrics, lambda client: client.order("reload"),
    lambda client: client.answer_to("/v1/status"), lambda client: list(client.verify("m", 1)),
]  # fmt: skip


@contextmanager
def answering(path: Path, said: bytes, *, closes: bool) -> Iterator[None]:
    """Each client gets these bytes, and then the end of the connection, or nothing more."""
    kept = []
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()

        def serve() -> None:
            connection, _ = listener.accept()
            connection.recv(65_536)
            connection.sendall(said)
            kept.append(connection)
            if closes:
                connection.shutdown(socket.SHUT_RDWR)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield
        finally:
            thread.join()
            for connection in kept:
                connection.close()


@pytest.mark.parametrize("ask", ASKED)
@pytest.mark.parametrize("closes", [True, False])
def test_a_daemon_that_stops_in_the_middle_of_an_answer_is_unreachable(
    tmp_path: Path, ask: Callable[[StatusClient], object], closes: bool
) -> None:
    with answering(tmp_path / "s", HALF, closes=closes), pytest.raises(DaemonUnreachableError):
        ask(StatusClient(tmp_path / "s", timeout_s=10.0 if closes else 0.2))


@contextmanager
def turning_away(path: Path, said: bytes, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A daemon that says this and closes the connection before the client has sent anything."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        send = http.client.HTTPConnection.send

        def send_late(connection: http.client.HTTPConnection, data: bytes) -> None:
            if connection.sock is None:
                connection.connect()
                accepted, _ = listener.accept()
                with accepted:
                    accepted.sendall(said)
            send(connection, data)

        monkeypatch.setattr(http.client.HTTPConnection, "send", send_late)
        yield


REFUSAL = json.dumps({"schema_version": 1, "error": {"code": "E_X", "message": "no room", "exit_code": 1}}).encode()
REFUSED = b"HTTP/1.1 503 Refused\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s" % (len(REFUSAL), REFUSAL)


def test_a_refusal_that_comes_before_the_request_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with turning_away(tmp_path / "s", REFUSED, monkeypatch):
        client = StatusClient(tmp_path / "s")
        with pytest.raises(RefusedByDaemonError, match="no room"):
            client.status()
        with pytest.raises(RefusedByDaemonError, match="no room"):
            client.order("reload")
        assert client.answer_to("/v1/status") == (503, REFUSAL)


def test_a_daemon_that_closes_without_a_word_is_not_said_to_be_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (
        turning_away(tmp_path / "s", b"", monkeypatch),
        pytest.raises(DaemonUnreachableError, match="closed the connection without an answer; try again"),
    ):
        StatusClient(tmp_path / "s").status()


def test_a_full_queue_of_callers_is_waited_for_and_is_not_said_to_be_no_daemon(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener, socket.socket(socket.AF_UNIX) as first:
        listener.bind(str(tmp_path / "s"))
        listener.listen(0)
        first.connect(str(tmp_path / "s"))
        with pytest.raises(DaemonUnreachableError, match="has a full queue of callers; try again"):
            StatusClient(tmp_path / "s", timeout_s=0.05).status()

        def serve() -> None:
            listener.accept()[0].close()
            accepted, _ = listener.accept()
            with accepted:
                accepted.recv(65_536)
                accepted.sendall(REFUSED)

        thread = threading.Timer(0.05, serve)
        thread.start()
        with pytest.raises(RefusedByDaemonError, match="no room"):
            StatusClient(tmp_path / "s").status()
        thread.join()


@pytest.mark.parametrize(("verb", "at_least_s"), [("rm", 120.0), ("prune", 120.0), ("pin", 0.0)])
def test_an_order_that_deletes_is_waited_for_longer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: str, at_least_s: float
) -> None:
    waited: list[float] = []

    def unanswered(path: Path, timeout_s: float) -> http.client.HTTPConnection:
        waited.append(timeout_s)
        return http.client.HTTPConnection("127.0.0.1", 1)  # refused

    monkeypatch.setattr("gossipd.api.unix_connection.UnixConnection", unanswered)
    with pytest.raises(DaemonUnreachableError):
        StatusClient(tmp_path / "s", timeout_s=3.0).order(verb)
    assert waited == [max(3.0, at_least_s)]
