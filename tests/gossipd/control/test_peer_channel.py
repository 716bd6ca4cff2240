"""One link's queue by values: order, bounds, and news that merges instead of piling up."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gossipd.control.peer_channel import Backlog, ChannelState, DeltaPayload, Endpoint, PeerChannel
from gossipd.control.settings import ControlSettings
from gossipd.core.ids import DeploymentId
from gossipd.wire import control
from gossipd.wire.control_frame import decode, encode, indexes
from membership.member import NodeId

PEER = NodeId(b"p" * 16)
HOLDINGS = control.Holdings(DeploymentId(b"m" * 32), 7, 8, b"\0", 1)


def channel(**changed: int) -> PeerChannel:
    return PeerChannel(PEER, ControlSettings(**changed))


def news(*added: int, dropped: tuple[int, ...] = (), reading: tuple[int, ...] = (), slots: int = 1) -> DeltaPayload:
    return DeltaPayload.of(7, tuple(sorted(added)), dropped, reading, slots)


def drain(queue: PeerChannel) -> list[bytes]:
    found = []
    while (frame := queue.next_frame()) is not None:
        found.append(frame)
    return found


def deltas(frames: list[bytes]) -> list[tuple[int, tuple[int, ...], tuple[int, ...], int]]:
    found = []
    for frame in frames:
        decoded = decode(frame)
        assert decoded is not None
        message, number = decoded
        assert isinstance(message, control.Delta)
        added, dropped = (indexes(gaps, chunk_count=10**6) for gaps in (message.added, message.dropped))
        found.append((number, added, dropped, message.free_slots))
    return found


def test_messages_keep_their_order_and_come_before_news() -> None:
    queue = channel()
    queue.put_holdings(7, HOLDINGS)
    queue.put_news(7, news(1))
    queue.put(b"later")
    assert drain(queue)[:2] == [encode(HOLDINGS, number=0), b"later"]


def test_news_before_holdings_is_for_nobody() -> None:
    queue = channel()
    assert not queue.put_news(7, news(1))
    assert drain(queue) == []


def test_numbers_count_from_holdings_on() -> None:
    queue = channel()
    queue.put_holdings(7, HOLDINGS)
    drain(queue)
    for chunk in (4, 5, 6):
        queue.put_news(7, news(chunk))
        assert deltas(drain(queue)) == [(chunk - 3, (chunk,), (), 1)]


def test_news_for_a_slow_peer_merges_into_one_delta_without_a_gap() -> None:
    queue = channel()
    queue.put_holdings(7, HOLDINGS)
    drain(queue)
    for chunk in range(100):
        queue.put_news(7, news(chunk, slots=chunk))
    assert deltas(drain(queue)) == [(1, tuple(range(100)), (), 99)]


def test_the_last_word_on_a_chunk_counts_when_news_merges() -> None:
    queue = channel()
    queue.put_holdings(7, HOLDINGS)
    drain(queue)
    queue.put_news(7, news(1, 2, reading=(3,)))
    queue.put_news(7, news(dropped=(1,)))
    queue.put_news(7, news(3))
    queue.put_news(7, news(dropped=(2,)))
    queue.put_news(7, news(2))
    assert deltas(drain(queue)) == [(1, (2, 3), (1,), 1)]


def test_a_backlog_longer_than_a_frame_goes_out_in_several() -> None:
    queue = channel()
    queue.put_holdings(7, HOLDINGS)
    drain(queue)
    queue.put_news(7, news(*range(0, 200)))
    queue.put_news(7, news(*range(200, 400)))
    sent = deltas(drain(queue))
    assert [number for number, *_ in sent] == [1, 2]
    assert [chunk for _, added, *_ in sent for chunk in added] == list(range(400))


def test_new_holdings_supersede_news_that_waits() -> None:
    queue = channel()
    queue.put_holdings(7, HOLDINGS)
    queue.put_news(7, news(dropped=(1,)))
    queue.put_holdings(7, HOLDINGS)
    assert drain(queue) == [encode(HOLDINGS, number=0), encode(HOLDINGS, number=1)]


def test_who_missed_new_holdings_sees_a_gap_in_the_news_after_them() -> None:
    queue = channel()
    queue.put_holdings(7, HOLDINGS)
    drain(queue)
    queue.failed(100.0, jitter=1.0)
    queue.put_holdings(7, HOLDINGS)
    queue.put_news(7, news(1))
    lost, delta = drain(queue)
    assert lost == encode(HOLDINGS, number=1)
    assert deltas([delta]) == [(2, (1,), (), 1)]


def test_a_frame_that_could_not_be_sent_is_next_again() -> None:
    queue = channel()
    queue.put(b"one")
    queue.put(b"two")
    first = queue.next_frame()
    assert first == b"one"
    queue.put_back(first)
    assert drain(queue) == [b"one", b"two"]


def test_the_queue_is_bounded_in_number_and_in_bytes() -> None:
    by_number = channel(link_queue_messages_max=2)
    assert [by_number.put(b"x") for _ in range(3)] == [True, True, False]
    by_bytes = channel(link_queue_bytes_max=10)
    assert [by_bytes.put(b"xxxx") for _ in range(3)] == [True, True, False]
    by_bytes.next_frame()
    assert by_bytes.put(b"xxxx")
    assert not channel(link_queue_messages_max=0).put_holdings(7, HOLDINGS)


def test_a_failed_link_forgets_its_queue_and_waits_longer_each_time_up_to_a_bound() -> None:
    queue = PeerChannel(PEER, ControlSettings(redial_min_s=1, redial_max_s=5))
    pauses = []
    for _ in range(5):
        queue.put_holdings(7, HOLDINGS)
        queue.put_news(7, news(1))
        queue.dialing(Endpoint("h", 1, b"k" * 32), "tcp://h:1", b"0001", 10.0)
        assert queue.failed(100.0, jitter=1.0) == 2
        assert (queue.state, queue.has_queued, queue.streams) == (ChannelState.WAITING, False, {})
        pauses.append(queue.dial_at_s - 100.0)
    assert pauses == [1, 2, 4, 5, 5]
    queue.up(0.0)
    queue.failed(100.0, jitter=0.5)
    assert queue.dial_at_s == 100.5


def test_a_link_that_fails_as_soon_as_it_is_up_is_dialed_ever_later() -> None:
    queue = PeerChannel(PEER, ControlSettings(redial_min_s=1, redial_max_s=5))
    now, pauses = 100.0, []
    for held_s in (0.0, 0.0, 4.9, 0.0, 5.0, 0.0):
        queue.dialing(Endpoint("h", 1, b"k" * 32), "tcp://h:1", b"0001", now)
        queue.up(now)
        now += held_s
        queue.failed(now, jitter=1.0)
        pauses.append(queue.dial_at_s - now)
        now = queue.dial_at_s
    assert pauses == [1, 2, 4, 5, 1, 2]


@given(st.lists(st.tuples(st.sets(st.integers(0, 20)), st.sets(st.integers(0, 20))), max_size=12))
def test_merged_news_says_the_same_as_each_piece_in_turn(steps: list[tuple[set[int], set[int]]]) -> None:
    backlog = Backlog()
    held = {0, 5, 10}
    merged = set(held)
    for added, dropped in steps:
        piece = DeltaPayload.of(7, tuple(sorted(added)), tuple(sorted(dropped - added)), (), 0)
        backlog.merge(piece)
        held = (held - set(piece.dropped)) | set(piece.added)
    while backlog:
        part = backlog.take(7)
        merged = (merged - set(part.dropped)) | set(part.added)
    assert merged == held


def test_merged_news_says_on_every_piece_what_is_read_now_even_if_nothing_else_is_new() -> None:
    backlog = Backlog()
    backlog.merge(DeltaPayload.of(7, tuple(range(control.DELTA_ITEMS_MAX)), (), (3, 4), 1))
    backlog.merge(DeltaPayload.of(7, (control.DELTA_ITEMS_MAX,), (), (4,), 2))
    pieces = []
    while backlog:
        pieces.append(backlog.take(7))
    assert [(piece.reading, piece.free_slots) for piece in pieces] == 2 * [((4,), 2)]
    backlog.merge(DeltaPayload.of(7, (), (), (), 3))
    assert backlog, "that a read has ended is news"
    assert backlog.take(7).reading == ()
    assert not backlog


def test_a_frame_is_the_same_whether_packed_for_one_or_for_many() -> None:
    queue = channel()
    queue.put_holdings(7, HOLDINGS)
    drain(queue)
    queue.put_news(7, news(3, 5))
    assert drain(queue) == [encode(control.Delta(7, (3, 2), (), (), 1), number=1)]
