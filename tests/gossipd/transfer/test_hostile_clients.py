"""Strangers and members that break the rules get at most one byte of an answer, and cost the server a bounded time."""

from __future__ import annotations

import contextlib
import math
import select
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from msgspec.structs import replace

from gossipd.core.errors import CheckUnansweredError
from gossipd.core.ids import DeploymentId
from gossipd.identity.keys import SecretKey
from gossipd.runtime.flooding_addresses import PORT_FAILURES_MAX
from gossipd.runtime.ports import NotHeldError
from gossipd.transfer.channel import Channel
from gossipd.transfer.errors import PeerNotHoldingError, SecurityCheckError
from gossipd.transfer.self_check import self_check
from gossipd.transfer.settings import BulkSettings, Encryption
from gossipd.transfer.tokens import IssuedTokens
from gossipd.wire.transfer import REPLY_BYTES, BulkVerb, Reply, Request, Status, hello
from membership.member import NodeId
from tests.contracts.chunk_store_fakes import FakeChunkStore, FakeOpenChunk
from tests.gossipd.transfer.pairs import CHUNK_BYTES, CLIENT, CLUSTER_KEY, MODEL, WAIT_S, Pair, _Port, pair
from tests.gossipd.transfer.scripted import PATIENT, QUICK, STRANGER_KEY, client_credentials, hangs_up

REQUEST = Request(BulkVerb.CHUNK, MODEL, 0, CHUNK_BYTES).to_wire()


def quick(encryption: Encryption) -> BulkSettings:
    return replace(QUICK, encryption=encryption)


@contextmanager
def knock(running: Pair) -> Iterator[socket.socket]:
    with socket.create_connection(running.endpoint) as sock:
        yield sock


@contextmanager
def enter(running: Pair) -> Iterator[socket.socket]:
    """As the member CLIENT, in clear, with a valid token."""
    with knock(running) as sock:
        sock.sendall(hello(running.tokens.issue(CLIENT)))
        yield sock


def errors_of(running: Pair) -> dict[str, int]:
    """What the server has counted once all its connections have ended."""
    running.server.close()
    for thread in threading.enumerate():  # one that has hardly begun is not known to the server yet
        if thread.name.startswith("bulk-serve"):
            thread.join(60.0)
    return running.server.statistics().errors


@pytest.mark.parametrize("encryption", list(Encryption), ids=lambda mode: mode.value)
@pytest.mark.parametrize(
    "words",
    [
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n" + b"x" * 100,
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"x" * 100,
        hello(b"\x00" * 32) + REQUEST,
        b"\x02" + hello(b"\x00" * 32)[1:] + REQUEST,
        REQUEST,
        b"\xff" * 100_000,
    ],
    ids=["http", "tls hello", "forged token", "newer hello", "no hello", "noise"],
)
def test_strangers_get_no_protocol_answer(encryption: Encryption, words: bytes) -> None:
    with pair(encryption, settings=quick) as running, knock(running) as sock:
        sock.sendall(words)
        answer = hangs_up(sock)
        # OpenSSL may say in an alert that this was no TLS; nothing of ours is in it.
        assert answer == b"" or (encryption is Encryption.TLS and len(answer) < REPLY_BYTES)


@pytest.mark.parametrize("encryption", list(Encryption), ids=lambda mode: mode.value)
def test_a_connection_that_says_nothing_is_cut(encryption: Encryption) -> None:
    with pair(encryption, settings=quick) as running, knock(running) as sock:
        assert hangs_up(sock) == b""
        assert errors_of(running) == {"E_TIMEOUT": 1}


def test_a_member_that_never_asks_is_cut() -> None:
    with pair(Encryption.NONE, settings=quick) as running, enter(running) as sock:
        assert hangs_up(sock) == b""


def test_a_token_opens_one_connection_only() -> None:
    with pair(Encryption.NONE) as running:
        token = running.tokens.issue(CLIENT)
        with knock(running) as first:
            first.sendall(hello(token) + Request(BulkVerb.CHUNK, MODEL, 0, CHUNK_BYTES).to_wire())
            assert Reply.from_wire(first.recv(REPLY_BYTES, socket.MSG_WAITALL)).status is Status.OK
            with knock(running) as second:
                second.sendall(hello(token) + REQUEST)
                assert hangs_up(second) == b""


