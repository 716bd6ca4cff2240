"""A chunk that arrives at a host is sent on while it comes, whole only once it has been verified there."""

from __future__ import annotations

import random
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from gossipd.identity.keys import SecretKey
from gossipd.runtime.buffer_pool import BufferPool
from gossipd.runtime.incoming_chunks import IncomingChunk, IncomingChunks
from gossipd.transfer.channel import Channel
from gossipd.transfer.errors import (
    FetchCancelledError,
    PeerNotHoldingError,
    PeerRefusedError,
    RelayEndedError,
    TransferError,
)
from gossipd.transfer.settings import BulkSettings, Encryption
from gossipd.wire.transfer import PIECE_HEAD_BYTES, Reply, Status, piece_head
from tests.gossipd.transfer.pairs import CHUNK_BYTES, CLIENT, MODEL, SERVER, WAIT_S, Pair, node_of, pair
from tests.gossipd.transfer.scripted import client_of, read_request, scripted_server

both_modes = pytest.mark.parametrize("encryption", list(Encryption), ids=lambda mode: mode.value)
UPSTREAM = node_of(SecretKey(b"\x03" * 32))
CHUNK = 2


@contextmanager
def chunk_on_its_way(running: Pair, filled: int, *, body: bytes | None = None) -> Iterator[IncomingChunk]:
    """Chunk 2 is not at the server yet; so many bytes of it are."""
    running.store.chunks.pop((MODEL, CHUNK), None)
    body = running.bodies[CHUNK] if body is None else body
    incoming = running.arriving.begin(MODEL, CHUNK, UPSTREAM, running.pool.acquire(len(body)))
    incoming.view[:] = body
    incoming.advance(filled)
    try:
        yield incoming
    finally:
        incoming.release()


@contextmanager
def fetching(running: Pair) -> Iterator[Future[bytes]]:
    with ThreadPoolExecutor(1) as thread:
        yield thread.submit(running.fetch, CHUNK, timeout_s=WAIT_S)


def await_relayed(running: Pair, filled: int) -> None:
    """Until the client has so many bytes of it, the last byte not counted."""
    running.await_listed(CHUNK)
    found = running.received.find(MODEL, CHUNK)
    assert found is not None
    at = 0
    while at < filled:
        with found.piece(at, WAIT_S) as piece:
            assert piece
            at += len(piece)


def land(running: Pair, incoming: IncomingChunk) -> None:
    running.store.put(MODEL, CHUNK, incoming.view, UPSTREAM, 0.1)
    incoming.land()
    incoming.release()


