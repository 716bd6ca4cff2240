"""Without a descriptor or a thread to spare a fetch ends, blames nobody, and the next one works when there is one."""

from __future__ import annotations

import socket
import threading
import time
from typing import Any, cast

import pytest

from gossipd.core.events import FailReason
from gossipd.runtime.system_refusals import NoThreadError
from gossipd.transfer.connections import BulkPeer
from gossipd.transfer.dialer import Dialer, UnreachableError
from gossipd.transfer.errors import NoHandleError, TransferError
from gossipd.transfer.listener import BulkListener
from gossipd.transfer.settings import BulkSettings, Encryption
from gossipd.transfer.traffic import Traffic
from gossipd.transfer.watchdog import Watchdog
from gossipd.wire.transfer import TOKEN_BYTES
from membership.member import NodeId
from tests.gossipd.transfer.pairs import CHUNK_BYTES, MODEL, SERVER, WAIT_S, no_handles, no_threads, pair
from tests.gossipd.transfer.scripted import QUICK, client_of, read_request, scripted_server

BOTH = pytest.mark.parametrize("encryption", list(Encryption), ids=lambda encryption: encryption.value)


@BOTH
def test_a_fetch_without_a_descriptor_ends_and_is_not_the_peers_fault(encryption: Encryption) -> None:
    with pair(encryption) as both:
        with no_handles(), pytest.raises(NoHandleError) as caught:
            both.fetch(0)
        assert (caught.value.code, caught.value.reason) == ("E_HANDLES", FailReason.CANCELLED)
        assert both.client.statistics().errors == {"E_HANDLES": 1}
        assert both.client.statistics().connections == 0
        assert both.pool.statistics().leased_bytes == 0
        assert both.fetch(0) == both.bodies[0]


def test_without_a_descriptor_no_token_is_asked_for() -> None:
    with pair(Encryption.NONE) as both:
        both.tokens.issue = lambda _node: pytest.fail("nobody can use it")  # type: ignore[method-assign, assignment]
        with no_handles(), pytest.raises(NoHandleError):
            both.fetch(0)


def test_fetches_under_way_go_on_when_another_finds_no_descriptor() -> None:
    asked, answer = threading.Event(), threading.Event()
    bodies: list[bytes] = []

    with pair(Encryption.NONE) as both:
        open_chunk = both.store.open_chunk

        def held_up(*what: object) -> object:
            asked.set()
            assert answer.wait(WAIT_S)
            return open_chunk(*what)  # type: ignore[arg-type]

        both.store.open_chunk = held_up  # type: ignore[method-assign, assignment]
        first = threading.Thread(target=lambda: bodies.append(both.fetch(0, timeout_s=WAIT_S)))
        first.start()
        assert asked.wait(WAIT_S)
        with no_handles(), pytest.raises(NoHandleError):
            both.fetch(1)
        answer.set()
        first.join(WAIT_S)
        assert bodies == [both.bodies[0]]


def test_an_address_of_a_family_that_this_host_lacks_is_an_unreachable_peer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gossipd.transfer.dialer.family_of", lambda _host: 9999)  # every host here has IPv6
    with client_of() as client, pytest.raises(TransferError) as caught:
        client.fetch_chunk(SERVER, ("::1", 1), MODEL, 0, CHUNK_BYTES, timeout_s=WAIT_S)
    assert caught.value.reason is FailReason.GONE


def test_only_a_host_that_is_there_is_asked_for_a_token() -> None:
    asked: list[NodeId] = []

    def get_token(node: NodeId) -> bytes:
        asked.append(node)
        return bytes(TOKEN_BYTES)

    settings = BulkSettings(encryption=Encryption.NONE)
    watchdog = Watchdog(settings, name="unused")
    dialer = Dialer(settings, watchdog, credentials=None, get_token=get_token)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        peer = BulkPeer(SERVER, listener.getsockname())
        dialer.close(dialer.dial(peer, time.monotonic() + WAIT_S, lambda channel: None).channel)
    assert asked == [SERVER]
    with pytest.raises(UnreachableError):
        dialer.dial(peer, time.monotonic() + WAIT_S, lambda channel: None)
    assert asked == [SERVER]


def test_a_probe_without_a_descriptor_says_nothing_against_the_host() -> None:
    settings = BulkSettings(encryption=Encryption.NONE)
    dialer = Dialer(settings, Watchdog(settings, name="unused"), credentials=None, get_token=None)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        endpoint = listener.getsockname()
        with no_handles():
            assert dialer.is_there(endpoint)
        assert dialer.is_there(endpoint)
    with no_handles():
        assert dialer.is_there(endpoint)
    assert not dialer.is_there(endpoint)


def test_a_probe_that_finds_no_thread_leaves_the_watchdog_alive() -> None:
    """The watchdog is what ends a fetch from a silent peer: were it dead, this would be for ever."""
    asked = threading.Event()
    reasons: list[FailReason] = []

    def serve(sock: socket.socket) -> None:
        read_request(sock, with_hello=True)
        asked.set()
        sock.recv(1)  # until the client hangs up

    def run() -> None:
        with pytest.raises(TransferError) as caught:
            client.fetch_chunk(SERVER, endpoint, MODEL, 0, CHUNK_BYTES, timeout_s=10 * WAIT_S)
        reasons.append(caught.value.reason)

    with scripted_server(serve) as endpoint, client_of(QUICK) as client:
        asking = threading.Thread(target=run)
        asking.start()
        assert asked.wait(WAIT_S)
        with no_threads():
            asking.join(WAIT_S)
        assert reasons == [FailReason.SLOW]
        assert not client._probing, "it may be probed when there are threads again"


def test_a_server_that_gets_no_thread_says_so_and_can_be_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    listener = BulkListener(BulkSettings(), Traffic(), cast(Any, None))
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refused)
        with pytest.raises(NoThreadError):
            listener.open("127.0.0.1", 0)
    listener.close(WAIT_S)