def test_a_token_of_a_node_that_is_no_member_is_answered_refused() -> None:
    with pair(Encryption.NONE) as running, enter(running) as sock:
        running.members.clear()
        sock.sendall(REQUEST)
        answer = hangs_up(sock)
        assert Reply.from_wire(answer).status is Status.REFUSED


@pytest.mark.parametrize(
    ("wire", "status"),
    [
        (b"\x01\x09" + REQUEST[2:], Status.BAD_REQUEST),
        (b"\x01\x01\x00\x01" + REQUEST[4:], Status.BAD_REQUEST),
        (b"\x02" + REQUEST[1:], Status.VERSION),
    ],
    ids=["unknown verb", "reserved field", "newer version"],
)
def test_a_malformed_request_is_answered_with_a_code_and_cut(wire: bytes, status: Status) -> None:
    with pair(Encryption.NONE) as running, enter(running) as sock:
        sock.sendall(wire)
        answer = hangs_up(sock)
        assert len(answer) == REPLY_BYTES
        assert Reply.from_wire(answer).status is status


def test_path_like_requests_name_nothing() -> None:
    deployment = DeploymentId(b"../../etc/passwd".ljust(32, b"\x00"))
    with pair(Encryption.NONE) as running, enter(running) as sock:
        sock.sendall(Request(BulkVerb.CHUNK, deployment, 0, 100).to_wire())
        assert Reply.from_wire(sock.recv(REPLY_BYTES, socket.MSG_WAITALL)).status is Status.UNKNOWN


def test_requests_may_be_sent_ahead_and_are_answered_in_order() -> None:
    with pair(Encryption.NONE) as running, enter(running) as sock:
        sock.sendall(b"".join(Request(BulkVerb.CHUNK, MODEL, chunk, CHUNK_BYTES).to_wire() for chunk in (2, 0)))
        for chunk in (2, 0):
            assert Reply.from_wire(sock.recv(REPLY_BYTES, socket.MSG_WAITALL)).chunk == chunk
            assert sock.recv(CHUNK_BYTES, socket.MSG_WAITALL) == running.bodies[chunk]


def test_a_member_that_does_not_read_is_cut_and_its_slot_is_free_again() -> None:
    body = bytes(4 * 1024 * 1024)
    store = FakeChunkStore()
    other = DeploymentId(b"\x0b" * 32)
    store.add_model(other, [body], held=True)
    narrow = replace(PATIENT, stall_s=QUICK.stall_s, grace_s=QUICK.grace_s, send_buffer_bytes=64 * 1024)
    with pair(Encryption.NONE, settings=lambda _mode: narrow, store=store) as running, knock(running) as sock:
        sock.sendall(hello(running.tokens.issue(CLIENT)))
        sock.sendall(Request(BulkVerb.CHUNK, other, 0, len(body)).to_wire())
        running.await_free_slots(narrow.slots - 1)
        running.await_free_slots(narrow.slots)
        assert errors_of(running).keys() <= {"E_STALLED", "E_SLOW"}


def test_a_file_that_ends_early_is_reported_and_the_connection_cut() -> None:
    class Truncated(FakeChunkStore):
        def open_chunk(self, deployment: DeploymentId, chunk: int):  # type: ignore[no-untyped-def]
            opened = super().open_chunk(deployment, chunk)
            import os

            os.ftruncate(opened.spans[0].descriptor, 1000)
            return opened

    with pair(Encryption.NONE, store=Truncated()) as running, enter(running) as sock:
        sock.sendall(REQUEST)
        assert len(hangs_up(sock)) == REPLY_BYTES + 1000
        assert running.bad_reads == [(MODEL, 0)]


def test_a_file_that_cannot_be_opened_is_reported_and_the_conversation_goes_on() -> None:
    class Gone(FakeChunkStore):
        def open_chunk(self, deployment: DeploymentId, chunk: int) -> FakeOpenChunk:
            raise NotHeldError("chunk 0 cannot be read: No such file or directory", code="E_CHUNK_UNAVAILABLE")

    with pair(Encryption.NONE, store=Gone()) as running:
        for _ in range(2):
            with pytest.raises(PeerNotHoldingError) as caught:
                running.fetch(0)
            assert caught.value.code == "E_NOT_HELD"
        assert running.bad_reads == [(MODEL, 0)] * 2
        assert running.server.statistics().connections == 1


