"""The client of the status socket: a daemon that stops in the middle of its answer is one that does not answer."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gossipd.api.client import DaemonUnreachableError, StatusClient

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
