"""A real server and a real client on loopback: what is asked for arrives, and every refusal has its type."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from gossipd.core.errors import GossipdError
from gossipd.core.events import FailReason
from gossipd.core.ids import DeploymentId
from gossipd.transfer.channel import Channel
from gossipd.transfer.errors import (
    PeerBusyError,
    PeerNotHoldingError,
    PeerProtocolError,
    PeerRefusedError,
    TransferError,
)
from gossipd.transfer.self_check import self_check
from gossipd.transfer.settings import MANIFEST_BYTES_MAX, BulkSettings, Encryption
from gossipd.wire.transfer import REPLY_BYTES
from tests.contracts.chunk_store_fakes import FakeChunkStore
from tests.gossipd.transfer.pairs import CLIENT, CLUSTER_KEY, MODEL, SERVER, WAIT_S, pair

both_modes = pytest.mark.parametrize("encryption", list(Encryption), ids=lambda mode: mode.value)


@both_modes
def test_chunks_arrive_byte_for_byte(encryption: Encryption) -> None:
    with pair(encryption) as running:
        assert [running.fetch(chunk) for chunk in range(len(running.bodies))] == running.bodies
        counted = running.client.statistics().peers[SERVER]
        assert counted.chunks_in == len(running.bodies)
        assert counted.bytes_in == sum(map(len, running.bodies))
    # The server's threads have ended with the pair: what they count last is counted.
    assert running.sent == [(CLIENT, MODEL, len(body)) for body in running.bodies]


@both_modes
def test_a_chunk_of_many_small_files_arrives_as_one(encryption: Encryption) -> None:
    with pair(encryption, store=FakeChunkStore(span_bytes=1000)) as running:
        assert running.fetch(0) == running.bodies[0]


@both_modes
def test_one_connection_serves_one_fetch_after_the_other(encryption: Encryption) -> None:
    with pair(encryption) as running:
        for _ in range(5):
            running.fetch(1)
        assert running.client.statistics().connections == 1
        assert running.server.statistics().connections == 1


def test_an_answer_and_the_first_piece_are_one_wait_after_a_chunk_and_not_after_a_refusal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waits: list[int] = []
    expect = Channel.expect

    def noted(channel: Channel, want: int, patience_s: float) -> None:
        assert 0 < patience_s <= 0.25
        waits.append(want)
        expect(channel, want, patience_s)

    monkeypatch.setattr(Channel, "expect", noted)
    with pair(Encryption.NONE) as running:
        running.fetch(0)
        assert waits == [], "nothing is known of how quickly it comes"
        assert running.fetch(1) == running.bodies[1]
        assert waits == [REPLY_BYTES + 64 * 1024]
        del running.store.chunks[MODEL, 2]
        for _ in range(2):
            with pytest.raises(PeerNotHoldingError):
                running.fetch(2)
        assert len(waits) == 2, "a refusal is not awaited longer than it takes, but once"
        assert running.client.statistics().connections == 1


def test_a_token_given_ahead_opens_a_connection_and_none_is_asked_for() -> None:
    with pair(Encryption.NONE) as running:
        running.received_tokens.put(SERVER, [running.tokens.issue(CLIENT)], 10)
        assert running.fetch(0) == running.bodies[0]
        assert running.asked == []


@pytest.mark.parametrize("what", ["manifest", "complaint"])
def test_nobody_is_blamed_for_a_stale_token_whatever_is_asked_for(what: str) -> None:
    with pair(Encryption.NONE) as running:
        running.received_tokens.put(SERVER, [bytes(32)] * 3, 10)
        if what == "manifest":
            body = running.store.manifest_bytes(MODEL)
            found = running.client.fetch_manifest(SERVER, running.endpoint, MODEL, len(body), timeout_s=WAIT_S)
            assert found == body
        else:
            running.client.complain(SERVER, running.endpoint, MODEL, 0, timeout_s=WAIT_S)
        assert running.client.statistics().errors == {}


def test_after_a_stale_token_one_is_asked_for_though_others_have_come_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pair(Encryption.NONE) as running:
        running.received_tokens.put(SERVER, [bytes(32)], 10)
        monkeypatch.setattr(
            running.received_tokens, "forget", lambda node: running.received_tokens.put(node, [bytes(32)] * 8, 10)
        )
        assert running.fetch(0) == running.bodies[0]
        assert running.asked == [SERVER]


def test_when_tokens_given_ahead_are_not_taken_one_is_asked_for_and_nobody_is_blamed() -> None:
    with pair(Encryption.NONE) as running:
        running.received_tokens.put(SERVER, [bytes(32), bytes(32)], 10)
        assert running.fetch(0) == running.bodies[0]
        assert running.asked == [SERVER]
        assert running.received_tokens.take(SERVER) is None
        assert running.client.statistics().errors == {}


@both_modes
def test_many_fetches_at_once_share_a_few_connections(encryption: Encryption) -> None:
    with pair(encryption) as running, ThreadPoolExecutor(16) as threads:
        wanted = [0, 1, 2, 3] * 8
        assert list(threads.map(running.fetch, wanted)) == [running.bodies[chunk] for chunk in wanted]
        assert running.client.statistics().connections <= BulkSettings().connections_per_peer
        assert running.pool.statistics().leased_bytes == 0


@both_modes
def test_the_manifest_arrives_whatever_size_gossip_told(encryption: Encryption) -> None:
    with pair(encryption) as running:
        fetch = running.client.fetch_manifest
        assert [fetch(SERVER, running.endpoint, MODEL, size, timeout_s=WAIT_S) for size in (8, 9, 7)] == [
            b"envelope"
        ] * 3
        with pytest.raises(PeerProtocolError):
            fetch(SERVER, running.endpoint, MODEL, MANIFEST_BYTES_MAX + 1, timeout_s=WAIT_S)


@both_modes
def test_what_the_server_cannot_give_has_a_code_and_keeps_the_connection(encryption: Encryption) -> None:
    with pair(encryption) as running:
        running.fetch(0)
        del running.store.chunks[MODEL, 2]
        with pytest.raises(PeerNotHoldingError) as missing:
            running.fetch(2)
        assert (missing.value.reason, missing.value.code) == (FailReason.NOT_HELD, "E_NOT_HELD")
        with pytest.raises(PeerRefusedError) as outside:
            running.client.fetch_chunk(SERVER, running.endpoint, MODEL, 99, 10, timeout_s=WAIT_S)
        assert outside.value.code == "E_CHUNK_RANGE"
        with pytest.raises(PeerRefusedError) as unknown:
            running.client.fetch_chunk(SERVER, running.endpoint, DeploymentId(bytes(32)), 0, 10, timeout_s=WAIT_S)
        assert unknown.value.code == "E_UNKNOWN_MANIFEST"
        assert unknown.value.reason is FailReason.REFUSED
        assert running.server.statistics().connections == 1


@both_modes
def test_a_request_with_another_length_is_refused_and_cut(encryption: Encryption) -> None:
    with pair(encryption) as running:
        with pytest.raises(PeerRefusedError) as caught:
            running.fetch(0, length=100)
        assert caught.value.code == "E_LENGTH"
        assert running.client.statistics().connections == 0


@both_modes
def test_a_full_server_says_busy_at_once_and_frees_its_slots(encryption: Encryption) -> None:
    def one_slot(mode: Encryption) -> BulkSettings:
        return BulkSettings(encryption=mode, slots=1, slots_per_peer=1)

    with pair(encryption, settings=one_slot) as running, ThreadPoolExecutor(1) as threads:
        running.fetch(3)
        running.await_free_slots(1)
        running.upload.set_rate(64 * 1024)
        first = threads.submit(running.fetch, 0, timeout_s=WAIT_S)
        running.await_free_slots(0)
        with pytest.raises(PeerBusyError) as caught:
            running.fetch(1)
        assert (caught.value.reason, caught.value.code) == (FailReason.BUSY, "E_BUSY")
        running.upload.set_rate(None)
        assert first.result() == running.bodies[0]
        running.await_free_slots(1)
        assert running.fetch(1) == running.bodies[1]
        assert running.slots_seen[:2] == [0, 1]
        assert running.server.statistics().peers[CLIENT].busy == 1


@both_modes
def test_a_chunk_that_others_go_before_is_busy_until_its_time_and_each_upload_ends_once(encryption: Encryption) -> None:
    with pair(encryption) as running:
        running.held_back.add(0)
        with pytest.raises(PeerBusyError):
            running.fetch(0)
        assert running.fetch(1) == running.bodies[1]
        running.held_back.clear()
        assert running.fetch(0) == running.bodies[0]
        running.await_free_slots(BulkSettings().slots)
        assert running.uploads_ended == [(1, 1), (0, 2)], "each after it was counted as sent"


def test_a_chunk_that_finds_no_slot_is_told_as_not_sent() -> None:
    def one_slot(mode: Encryption) -> BulkSettings:
        return BulkSettings(encryption=mode, slots=1, slots_per_peer=1)

    with pair(Encryption.NONE, settings=one_slot) as running, ThreadPoolExecutor(1) as threads:
        running.upload.set_rate(64 * 1024)
        first = threads.submit(running.fetch, 0, timeout_s=WAIT_S)
        running.await_free_slots(0)
        with pytest.raises(PeerBusyError):
            running.fetch(1)
        assert running.uploads_ended == [(1, 0)]
        running.upload.set_rate(None)
        assert first.result() == running.bodies[0]


@both_modes
def test_a_member_that_is_forgotten_is_served_no_more(encryption: Encryption) -> None:
    with pair(encryption) as running:
        running.fetch(0)
        running.members.clear()
        with pytest.raises(PeerRefusedError) as caught:
            running.fetch(1)
        assert caught.value.code == "E_REFUSED"


@both_modes
@pytest.mark.parametrize("what", ["chunk", "complaint"])
def test_a_member_that_is_no_target_gets_no_chunk(encryption: Encryption, what: str) -> None:
    with pair(encryption) as running:
        running.outsiders.add((CLIENT, MODEL))
        with pytest.raises(PeerRefusedError) as caught:
            if what == "complaint":
                running.client.complain(SERVER, running.endpoint, MODEL, 1, timeout_s=WAIT_S)
            else:
                running.fetch(1)
        assert caught.value.code == "E_NOT_A_TARGET"
        assert running.server.statistics().errors == {"E_NOT_A_TARGET": 1}
        assert (running.sent, running.complaints) == ([], [])
        running.outsiders.clear()
        assert running.fetch(0) == running.bodies[0], "the connection may be used again"


@both_modes
def test_a_member_that_is_no_target_gets_the_manifest(encryption: Encryption) -> None:
    with pair(encryption) as running:
        running.outsiders.add((CLIENT, MODEL))
        body = running.store.manifest_bytes(MODEL)
        assert running.client.fetch_manifest(SERVER, running.endpoint, MODEL, len(body), timeout_s=WAIT_S) == body


@both_modes
def test_a_running_fetch_can_be_cancelled(encryption: Encryption) -> None:
    with pair(encryption) as running, ThreadPoolExecutor(1) as threads:
        running.fetch(3)
        running.await_free_slots(BulkSettings().slots)  # else the slot of this one may be taken for the next one's
        running.upload.set_rate(8 * 1024)
        fetch = threads.submit(running.fetch, 0, timeout_s=WAIT_S)
        running.await_free_slots(BulkSettings().slots - 1)
        running.client.cancel(SERVER, MODEL, 0)
        with pytest.raises(TransferError) as caught:
            fetch.result(timeout=WAIT_S)
        assert caught.value.reason is FailReason.CANCELLED
        assert running.pool.statistics().leased_bytes == 0


@both_modes
def test_a_complaint_reaches_the_server(encryption: Encryption) -> None:
    with pair(encryption) as running:
        running.client.complain(SERVER, running.endpoint, MODEL, 2, timeout_s=WAIT_S)
        running.fetch(0)
        assert running.complaints == [(CLIENT, MODEL, 2)]


@both_modes
def test_the_self_check_passes(encryption: Encryption) -> None:
    with pair(encryption) as running:
        self_check(running.endpoint, encryption, [CLUSTER_KEY])


@both_modes
def test_closing_leaves_no_thread_no_connection_and_no_file(encryption: Encryption) -> None:
    before = set(threading.enumerate())
    with pair(encryption) as running, ThreadPoolExecutor(4) as threads:
        list(threads.map(running.fetch, range(4)))
        with pytest.raises(PeerRefusedError):
            running.fetch(0, length=7)
    assert set(threading.enumerate()) <= before
    assert running.store.opened == len(running.store.closed) == 5
    with pytest.raises(GossipdError):
        running.fetch(0)