def test_one_peer_over_its_connections_loses_its_oldest_idle_one() -> None:
    settings = replace(BulkSettings(), encryption=Encryption.NONE, connections_in_per_peer_max=2)
    with (
        pair(Encryption.NONE, settings=lambda _mode: settings) as running,
        asking(running, CLIENT) as first,
        asking(running, CLIENT),
        asking(running, CLIENT),
    ):
        assert hangs_up(first) == b""
        assert errors_of(running) == {"E_EVICTED": 1}


@contextmanager
def asking(running: Pair, node: NodeId, *, uploads: int = 0) -> Iterator[socket.socket]:
    """A connection of this node that has had a chunk, beside so many uploads, and stays idle."""
    with knock(running) as sock:
        sock.sendall(hello(running.tokens.issue(node)) + REQUEST)
        head = Reply.from_wire(sock.recv(REPLY_BYTES, socket.MSG_WAITALL))
        assert head.status is Status.OK
        assert sock.recv(head.length, socket.MSG_WAITALL) == running.bodies[0]
        running.await_free_slots(BulkSettings().slots - uploads)
        yield sock


def test_idle_connections_of_members_keep_no_other_member_out() -> None:
    crowd = [NodeId(bytes((number,)) * len(CLIENT)) for number in (1, 2)]
    settings = replace(BulkSettings(), encryption=Encryption.NONE, connections_in_max=8)
    with (
        pair(Encryption.NONE, settings=lambda _mode: settings, members={CLIENT, *crowd}) as running,
        contextlib.ExitStack() as stack,
    ):
        idle = [stack.enter_context(asking(running, node)) for node in crowd for _ in range(4)]
        for chunk, body in enumerate(running.bodies):
            assert running.fetch(chunk) == body
        assert hangs_up(idle[0]) == b""
        assert errors_of(running) == {"E_EVICTED": 2}, "seven places are for eight and one of the fetching member"


def test_an_upload_goes_on_when_its_member_exchanges_an_idle_connection() -> None:
    body = bytes(8 * 1024 * 1024)
    store = FakeChunkStore()
    other = DeploymentId(b"\x0b" * 32)
    store.add_model(other, [body], held=True)
    settings = replace(
        BulkSettings(), encryption=Encryption.NONE, connections_in_per_peer_max=2, send_buffer_bytes=64 * 1024
    )
    with pair(Encryption.NONE, settings=lambda _mode: settings, store=store) as running, enter(running) as sending:
        sending.sendall(Request(BulkVerb.CHUNK, other, 0, len(body)).to_wire())
        running.await_free_slots(settings.slots - 1)
        with asking(running, CLIENT, uploads=1) as idle, asking(running, CLIENT, uploads=1):
            assert hangs_up(idle) == b""
            assert len(sending.recv(REPLY_BYTES + len(body), socket.MSG_WAITALL)) == REPLY_BYTES + len(body)


def test_connections_that_have_not_said_who_they_are_are_bounded() -> None:
    settings = replace(BulkSettings(), encryption=Encryption.NONE, pending_per_address_max=2, handshake_s=60.0)
    with pair(Encryption.NONE, settings=lambda _mode: settings) as running:
        with knock(running), knock(running), knock(running) as third:
            assert hangs_up(third) == b""
        assert errors_of(running)["E_CONNECTIONS"] == 1


def test_a_member_that_asks_for_manifests_without_end_is_told_to_wait_and_chunks_go_on() -> None:
    few = replace(PATIENT, manifests_burst=3, manifests_per_s=0.01)
    with pair(Encryption.NONE, settings=lambda _mode: few) as running, enter(running) as sock:
        body = running.store.manifest_bytes(MODEL)
        for expected in [Status.OK] * 3 + [Status.BUSY] * 3:
            sock.sendall(Request(BulkVerb.MANIFEST, MODEL, 0, len(body)).to_wire())
            assert Reply.from_wire(sock.recv(REPLY_BYTES, socket.MSG_WAITALL)).status is expected
            if expected is Status.OK:
                sock.recv(len(body), socket.MSG_WAITALL)
        sock.sendall(REQUEST)
        assert Reply.from_wire(sock.recv(REPLY_BYTES, socket.MSG_WAITALL)).status is Status.OK


def test_who_does_not_read_the_answer_to_a_complaint_holds_no_slot(monkeypatch: pytest.MonkeyPatch) -> None:
    with pair(Encryption.NONE, settings=quick) as running, enter(running) as sock:
        free: list[int] = []
        send = Channel.send

        def count_and_send(channel: Channel, data: bytes | memoryview, flags: int = 0) -> None:
            free.append(running.server.statistics().free_slots)
            send(channel, data, flags)

        monkeypatch.setattr(Channel, "send", count_and_send)
        sock.sendall(Request(BulkVerb.COMPLAIN, MODEL, 0, 0).to_wire())
        assert Reply.from_wire(sock.recv(REPLY_BYTES, socket.MSG_WAITALL)).status is Status.OK
        assert free == [QUICK.slots]