@both_modes
def test_what_has_come_is_sent_on_at_once_and_the_rest_when_it_is_verified(encryption: Encryption) -> None:
    with pair(encryption) as running, chunk_on_its_way(running, CHUNK_BYTES // 4) as incoming, fetching(running) as got:
        await_relayed(running, CHUNK_BYTES // 4)
        incoming.advance(CHUNK_BYTES // 2)
        await_relayed(running, CHUNK_BYTES // 2)
        land(running, incoming)
        assert got.result(WAIT_S) == running.bodies[CHUNK]
        running.await_free_slots(BulkSettings().slots)
    assert running.sent == [(CLIENT, MODEL, CHUNK_BYTES)]
    assert running.listed == [(MODEL, CHUNK, SERVER)], "the client would relay it in turn"
    assert running.pool.statistics().leased_bytes == 0


@both_modes
def test_nothing_of_an_arriving_chunk_goes_to_a_member_that_is_no_target(encryption: Encryption) -> None:
    with pair(encryption) as running, chunk_on_its_way(running, CHUNK_BYTES // 4):
        running.outsiders.add((CLIENT, MODEL))
        with pytest.raises(PeerRefusedError):
            running.fetch(CHUNK)
        assert running.listed == []


@both_modes
def test_the_last_byte_is_kept_back_until_the_chunk_is_verified(encryption: Encryption) -> None:
    with pair(encryption) as running, chunk_on_its_way(running, CHUNK_BYTES) as incoming:
        pass_on = running.arriving.list((MODEL, CHUNK), incoming)
        assert pass_on, "it was filled in one go"
        with fetching(running) as got:
            await_relayed(running, CHUNK_BYTES - 1)
            assert not got.done()
            land(running, incoming)
            assert got.result(WAIT_S) == running.bodies[CHUNK]


@both_modes
def test_a_chunk_that_does_not_arrive_is_nobodys_fault_and_the_connection_stays(encryption: Encryption) -> None:
    with pair(encryption) as running:
        running.fetch(0)
        with chunk_on_its_way(running, CHUNK_BYTES // 2) as incoming, fetching(running) as got:
            await_relayed(running, CHUNK_BYTES // 2)
            incoming.release()
            with pytest.raises(RelayEndedError) as caught:
                got.result(WAIT_S)
        assert caught.value.reason is PeerNotHoldingError.reason
        assert running.fetch(1) == running.bodies[1]
        assert running.client.statistics().connections == 1
        assert running.received.find(MODEL, CHUNK) is None
    assert running.sent == [(CLIENT, MODEL, CHUNK_BYTES)] * 2
    assert running.pool.statistics().leased_bytes == 0


@both_modes
def test_a_wrong_chunk_is_never_sent_whole(encryption: Encryption) -> None:
    wrong = random.Random(7).randbytes(CHUNK_BYTES)
    with (
        pair(encryption) as running,
        chunk_on_its_way(running, CHUNK_BYTES // 2, body=wrong) as incoming,
        fetching(running) as got,
    ):
        await_relayed(running, CHUNK_BYTES // 2)
        incoming.advance(CHUNK_BYTES)
        await_relayed(running, CHUNK_BYTES - 1)
        incoming.release()  # it did not hash to its digest
        with pytest.raises(RelayEndedError):
            got.result(WAIT_S)


def test_a_chunk_that_came_from_elsewhere_meanwhile_is_not_mixed_with_what_was_sent() -> None:
    with pair(Encryption.NONE) as running, chunk_on_its_way(running, CHUNK_BYTES // 2) as incoming:
        with fetching(running) as got:
            await_relayed(running, CHUNK_BYTES // 2)
            running.store.chunks[MODEL, CHUNK] = running.bodies[CHUNK]
            incoming.release()
            with pytest.raises(RelayEndedError):
                got.result(WAIT_S)
        assert running.fetch(CHUNK) == running.bodies[CHUNK]


def test_a_chunk_is_not_sent_back_to_whom_it_comes_from() -> None:
    with pair(Encryption.NONE) as running:
        running.store.chunks.pop((MODEL, CHUNK))
        with running.arriving.begin(MODEL, CHUNK, CLIENT, running.pool.acquire(CHUNK_BYTES)) as incoming:
            incoming.advance(CHUNK_BYTES // 2)
            with pytest.raises(PeerNotHoldingError):
                running.fetch(CHUNK)


def test_a_buffer_is_not_given_back_while_a_relay_sends_from_it() -> None:
    with pair(Encryption.NONE) as running, chunk_on_its_way(running, CHUNK_BYTES // 2) as incoming:
        with incoming.piece(0, WAIT_S) as piece:
            assert piece is not None
            assert len(piece) == 64 * 1024, "a slow peer holds the buffer for no longer than that takes"
            incoming.release()
            assert running.pool.statistics().leased_bytes > 0
            assert bytes(piece) == running.bodies[CHUNK][: 64 * 1024]
        assert running.pool.statistics().leased_bytes == 0


def test_who_waits_for_more_than_there_is_gets_nothing_yet_and_then_none() -> None:
    with pair(Encryption.NONE) as running, chunk_on_its_way(running, CHUNK_BYTES // 2) as incoming:
        with incoming.piece(CHUNK_BYTES // 2, 0.0) as piece:
            assert piece is not None
            assert not len(piece)
        incoming.release()
        with incoming.piece(CHUNK_BYTES // 2, WAIT_S) as piece:
            assert piece is None


def test_a_second_fetch_of_a_chunk_is_found_when_the_first_has_ended() -> None:
    with pair(Encryption.NONE) as running, chunk_on_its_way(running, CHUNK_BYTES // 2) as first:
        with chunk_on_its_way(running, CHUNK_BYTES // 4) as second:
            assert running.arriving.find(MODEL, CHUNK) is first
            first.release()
            assert running.arriving.find(MODEL, CHUNK) is None
            second.advance(CHUNK_BYTES // 2)
            assert running.arriving.find(MODEL, CHUNK) is second
        assert running.arriving.find(MODEL, CHUNK) is None


def test_too_little_of_a_chunk_and_all_of_it_are_not_found() -> None:
    with pair(Encryption.NONE) as running:
        for filled in (0, CHUNK_BYTES // 8 - 1, CHUNK_BYTES):
            with chunk_on_its_way(running, filled):
                assert running.arriving.find(MODEL, CHUNK) is None


@pytest.mark.parametrize("pieces", [[128 * 1024] * 8, [64 * 1024, 960 * 1024], [256 * 1024, 100, 786332]], ids=str)
def test_a_receiver_sleeps_until_several_pieces_of_a_relay_are_here(
    pieces: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """But not for the last byte, which comes when the peer has stored the chunk, nor for heads that may not come."""
    length, body, waits = sum(pieces), random.Random(1).randbytes(sum(pieces)), list[int]()
    real = Channel.expect

    def expect(channel: Channel, want: int, patience_s: float) -> None:
        assert 0 < patience_s < 1
        waits.append(want)
        began = time.monotonic()
        real(channel, want, 10.0)
        assert time.monotonic() - began < 10.0, "it was awaited in vain"

    monkeypatch.setattr(Channel, "expect", expect)

    def serve(sock: socket.socket) -> None:
        request = read_request(sock, with_hello=True)
        sock.sendall(Reply(Status.RELAYED, request.chunk, length, free_slots=1).to_wire())
        at = 0
        for piece in pieces:
            part = body[at : min(at + piece, length - 1)]
            sock.sendall(piece_head(len(part)) + part)
            at += len(part)
        sock.sendall(piece_head(1) + body[-1:])
        sock.recv(1)  # an end would wake the receiver

    with (
        scripted_server(serve) as endpoint,
        client_of() as client,
        client.fetch_chunk(SERVER, endpoint, MODEL, CHUNK, length, timeout_s=WAIT_S) as incoming,
    ):
        assert incoming.view == body
    assert len([want for want in waits if want > PIECE_HEAD_BYTES]) <= 4, "told, ending, end"


def test_the_usual_rate_of_a_connection_is_no_burst_of_what_was_here() -> None:
    length, waited_s = 512 * 1024, 0.1

    def serve(sock: socket.socket) -> None:
        for wait_s in (waited_s, 0.0):
            request = read_request(sock, with_hello=wait_s > 0)
            threading.Event().wait(wait_s)
            sock.sendall(Reply(Status.OK, request.chunk, length, free_slots=1).to_wire() + bytes(length))
        sock.recv(1)

    with scripted_server(serve) as endpoint, client_of() as client:
        for at_most in (length / waited_s, 2 * length / waited_s):
            client.fetch_chunk(SERVER, endpoint, MODEL, CHUNK, length, timeout_s=WAIT_S).release()
            (channel,) = client._watchdog.channels()
            assert 0 < channel.rate <= at_most


def test_a_relay_ends_soon_after_its_peer_has_gone() -> None:
    with pair(Encryption.NONE) as running, chunk_on_its_way(running, CHUNK_BYTES // 2):
        with fetching(running) as got:
            await_relayed(running, CHUNK_BYTES // 2)
            running.client.cancel(SERVER, MODEL, CHUNK)
            with pytest.raises(FetchCancelledError):
                got.result(WAIT_S)
        running.await_free_slots(BulkSettings().slots)


def test_a_server_closes_in_time_though_relays_wait() -> None:
    with pair(Encryption.NONE) as running, chunk_on_its_way(running, CHUNK_BYTES // 2), fetching(running) as got:
        await_relayed(running, CHUNK_BYTES // 2)
        running.server.close()
        with pytest.raises(TransferError):
            got.result(WAIT_S)


def test_pieces_are_what_comes_in_a_quarter_of_a_second_within_bounds() -> None:
    length = 16 << 20
    incoming = IncomingChunks().begin(MODEL, CHUNK, UPSTREAM, BufferPool(length).acquire(length))
    assert incoming.piece_bytes(0.0) == incoming.piece_bytes(1.0) == 64 * 1024, "nothing is known yet"
    incoming.advance(1 << 20)
    assert incoming.piece_bytes(1.0) == 1 << 18
    assert incoming.piece_bytes(0.0001) == length // 8 - (1 << 20), "it ends where the chunk is announced"
    incoming.advance(length // 8)
    assert incoming.piece_bytes(0.0001) == length // 4
    assert incoming.piece_bytes(100.0) == 64 * 1024
    assert incoming.piece_bytes(0.0001, is_duplex=True) > length // 2
    hurried: list[int] = []
    incoming.on_relay(hurried.append)
    with incoming.piece(0, 0.0), incoming.piece(0, 0.0):
        assert hurried == [length // 4], "once"
        pieces = []
        for sixteenth in (1, 2, 5, 12, 15):
            incoming.advance(length // 16 * sixteenth)
            pieces.append(incoming.piece_bytes(1e-9, is_duplex=True) * 16 // length)
        assert pieces == [1, 4, 4, 2, 1], "a relay waits for less, at its ends for little"
    incoming.release()


def test_pieces_end_where_the_end_is_told_and_are_small_from_there() -> None:
    length = 16 << 20
    incoming = IncomingChunks().begin(MODEL, CHUNK, UPSTREAM, BufferPool(length).acquire(length))
    rate = 8 << 20  # bytes per second: the end is told a tenth of a second before, 838,860 bytes
    filled = 0
    pieces = []
    while filled < length:
        pieces.append(min(incoming.piece_bytes(filled / rate), length - filled))
        filled += pieces[-1]
        incoming.advance(filled)
    incoming.release()
    told_at = length - rate // 10
    bounds = [sum(pieces[: count + 1]) for count in range(len(pieces))]
    assert any(0 <= bound - told_at < 64 * 1024 for bound in bounds), "a piece ends there"
    assert len([bound for bound in bounds if told_at < bound < length]) >= 3, "the next request can be sent"
    assert max(pieces) == length // 8
