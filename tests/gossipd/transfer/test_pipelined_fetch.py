"""A fetch that is asked for behind another: on its connection, in its upload slot, and never in its stead."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from gossipd.core.events import ChunkArriving, ChunkEnding
from gossipd.runtime.buffer_pool import BufferPool
from gossipd.runtime.incoming_chunks import IncomingChunk, IncomingChunks
from gossipd.transfer.channel import Channel
from gossipd.transfer.connections import BulkConnection
from gossipd.transfer.errors import FetchCancelledError, RelayEndedError
from gossipd.transfer.fetch import Fetch
from gossipd.transfer.pipelined_fetch import Successor
from gossipd.transfer.settings import BulkSettings, Encryption
from tests.gossipd.transfer.pairs import CHUNK_BYTES, MODEL, SERVER, WAIT_S, Pair, pair
from tests.gossipd.transfer.test_relays import CHUNK, await_relayed, chunk_on_its_way, fetching, land

both_modes = pytest.mark.parametrize("encryption", list(Encryption), ids=lambda mode: mode.value)
NEXT = 1


def one_slot(encryption: Encryption) -> BulkSettings:
    return BulkSettings(encryption=encryption, slots=1, slots_per_peer=1)


class Scene:
    """Half of chunk 2 has come, and chunk 1 is asked for behind it."""

    def __init__(self, running: Pair, incoming: IncomingChunk, first: Future[bytes], second: Future[bytes]) -> None:
        self.running = running
        self.incoming = incoming
        self.first = first
        self.second = second

    def advance(self) -> None:
        """Another quarter comes: between two pieces the request of the next is sent."""
        self.incoming.advance(CHUNK_BYTES * 3 // 4)
        await_relayed(self.running, CHUNK_BYTES * 3 // 4)


@contextmanager
def scene(encryption: Encryption, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    admitted = threading.Event()
    admit = Fetch.admit

    def noted(fetch: Fetch, place: Successor) -> bool:
        is_in = admit(fetch, place)
        admitted.set()
        return is_in

    monkeypatch.setattr(Fetch, "admit", noted)
    with (
        pair(encryption, settings=one_slot) as running,
        chunk_on_its_way(running, CHUNK_BYTES // 2) as incoming,
        ThreadPoolExecutor(2) as threads,
    ):
        first = threads.submit(running.fetch, CHUNK, timeout_s=WAIT_S)
        await_relayed(running, CHUNK_BYTES // 2)
        second = threads.submit(running.fetch, NEXT, timeout_s=WAIT_S, behind=CHUNK)
        assert admitted.wait(WAIT_S)
        try:
            yield Scene(running, incoming, first, second)
        finally:
            incoming.release()


@both_modes
def test_it_comes_on_the_same_connection_and_in_the_only_slot(
    encryption: Encryption, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked = threading.Event()
    is_open = Channel.is_open

    def look(channel: Channel) -> bool:
        looked.set()
        return is_open(channel)

    monkeypatch.setattr("gossipd.runtime.incoming_chunks.ENDING_S", 1e6)  # the end is near however slow the machine is
    with scene(encryption, monkeypatch) as on:
        on.advance()
        monkeypatch.setattr(Channel, "is_open", look)
        assert looked.wait(WAIT_S), "the server waits for more of the first, and has the next request by then"
        assert not on.second.done()
        land(on.running, on.incoming)
        assert on.first.result(WAIT_S) == on.running.bodies[CHUNK]
        assert on.second.result(WAIT_S) == on.running.bodies[NEXT]
        assert on.running.fetch(0) == on.running.bodies[0], "each was asked for once"
        assert on.running.client.statistics().connections == 1
        assert on.running.client.statistics().peers[SERVER].busy == 0
        assert on.running.pool.statistics().leased_bytes == 0
        assert (MODEL, CHUNK, SERVER) in on.running.ended


@both_modes
def test_it_comes_though_there_was_no_time_to_send_its_request_before(
    encryption: Encryption, monkeypatch: pytest.MonkeyPatch
) -> None:
    with scene(encryption, monkeypatch) as on:
        land(on.running, on.incoming)
        assert on.first.result(WAIT_S) == on.running.bodies[CHUNK]
        assert on.second.result(WAIT_S) == on.running.bodies[NEXT]
        assert on.running.client.statistics().connections == 1


@both_modes
def test_it_comes_though_the_chunk_before_it_does_not(encryption: Encryption, monkeypatch: pytest.MonkeyPatch) -> None:
    with scene(encryption, monkeypatch) as on:
        on.advance()
        on.incoming.release()
        with pytest.raises(RelayEndedError):
            on.first.result(WAIT_S)
        assert on.second.result(WAIT_S) == on.running.bodies[NEXT]
        assert on.running.client.statistics().connections == 1


@both_modes
def test_it_has_a_connection_of_its_own_when_that_of_the_first_is_cut(
    encryption: Encryption, monkeypatch: pytest.MonkeyPatch
) -> None:
    with scene(encryption, monkeypatch) as on:
        on.advance()
        on.running.client.cancel(SERVER, MODEL, CHUNK)
        with pytest.raises(FetchCancelledError):
            on.first.result(WAIT_S)
        assert on.running.fetch_when_free(NEXT) == on.running.bodies[NEXT]


@both_modes
@pytest.mark.parametrize("is_asked", [False, True], ids=["before it was asked for", "after it was asked for"])
def test_when_it_is_cancelled_nobody_gets_its_answer(
    encryption: Encryption, monkeypatch: pytest.MonkeyPatch, *, is_asked: bool
) -> None:
    monkeypatch.setattr(Channel, "is_quiet", lambda channel: channel.cut_by is None)  # its answer may be still to come
    with scene(encryption, monkeypatch) as on:
        if is_asked:
            on.advance()
        on.running.client.cancel(SERVER, MODEL, NEXT)
        with pytest.raises(FetchCancelledError):
            on.second.result(WAIT_S)
        land(on.running, on.incoming)
        assert on.first.result(WAIT_S) == on.running.bodies[CHUNK]
        assert on.running.fetch_when_free(0) == on.running.bodies[0]
        assert on.running.pool.statistics().leased_bytes == 0


def test_behind_what_is_not_on_its_way_it_is_asked_for_as_ever() -> None:
    with pair(Encryption.NONE) as running:
        assert running.fetch(NEXT, behind=CHUNK) == running.bodies[NEXT]


def test_in_clear_it_is_asked_for_at_once_though_no_piece_ends() -> None:
    with pair(Encryption.NONE) as running, chunk_on_its_way(running, CHUNK_BYTES // 2) as incoming, fetching(running):
        await_relayed(running, CHUNK_BYTES // 2)
        (first,) = running.client._fetches
        assert first.admit(place := Successor(b""))
        assert place.is_asked
        assert place.wait(0.0, lambda: True) is None
        land(running, incoming)


def test_what_nobody_waits_for_any_more_is_not_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bytes] = []
    with pair(Encryption.TLS) as running, chunk_on_its_way(running, CHUNK_BYTES // 2) as incoming, fetching(running):
        await_relayed(running, CHUNK_BYTES // 2)
        (first,) = running.client._fetches
        place = Successor(b"request")
        assert first.admit(place)
        assert place.wait(0.0, lambda: True) is None
        channel = first.channel
        assert channel is not None
        monkeypatch.setattr(channel, "send", asked.append, raising=False)
        first.ask_for_next(channel)
        assert first.take_next() is place
        monkeypatch.undo()
        land(running, incoming)
    assert asked == []


def test_only_one_follows() -> None:
    with pair(Encryption.NONE) as running, chunk_on_its_way(running, CHUNK_BYTES // 2) as incoming, fetching(running):
        await_relayed(running, CHUNK_BYTES // 2)
        (first,) = running.client._fetches
        assert first.admit(Successor(b""))
        assert not first.admit(Successor(b""))
        first.take_next()
        assert not first.admit(Successor(b"")), "nothing more comes of it"
        land(running, incoming)


def test_a_place_that_was_given_up_or_whose_time_is_over_is_not_handed_a_connection() -> None:
    for deadline, gives_up in ((0.0, False), (math.inf, True)):
        place = Successor(b"")
        assert place.wait(deadline, lambda gives_up=gives_up: gives_up) is None  # type: ignore[misc]
        assert not place.hand_over(None)


def _into(ended: list[float]) -> Callable[[ChunkArriving | ChunkEnding], None]:
    """Notes from when on little is left of a chunk."""

    def post(event: ChunkArriving | ChunkEnding) -> None:
        at_s = event.at_s if isinstance(event, ChunkEnding) else event.ending_at_s
        if at_s is not None:
            ended.append(at_s)

    return post


def test_the_end_is_told_once_when_a_third_or_what_comes_in_a_tenth_of_a_second_is_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now_s = [0.0]
    monkeypatch.setattr("gossipd.runtime.incoming_chunks.time", SimpleNamespace(monotonic=lambda: now_s[0]))
    for rate, told_at in ((1e9, 12), (31.0, 13), (11.0, 15), (1.0, None)):  # sixteenths of the chunk per second
        ended: list[float] = []
        incoming_chunks = IncomingChunks(_into(ended))
        incoming = incoming_chunks.begin(MODEL, CHUNK, SERVER, BufferPool(CHUNK_BYTES).acquire(CHUNK_BYTES))
        seen = None
        for sixteenth in range(1, 17):
            incoming.advance(CHUNK_BYTES // 16 * sixteenth)
            seen = sixteenth if ended and seen is None else seen
            now_s[0] += 1 / rate
        incoming.release()
        assert seen == told_at
        assert len(ended) <= 1


@pytest.mark.parametrize(
    ("chunk_s", "told"), [(0.2, [0.2 * 7 / 8 - 0.06]), (0.4, []), (0.0, [])], ids=["quick", "slow", "not known"]
)
def test_in_clear_the_end_is_told_ahead_where_the_rest_is_one_piece(
    chunk_s: float, told: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gossipd.runtime.incoming_chunks.time", SimpleNamespace(monotonic=lambda: 1.0))
    ended: list[float] = []
    incoming_chunks = IncomingChunks(_into(ended), clock_ahead_s=-1.0)
    pool = BufferPool(4 * CHUNK_BYTES)
    with incoming_chunks.begin(MODEL, CHUNK, SERVER, pool.acquire(CHUNK_BYTES)) as incoming:
        incoming.expect_rate(CHUNK_BYTES / chunk_s if chunk_s else 0.0)
        incoming.advance(CHUNK_BYTES // 8, by_clock=True)
        assert ended == pytest.approx(told)
        pieces = incoming.piece_bytes(0.01, is_duplex=True)
        assert (pieces == CHUNK_BYTES * 7 // 8) == bool(told), "nothing wakes the receiver before the end"
        with incoming_chunks.begin(MODEL, CHUNK, SERVER, pool.acquire(CHUNK_BYTES)) as second:
            second.expect_rate(CHUNK_BYTES / 0.2)
            second.advance(CHUNK_BYTES // 8, by_clock=True)
            assert ended == pytest.approx(told), "the first copy is not given up for what may not come"
        incoming.advance(CHUNK_BYTES * 7 // 8, by_clock=True)
        assert len(ended) == 1, "once"


def test_an_end_is_told_as_late_as_it_should_be_and_not_at_all_where_more_follows() -> None:
    with pair(Encryption.NONE) as running:
        for share, times in ((0.0, 0), (0.1, 0), (0.15, 1)):
            lease = running.pool.acquire(CHUNK_BYTES)
            with running.received.begin(MODEL, CHUNK, SERVER, lease, ending_share=share) as incoming:
                incoming.advance(CHUNK_BYTES // 2)
                incoming.advance(CHUNK_BYTES * 7 // 8)
            assert len(running.ended) == times


def test_a_link_that_was_handed_over_says_whether_its_next_request_was_sent() -> None:
    for is_asked in (False, True):
        place = Successor(b"")
        place.is_asked = is_asked
        connection = BulkConnection(None, None)  # type: ignore[arg-type]
        with ThreadPoolExecutor(1) as threads:
            waiting = threads.submit(place.wait, time.monotonic() + WAIT_S, lambda: False)
            assert place.hand_over(connection)
            assert waiting.result(WAIT_S) is connection
        assert connection.may_be_stale
        assert connection.is_asked == is_asked