def test_a_member_whose_slow_read_was_cut_is_noted_as_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    noted: list[int] = []
    monkeypatch.setattr(
        "gossipd.transfer.slots.UploadSlots.note_upload", lambda _slots, _node, count, _began: noted.append(count)
    )
    body = bytes(4 * 1024 * 1024)
    store = FakeChunkStore()
    other = DeploymentId(b"\x0b" * 32)
    store.add_model(other, [body], held=True)
    narrow = replace(PATIENT, stall_s=QUICK.stall_s, grace_s=QUICK.grace_s, send_buffer_bytes=64 * 1024)
    with pair(Encryption.NONE, settings=lambda _mode: narrow, store=store) as running, enter(running) as sock:
        sock.sendall(Request(BulkVerb.CHUNK, other, 0, len(body)).to_wire())
        running.await_free_slots(narrow.slots - 1)
        running.await_free_slots(narrow.slots)
    assert noted == [0]


class SilentFlood:
    """Connections that say nothing, or ``word``, from four addresses, made again as they are closed."""

    def __init__(self, endpoint: tuple[str, int], count: int, *, word: bytes = b"") -> None:
        self.refused = 0
        self._endpoint = endpoint
        self._word = word
        self._ended = threading.Event()
        self._threads = [threading.Thread(target=self._renew, args=(at, count // 4)) for at in range(4)]

    def __enter__(self) -> SilentFlood:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join()

    def _renew(self, at: int, count: int) -> None:
        with contextlib.ExitStack() as stack:
            socks = [stack.enter_context(self._connected(at)) for _ in range(count)]
            while not self._ended.wait(0.02):
                for sock in select.select(socks, [], [], 0)[0]:
                    sock.close()
                    self.refused += 1
                    socks[socks.index(sock)] = stack.enter_context(self._connected(at))

    def _connected(self, at: int) -> socket.socket:
        sock = socket.socket()
        sock.bind((f"127.0.0.{at + 2}", 0))
        sock.settimeout(0.05)
        with contextlib.suppress(TimeoutError):  # dropped by the kernel
            sock.connect(self._endpoint)
            sock.sendall(self._word)
        return sock


@pytest.mark.parametrize("is_member", [True, False], ids=["from a member's address", "from a new address"])
def test_fetches_succeed_while_silent_strangers_take_every_place(
    is_member: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pair(Encryption.TLS, settings=lambda mode: replace(PATIENT, encryption=mode)) as running:
        if not is_member:
            monkeypatch.setattr(_Port, "is_member_address", lambda _port, _address: False)
        with SilentFlood(running.endpoint, 200) as flood:
            for _ in range(20):
                assert running.fetch(0, timeout_s=WAIT_S) == running.bodies[0]
                running.client._connections.drop_idle()
        assert flood.refused > 0
        assert running.server.turned_away > 0


@pytest.fixture
def endless_window(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a slow machine is flooded, too."""
    monkeypatch.setattr("gossipd.runtime.flooding_addresses.WINDOW_S", math.inf)


@pytest.mark.usefixtures("endless_window")
@pytest.mark.parametrize("word", [b"", b"GET / HTTP/1.1\r\n\r\n"], ids=["silent", "loud"])
def test_the_kernel_drops_connections_from_addresses_of_a_flood(word: bytes) -> None:
    few = replace(PATIENT, encryption=Encryption.TLS, pending_max=8)
    with (
        pair(Encryption.TLS, settings=lambda _mode: few) as running,
        SilentFlood(running.endpoint, 40, word=word),
    ):
        running.await_dropped({f"127.0.0.{at}" for at in range(2, 6)})
        assert running.fetch(0, timeout_s=WAIT_S) == running.bodies[0]


@pytest.mark.usefixtures("endless_window")
def test_an_address_is_let_in_again_though_nobody_else_connects(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gossipd.runtime.flooding_addresses.DROP_S", 1.0)

    def gets_in() -> bool:
        try:
            socket.create_connection(running.endpoint, 0.2, source_address=("127.0.0.2", 0)).close()
        except TimeoutError:
            return False
        return True

    with pair(Encryption.NONE) as running:
        give_up_s = time.monotonic() + WAIT_S
        while gets_in():
            assert time.monotonic() < give_up_s, "it is not dropped"
        while not gets_in():
            assert time.monotonic() < give_up_s, "it is dropped for ever"


def fail(running: Pair, times: int) -> None:
    for _ in range(times):
        with knock(running) as sock:
            sock.sendall(hello(b"\x00" * 32))
            assert hangs_up(sock) == b""


@pytest.mark.usefixtures("endless_window")
def test_an_address_whose_connections_show_a_key_is_not_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_Port, "is_member_address", lambda _port, _address: False)
    with pair(Encryption.NONE) as running:
        fail(running, PORT_FAILURES_MAX - 1)
        assert running.fetch(0) == running.bodies[0]
        fail(running, 2)
        errors_of(running)  # every connection is counted by now
        assert running.server.dropped_addresses == ()


@pytest.mark.usefixtures("endless_window")
def test_a_members_address_is_never_dropped() -> None:
    with pair(Encryption.NONE) as running:
        fail(running, PORT_FAILURES_MAX + 1)
        errors_of(running)
        assert running.server.dropped_addresses == ()


def encrypted(running: Pair, key: SecretKey, cluster_key: bytes) -> bytes:
    """What a TLS client with this certificate is told; it trusts any server."""
    context = client_credentials(key, cluster_key).client
    context.verify_mode = ssl.CERT_NONE
    with knock(running) as sock, context.wrap_socket(sock) as secure:
        try:
            secure.sendall(REQUEST)
            return hangs_up(secure)
        except OSError:
            return b""


def test_a_certificate_of_another_cluster_gets_no_answer() -> None:
    with pair(Encryption.TLS) as running:
        assert encrypted(running, SecretKey(b"\x02" * 32), b"\x66" * 32) == b""
        assert errors_of(running) == {"E_HANDSHAKE": 1}


def test_a_certificate_of_the_cluster_for_a_node_that_is_no_member_is_answered_refused() -> None:
    with pair(Encryption.TLS) as running:
        assert Reply.from_wire(encrypted(running, STRANGER_KEY, CLUSTER_KEY)).status is Status.REFUSED


def test_a_client_without_a_certificate_gets_no_answer() -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    with pair(Encryption.TLS) as running, knock(running) as sock, context.wrap_socket(sock) as secure:
        try:
            secure.sendall(REQUEST)
            answer = hangs_up(secure)
        except OSError:
            answer = b""
        assert answer == b""


def test_the_self_check_fails_when_strangers_are_let_in(monkeypatch: pytest.MonkeyPatch) -> None:
    with pair(Encryption.NONE) as running:
        monkeypatch.setattr(IssuedTokens, "redeem", lambda _book, _token: CLIENT)
        with pytest.raises(SecurityCheckError):
            self_check(running.endpoint, Encryption.NONE, [CLUSTER_KEY])


def test_the_self_check_fails_when_everybody_is_a_member() -> None:
    class Everybody(set):  # type: ignore[type-arg]
        def __contains__(self, _node: object) -> bool:
            return True

    with pair(Encryption.TLS, members=Everybody()) as running, pytest.raises(SecurityCheckError):
        self_check(running.endpoint, Encryption.TLS, [CLUSTER_KEY])


@pytest.mark.parametrize("hangs_up", [False, True])
def test_the_self_check_takes_no_answer_for_no_verdict(monkeypatch: pytest.MonkeyPatch, hangs_up: bool) -> None:
    monkeypatch.setattr("gossipd.transfer.self_check.ANSWER_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:

        def hang_up() -> None:
            for _ in range(3):
                silent.accept()[0].close()

        ending = threading.Thread(target=hang_up)
        if hangs_up:
            ending.start()
        with pytest.raises(CheckUnansweredError):
            self_check(silent.getsockname(), Encryption.TLS, [CLUSTER_KEY])
        if hangs_up:
            ending.join()


def test_the_server_closes_while_uploads_hang() -> None:
    before = set(threading.enumerate())
    with pair(Encryption.NONE) as running:
        socks = [socket.create_connection(running.endpoint) for _ in range(3)]
        for sock in socks:
            sock.sendall(hello(running.tokens.issue(CLIENT)) + REQUEST)
            sock.recv(1)
    for sock in socks:
        sock.close()
    assert set(threading.enumerate()) <= before
