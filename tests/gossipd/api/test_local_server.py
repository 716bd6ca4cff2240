"""A local socket makes its server for the first client, in a thread, and answers that client."""

from __future__ import annotations

import errno
import gc
import threading
from pathlib import Path

import pytest
import trio

from gossipd.api import local_server
from gossipd.api.local_server import LocalServers
from gossipd.api.local_socket import bind_unix
from gossipd.api.request_guard import RequestGuard
from gossipd.api.routes import status_app
from tests.gossipd.api.fake_daemon import FakeDaemon

pytestmark = pytest.mark.trio


async def _answer(path: Path, request: bytes) -> bytes:
    answer = b""
    async with await trio.open_unix_socket(str(path)) as stream:
        await stream.send_all(request)
        async for part in stream:
            answer += part
    return answer


async def test_server_is_made_once_and_answers_the_client_that_waited(tmp_path: Path) -> None:
    daemon, made = FakeDaemon(), []
    frozen = gc.get_freeze_count()

    def make() -> RequestGuard:
        made.append(threading.current_thread())
        return RequestGuard(status_app(daemon, daemon, daemon, daemon.ring))

    servers = LocalServers()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(servers.serve, bind_unix(tmp_path / "s"), make)
        await trio.testing.wait_all_tasks_blocked()
        assert not made
        with trio.fail_after(120):
            answer = await _answer(tmp_path / "s", b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
            assert answer.startswith(b"HTTP/1.1 ")
            assert (await _answer(tmp_path / "s", b"garbage\r\n\r\n")).startswith(b"HTTP/1.1 400")
        nursery.cancel_scope.cancel()
    assert len(made) == 1
    assert made[0] is not threading.main_thread()
    assert servers.refused == 1
    assert gc.get_freeze_count() > frozen, "libraries are not gone through at each collection of garbage"
    gc.unfreeze()


@pytest.mark.parametrize("error", [OSError(errno.EMFILE, "no descriptor"), ImportError("half"), MemoryError()])
async def test_server_that_cannot_be_made_is_tried_again_for_its_client(
    error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_server, "MADE_AGAIN_S", 0.0)
    daemon, tries = FakeDaemon(), [error, error]

    def make() -> RequestGuard:
        if tries:
            raise tries.pop()
        return RequestGuard(status_app(daemon, daemon, daemon, daemon.ring))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(LocalServers().serve, bind_unix(tmp_path / "s"), make)
        with trio.fail_after(120):
            answer = await _answer(tmp_path / "s", b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 ")
        nursery.cancel_scope.cancel()
    assert not tries
    gc.unfreeze()
