"""Peers that lie, stall, drip or vanish cost the client a bounded time and a typed error, and leave nothing behind."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack

import pytest
from msgspec.structs import replace

from gossipd.core.events import FailReason
from gossipd.runtime.buffer_pool import BufferPool
from gossipd.transfer.client import BulkClient
from gossipd.transfer.connections import Endpoint
from gossipd.transfer.errors import PeerProtocolError, PeerRefusedError, PeerSlowError, TransferError
from gossipd.transfer.settings import BulkSettings
from gossipd.wire.transfer import Reply, Request, Status, piece_head
from tests.gossipd.transfer.pairs import CLIENT, CLUSTER_KEY, MODEL, SERVER, SERVER_KEY, WAIT_S
from tests.gossipd.transfer.scripted import (
    PATIENT,
    QUICK,
    STRANGER_KEY,
    client_credentials,
    client_of,
    read_request,
    scripted_server,
)

LENGTH = 100_000


def fetch(client: BulkClient, endpoint: Endpoint, *, chunk: int = 3, timeout_s: float = WAIT_S) -> bytes:
    with client.fetch_chunk(SERVER, endpoint, MODEL, chunk, LENGTH, timeout_s=timeout_s) as lease:
        return bytes(lease.view)


def failure(
    script: Callable[[socket.socket, Request], None], settings: BulkSettings = PATIENT, *, timeout_s: float = WAIT_S
) -> TransferError:
    """How a fetch from a server with this script ends; memory and connections are given back."""
    pool = BufferPool(1024 * 1024)

    def serve(sock: socket.socket) -> None:
        script(sock, read_request(sock, with_hello=True))

    with scripted_server(serve) as endpoint, client_of(settings, pool=pool) as client:
        with pytest.raises(TransferError) as caught:
            fetch(client, endpoint, timeout_s=timeout_s)
        assert pool.statistics().leased_bytes == 0
        assert client.statistics().connections == 0
        assert client.statistics().errors == {caught.value.code: 1}
    return caught.value


def ok(request: Request, *, chunk: int | None = None, length: int | None = None) -> bytes:
    return Reply(
        Status.OK,
        request.chunk if chunk is None else chunk,
        request.length if length is None else length,
        free_slots=1,
    ).to_wire()


def say_nothing(sock: socket.socket, _request: Request) -> None:
    sock.recv(1)  # until the client hangs up


@pytest.mark.parametrize("length", [0, LENGTH - 1, LENGTH + 1, 0xFFFFFFFF])
def test_a_reply_of_another_length_is_the_peers_fault_and_cut(length: int) -> None:
    error = failure(lambda sock, request: sock.sendall(ok(request, length=length) + bytes(LENGTH + 1)))
    assert error.reason is FailReason.CORRUPT
    assert error.code == "E_BULK_PROTOCOL"


def test_a_reply_for_another_chunk_is_the_peers_fault() -> None:
    assert failure(lambda sock, request: sock.sendall(ok(request, chunk=4))).reason is FailReason.CORRUPT


def relayed(request: Request, *pieces: bytes) -> bytes:
    return Reply(Status.RELAYED, request.chunk, request.length, free_slots=1).to_wire() + b"".join(pieces)


@pytest.mark.parametrize(
    "pieces",
    [(piece_head(LENGTH + 1),), (piece_head(5), b"12345", piece_head(LENGTH - 4))],
    ids=["too long a piece", "too many bytes in all"],
)
def test_pieces_that_do_not_fit_the_chunk_are_the_peers_fault(pieces: tuple[bytes, ...]) -> None:
    error = failure(lambda sock, request: sock.sendall(relayed(request, *pieces)))
    assert error.reason is FailReason.CORRUPT


@pytest.mark.parametrize("pieces", [(), (piece_head(5), b"123"), (piece_head(5), b"12345")])
def test_a_relay_that_breaks_off_without_a_word_is_gone(pieces: tuple[bytes, ...]) -> None:
    assert failure(lambda sock, request: sock.sendall(relayed(request, *pieces))).reason is FailReason.GONE


def test_a_relay_that_stands_still_has_until_the_deadline() -> None:
    def script(sock: socket.socket, request: Request) -> None:
        sock.sendall(relayed(request, piece_head(5), b"12345"))
        say_nothing(sock, request)

    assert failure(script, timeout_s=1.5).reason is FailReason.SLOW

    def stand_still_in_a_piece(sock: socket.socket, request: Request) -> None:
        sock.sendall(relayed(request, piece_head(5), b"123"))
        say_nothing(sock, request)

    assert failure(stand_still_in_a_piece, QUICK).reason is FailReason.SLOW


def test_a_manifest_is_never_relayed() -> None:
    def script(sock: socket.socket) -> None:
        sock.sendall(relayed(read_request(sock, with_hello=True)))

    with scripted_server(script) as endpoint, client_of() as client, pytest.raises(PeerProtocolError):
        client.fetch_manifest(SERVER, endpoint, MODEL, 8, timeout_s=WAIT_S)


def test_a_silent_peer_has_less_time_to_begin_a_manifest_than_to_end_it() -> None:
    def drip(sock: socket.socket, request: Request) -> None:
        sock.sendall(ok(request))
        for _ in range(request.length):
            time.sleep(0.1)
            sock.sendall(b"x")

    def serve(script: Callable[[socket.socket, Request], None]) -> Callable[[socket.socket], None]:
        return lambda sock: script(sock, read_request(sock, with_hello=True))

    with scripted_server(serve(say_nothing)) as endpoint, client_of() as client:
        began_s = time.monotonic()
        with pytest.raises(PeerSlowError):
            client.fetch_manifest(SERVER, endpoint, MODEL, 8, timeout_s=WAIT_S, answer_s=0.3)
        assert time.monotonic() - began_s < WAIT_S / 2
    with scripted_server(serve(drip)) as endpoint, client_of() as client:
        found = client.fetch_manifest(SERVER, endpoint, MODEL, 20, timeout_s=WAIT_S, answer_s=1.5)
        assert found == b"x" * 20


def test_a_host_is_not_given_up_for_a_connection_that_had_little_time() -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=0) as full, ExitStack() as waiting:
        endpoint = full.getsockname()
        for _ in range(4):  # more than the queue takes: the kernel answers no further one
            sock = waiting.enter_context(socket.socket())
            sock.setblocking(False)
            sock.connect_ex(endpoint)
        with client_of() as client, pytest.raises(PeerSlowError):
            client.fetch_manifest(SERVER, endpoint, MODEL, 8, timeout_s=WAIT_S, answer_s=0.2)


@pytest.mark.parametrize(
    ("told", "asked", "code"),
    [(0, [8], "E_LENGTH"), (9, [8, 9], "E_LENGTH"), (0xFFFFFFFF, [8], "E_BULK_PROTOCOL")],
    ids=["an older server tells none", "each time another", "more than a manifest has"],
)
def test_a_manifest_is_asked_for_in_one_other_size_at_most(told: int, asked: list[int], code: str) -> None:
    heard: list[int] = []

    def script(sock: socket.socket) -> None:
        request = read_request(sock, with_hello=True)
        heard.append(request.length)
        sock.sendall(Reply(Status.LENGTH, 0, told and told + len(heard) - 1, free_slots=1).to_wire())

    with scripted_server(script) as endpoint, client_of() as client:
        with pytest.raises(TransferError) as caught:
            client.fetch_manifest(SERVER, endpoint, MODEL, 8, timeout_s=WAIT_S)
        assert (heard, caught.value.code) == (asked, code)


def test_garbage_is_the_peers_fault() -> None:
    error = failure(lambda sock, _request: sock.sendall(b"\x01\xff" + b"\x00" * 14))
    assert error.reason is FailReason.CORRUPT


def test_a_reply_of_a_newer_version_is_a_refusal_and_no_strike() -> None:
    error = failure(lambda sock, _request: sock.sendall(b"\x02" * 16))
    assert (error.reason, error.code) == (FailReason.REFUSED, "E_BULK_VERSION")


def test_a_connection_that_ends_in_the_body_is_gone() -> None:
    error = failure(lambda sock, request: sock.sendall(ok(request) + bytes(LENGTH - 1)))
    assert error.reason is FailReason.GONE


def test_a_connection_that_ends_without_an_answer_is_a_refusal() -> None:
    assert failure(lambda _sock, _request: None).reason is FailReason.REFUSED


def test_a_peer_that_closes_one_connection_before_it_answers_is_tried_once_more() -> None:
    served: list[Request] = []

    def serve(sock: socket.socket) -> None:
        request = read_request(sock, with_hello=True)
        served.append(request)
        if len(served) > 1:  # the first token came when its time was over
            sock.sendall(ok(request) + bytes(LENGTH))
            sock.recv(1)

    with scripted_server(serve) as endpoint, client_of() as client:
        assert fetch(client, endpoint) == bytes(LENGTH)
        assert client.statistics().errors == {}
    assert len(served) == 2


def test_a_peer_that_never_answers_is_slow() -> None:
    assert failure(say_nothing, QUICK).reason is FailReason.SLOW


def test_a_peer_that_drips_is_slow() -> None:
    ended = threading.Event()

    def drip(sock: socket.socket, request: Request) -> None:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.sendall(ok(request))
        while not ended.wait(0.01):
            sock.sendall(b"x")

    try:
        assert failure(drip, QUICK).reason is FailReason.SLOW
    finally:
        ended.set()


def test_a_fetch_ends_at_its_own_timeout() -> None:
    assert failure(say_nothing, timeout_s=0.1).reason is FailReason.SLOW


def test_bytes_that_nobody_asked_for_end_the_connection() -> None:
    def serve(sock: socket.socket) -> None:
        request = read_request(sock, with_hello=True)
        sock.sendall(ok(request) + bytes(LENGTH) + b"and one more thing")
        sock.recv(1)

    with scripted_server(serve) as endpoint, client_of() as client:
        assert fetch(client, endpoint) == bytes(LENGTH)
        assert fetch(client, endpoint) == bytes(LENGTH)  # on a fresh connection: this script answers one request
        assert client.statistics().errors == {}


def test_a_kept_connection_that_was_closed_meanwhile_is_replaced_without_an_error() -> None:
    def serve(sock: socket.socket) -> None:
        sock.sendall(ok(read_request(sock, with_hello=True)) + bytes(LENGTH))
        read_request(sock, with_hello=False)  # reads the second request, and closes instead of answering

    with scripted_server(serve) as endpoint, client_of() as client:
        assert fetch(client, endpoint) == bytes(LENGTH)
        assert fetch(client, endpoint) == bytes(LENGTH)
        assert client.statistics().errors == {}


def test_a_refused_connection_is_gone() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        endpoint = listener.getsockname()
    with client_of() as client, pytest.raises(TransferError) as caught:
        fetch(client, endpoint)
    assert caught.value.reason is FailReason.GONE


def test_when_a_peer_cannot_be_reached_all_its_fetches_end() -> None:
    """The first fetch is stuck in an answer; the second finds nobody listening any more."""
    asked = threading.Event()
    ended = threading.Event()

    def serve(sock: socket.socket) -> None:
        read_request(sock, with_hello=True)
        asked.set()
        ended.wait(WAIT_S)

    reasons: list[FailReason] = []

    def stuck() -> None:
        with pytest.raises(TransferError) as caught:
            fetch(client, endpoint)
        reasons.append(caught.value.reason)

    with socket.create_server(("127.0.0.1", 0)) as listener, client_of() as client:
        endpoint = listener.getsockname()
        first = threading.Thread(target=stuck)
        first.start()
        sock, _ = listener.accept()
        server = threading.Thread(target=serve, args=(sock,))
        server.start()
        assert asked.wait(WAIT_S)
        listener.close()
        stuck()
        first.join(WAIT_S)
        assert reasons == [FailReason.GONE, FailReason.GONE]
        ended.set()
        server.join()
        sock.close()


def test_silence_makes_the_client_probe_and_a_host_that_is_there_is_not_given_up() -> None:
    connections: list[socket.socket] = []
    probed = threading.Event()

    def serve(sock: socket.socket) -> None:
        connections.append(sock)
        if len(connections) > 1:
            probed.set()
            return
        request = read_request(sock, with_hello=True)
        assert probed.wait(WAIT_S)
        sock.sendall(ok(request) + bytes(LENGTH))

    patient = replace(PATIENT, silence_s=0.1)
    with scripted_server(serve) as endpoint, client_of(patient) as client:
        assert fetch(client, endpoint) == bytes(LENGTH)


def test_a_silent_host_that_does_not_answer_the_probe_is_gone() -> None:
    asked = threading.Event()

    def serve() -> None:
        sock, _ = listener.accept()
        with sock:
            read_request(sock, with_hello=True)
            listener.close()  # from now on nobody answers; the connection stays, as when a cable is cut
            asked.set()
            sock.recv(1)

    patient = replace(PATIENT, silence_s=0.1)
    with socket.create_server(("127.0.0.1", 0)) as listener, client_of(patient) as client:
        endpoint = listener.getsockname()
        serving = threading.Thread(target=serve)
        serving.start()
        with pytest.raises(TransferError) as caught:
            fetch(client, endpoint)
        serving.join()
        assert asked.is_set()
        assert caught.value.reason is FailReason.GONE


@pytest.mark.parametrize(
    ("key", "cluster_key", "code"),
    [
        (STRANGER_KEY, CLUSTER_KEY, "E_IDENTITY_MISMATCH"),
        (SERVER_KEY, b"\x66" * 32, "E_REFUSED"),
    ],
    ids=["another member", "another cluster"],
)
def test_a_server_with_the_wrong_certificate_is_refused(key: object, cluster_key: bytes, code: str) -> None:
    context = client_credentials(key, cluster_key).server  # type: ignore[arg-type]

    def serve(sock: socket.socket) -> None:
        with context.wrap_socket(sock, server_side=True) as encrypted:
            encrypted.recv(1)

    with scripted_server(serve) as endpoint, client_of(credentials=client_credentials()) as client:
        with pytest.raises(PeerRefusedError) as caught:
            fetch(client, endpoint)
        assert caught.value.code == code
        assert client.statistics().connections == 0


def test_a_server_that_speaks_clear_to_a_tls_client_is_refused() -> None:
    with (
        scripted_server(lambda sock: sock.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")) as endpoint,
        client_of(credentials=client_credentials()) as client,
        pytest.raises(TransferError) as caught,
    ):
        fetch(client, endpoint)
    assert caught.value.reason in (FailReason.REFUSED, FailReason.GONE)


def test_closing_the_client_ends_what_runs() -> None:
    asked = threading.Event()
    reasons: list[FailReason] = []

    def serve(sock: socket.socket) -> None:
        read_request(sock, with_hello=True)
        asked.set()
        sock.recv(1)

    def run() -> None:
        with pytest.raises(TransferError) as caught:
            fetch(client, endpoint)
        reasons.append(caught.value.reason)

    with scripted_server(serve) as endpoint, client_of() as client:
        running = threading.Thread(target=run)
        running.start()
        assert asked.wait(WAIT_S)
        client.close()
        running.join(WAIT_S)
        assert reasons == [FailReason.CANCELLED]


def test_a_fetch_that_waits_for_memory_can_be_cancelled() -> None:
    pool = BufferPool(128 * 1024)
    lease = pool.acquire(1)
    reasons: list[FailReason] = []

    def run() -> None:
        with pytest.raises(TransferError) as caught:
            fetch(client, ("127.0.0.1", 1))
        reasons.append(caught.value.reason)

    with client_of(pool=pool) as client:
        running = threading.Thread(target=run)
        running.start()
        while not pool.statistics().waiting:
            running.join(0.001)
        client.cancel(SERVER, MODEL, 3)
        running.join(WAIT_S)
        assert reasons == [FailReason.CANCELLED]
        lease.release()


def test_cancelling_what_does_not_run_does_nothing() -> None:
    with client_of() as client:
        client.cancel(CLIENT, MODEL, 0)
