"""One peer's queue by values: order, bounds, and deltas that merge instead of piling up."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gossipd.core.events import SendDelta
from gossipd.core.ids import DeploymentId
from gossipd.sessions.send_queue import Backlog, DeltaPayload, Outgoing, SendQueue, message_bytes, payloads_of
from gossipd.sessions.settings import SessionSettings
from gossipd.wire import control
from gossipd.wire.control_frame import encode, indexes, join

MODEL = DeploymentId(b"m" * 32)
HOLDINGS = control.Holdings(MODEL, 7, 8, b"\0", 1)
LATER = control.Hello("later")


def queue(**changed: int) -> SendQueue:
    return SendQueue(SessionSettings(**changed))


def told() -> SendQueue:
    found = queue()
    found.put_holdings(HOLDINGS)
    drain(found)
    return found


def payload(*added: int, dropped: tuple[int, ...] = (), reading: tuple[int, ...] = (), slots: int = 1) -> DeltaPayload:
    return DeltaPayload(7, tuple(sorted(added)), dropped, reading, slots)


def drain(found: SendQueue) -> list[Outgoing]:
    taken = []
    while (outgoing := found.take()) is not None:
        taken.append(outgoing)
    return taken


def deltas(taken: list[Outgoing]) -> list[tuple[int, tuple[int, ...], tuple[int, ...], int]]:
    found = []
    for message, number in taken:
        assert isinstance(message, DeltaPayload)
        delta = message.message
        added, dropped = (indexes(gaps, chunk_count=10**6) for gaps in (delta.added, delta.dropped))
        found.append((number, added, dropped, delta.free_slots))
    return found


def test_messages_keep_their_order_and_come_before_deltas() -> None:
    found = queue()
    found.put_holdings(HOLDINGS)
    found.put_delta(payload(1))
    found.put(LATER, number=9)
    assert drain(found)[:2] == [(HOLDINGS, 0), (LATER, 9)]


def test_a_delta_before_holdings_is_for_nobody() -> None:
    found = queue()
    assert not found.put_delta(payload(1))
    assert drain(found) == []


def test_numbers_count_from_holdings_on() -> None:
    found = told()
    for chunk in (4, 5, 6):
        found.put_delta(payload(chunk))
        assert deltas(drain(found)) == [(chunk - 3, (chunk,), (), 1)]


def test_deltas_for_a_slow_peer_merge_without_a_gap() -> None:
    found = told()
    for chunk in range(100):
        found.put_delta(payload(chunk, slots=chunk))
    assert deltas(drain(found)) == [(1, tuple(range(100)), (), 99)]


def test_the_last_word_on_a_chunk_counts_in_a_merge() -> None:
    found = told()
    for one in (payload(1, 2, reading=(3,)), payload(dropped=(1,)), payload(3), payload(dropped=(2,)), payload(2)):
        found.put_delta(one)
    assert deltas(drain(found)) == [(1, (2, 3), (1,), 1)]


def test_a_backlog_longer_than_a_delta_goes_out_in_several() -> None:
    found = told()
    found.put_delta(payload(*range(0, 200)))
    found.put_delta(payload(*range(200, 400)))
    sent = deltas(drain(found))
    assert [number for number, *_ in sent] == [1, 2]
    assert [chunk for _, added, *_ in sent for chunk in added] == list(range(400))


def test_new_holdings_supersede_deltas_that_wait() -> None:
    found = queue()
    found.put_holdings(HOLDINGS)
    found.put_delta(payload(dropped=(1,)))
    found.put_holdings(HOLDINGS)
    assert drain(found) == [(HOLDINGS, 0), (HOLDINGS, 1)]


def test_a_peer_that_missed_new_holdings_sees_a_gap() -> None:
    found = told()
    found.clear()
    found.put_holdings(HOLDINGS)
    found.put_delta(payload(1))
    lost, delta = drain(found)
    assert lost == (HOLDINGS, 1)
    assert deltas([delta]) == [(2, (1,), (), 1)]


def test_a_message_that_could_not_be_sent_is_next_again() -> None:
    found = queue()
    found.put(LATER)
    found.put(control.Ping())
    first = found.take()
    assert first == (LATER, 0)
    found.put_back(Outgoing(LATER, 0))
    assert drain(found) == [(LATER, 0), (control.Ping(), 0)]


def test_the_queue_is_bounded_in_number_and_in_bytes() -> None:
    by_number = queue(link_queue_messages_max=2)
    assert [by_number.put(LATER) for _ in range(3)] == [True, True, False]
    by_bytes = queue(link_queue_bytes_max=2 * message_bytes(LATER))
    assert [by_bytes.put(LATER) for _ in range(3)] == [True, True, False]
    assert by_bytes.take() is not None
    assert by_bytes.put(LATER)
    assert not queue(link_queue_messages_max=0).put_holdings(HOLDINGS)


def test_bytes_of_a_message_count_its_long_parts() -> None:
    part = control.ManifestPart(MODEL, 10**6, 0, b"p" * 100_000)
    assert len(encode(part)) <= message_bytes(part) <= len(encode(part)) + 128


def test_clearing_tells_how_much_was_dropped() -> None:
    found = queue()
    found.put_holdings(HOLDINGS)
    found.put_delta(payload(1))
    assert (found.clear(), bool(found)) == (2, False)
    assert not found.put_delta(payload(2))


def test_a_stream_that_is_dropped_is_told_no_more() -> None:
    found = told()
    found.put_delta(payload(1))
    found.drop_stream(7)
    assert not found
    assert not found.put_delta(payload(2))


def test_a_delta_is_packed_the_same_for_one_or_many() -> None:
    found = told()
    found.put_delta(payload(3, 5))
    ((message, number),) = drain(found)
    assert isinstance(message, DeltaPayload)
    expected = encode(control.Delta(7, (3, 2), (), (), 1), number=1)
    assert join(control.Delta, message.fields, number=number) == expected
    assert message.fields is message.fields


def test_a_long_command_is_split_and_each_piece_says_what_is_read() -> None:
    count = control.DELTA_ITEMS_MAX + 1
    pieces = payloads_of(7, SendDelta((), MODEL, tuple(range(count)), (9,), (4, 3), 2))
    assert [len(piece.added) for piece in pieces] == [count - 1, 1]
    assert [piece.dropped for piece in pieces] == [(9,), ()]
    assert [(piece.reading, piece.message.free_slots) for piece in pieces] == 2 * [((3, 4), 2)]
    assert len(payloads_of(7, SendDelta((), MODEL, (), (), (), 0))) == 1


@given(st.lists(st.tuples(st.sets(st.integers(0, 20)), st.sets(st.integers(0, 20))), min_size=1, max_size=12))
def test_merged_deltas_say_the_same_as_each_in_turn(steps: list[tuple[set[int], set[int]]]) -> None:
    held = {0, 5, 10}
    merged, backlog = set(held), None
    for added, dropped in steps:
        piece = payload(*added, dropped=tuple(sorted(dropped - added)))
        if backlog is None:
            backlog = Backlog(piece)
        else:
            backlog.merge(piece)
        held = (held - set(piece.dropped)) | set(piece.added)
    assert backlog is not None
    while backlog:
        part = backlog.take()
        merged = (merged - set(part.dropped)) | set(part.added)
    assert merged == held


def test_each_piece_of_a_backlog_says_what_is_read_now() -> None:
    backlog = Backlog(payload(*range(control.DELTA_ITEMS_MAX), reading=(3, 4)))
    backlog.merge(payload(control.DELTA_ITEMS_MAX, reading=(4,), slots=2))
    pieces = []
    while backlog:
        pieces.append(backlog.take())
    assert [(piece.reading, piece.message.free_slots) for piece in pieces] == 2 * [((4,), 2)]
    backlog.merge(payload(slots=3))
    assert backlog, "that a read has ended is news"
    assert backlog.take().reading == ()
    assert not backlog
