"""One reader at a time, where storage sends objects only whole."""

from __future__ import annotations

from gossipd.core.ids import SOURCE
from gossipd.swarm.reading_turn import ReadingTurn
from gossipd.swarm.rendezvous import BUCKETS
from tests.gossipd.swarm.planning import SETTINGS, node
from tests.gossipd.swarm.test_source_read_planner import Storage

LINE = (node(2), node(1), node(3))


def test_the_first_of_the_line_begins_and_the_others_wait_by_their_rank() -> None:
    turn = ReadingTurn(10.0)
    assert turn.is_mine(LINE[0], LINE, 10.0, 3.0)
    assert [turn.is_mine(one, LINE, 12.9, 3.0) for one in LINE] == [True, False, False]
    assert [turn.is_mine(one, LINE, 13.1, 3.0) for one in LINE] == [True, True, False]
    assert [turn.is_mine(one, LINE, 16.1, 3.0) for one in LINE] == [True, True, True]


def test_who_reads_goes_on_and_the_first_of_the_line_waits_like_others() -> None:
    turn = ReadingTurn(10.0)
    turn.heard(LINE[2], 20.0)
    assert [turn.is_mine(one, LINE, 20.1, 3.0) for one in LINE] == [False, False, True]
    assert [turn.is_mine(one, LINE, 23.1, 3.0) for one in LINE] == [True, False, True]
    assert [turn.is_mine(one, LINE[:2], 20.1, 3.0) for one in LINE[:2]] == [False, False], "it may be back at once"


def test_two_that_do_not_hear_together_of_a_readers_end_do_not_begin_together() -> None:
    turn = ReadingTurn(10.0)
    turn.heard(LINE[2], 20.0)
    unaware, aware = LINE, LINE[:2]
    assert [turn.is_mine(LINE[0], unaware, 23.1, 3.0), turn.is_mine(LINE[1], aware, 23.1, 3.0)] == [True, False]
    assert turn.is_mine(LINE[1], aware, 26.1, 3.0), "the first has gone, too"


def whole_only(storage: Storage) -> Storage:
    for reader in storage.readers.values():
        reader.read_from_start(0, storage.now)
    return storage


def run(storage: Storage, rounds: int) -> set[bytes]:
    """Who has read."""
    who: set[bytes] = set()
    for _ in range(rounds):
        for own in storage.nodes:
            if storage.plan(own):
                who.add(own)
                storage.now += 0.1
                storage.land(own)
                storage.tell(own)
    return who


def test_one_of_several_readers_reads_all_in_the_models_order() -> None:
    storage = whole_only(Storage(4, 120, extent=4))
    assert len(run(storage, 200)) == 1
    assert storage.read == list(range(120))


def test_another_goes_on_when_the_reader_says_no_more_that_it_reads() -> None:
    storage = whole_only(Storage(3, 60, extent=4))
    (first,) = run(storage, 5)
    others = [own for own in storage.nodes if own != first]
    assert not [own for own in others if storage.plan(own)]
    storage.now += 3600.0
    before = len(storage.read)
    assert len([own for own in others if storage.plan(own)]) == 1, "the second sees that the first has begun"
    assert storage.read[before:] == [0], "the first bytes come again, and it lacks them"


def test_a_reader_that_says_it_reads_is_not_helped() -> None:
    storage = whole_only(Storage(3, 60, extent=4, chunk_bytes=64 << 30))
    reading = next(own for own in storage.nodes if storage.plan(own))
    storage.now += 36_000.0
    assert not [own for own in storage.nodes if storage.plan(own)], "it may drop hours of bytes first"
    assert storage.replicas[reading].reads_now(storage.read[0])
    assert storage.readers[reading].lost_s() > 1e9
    storage.replicas[reading].land(storage.read[0], SOURCE)


def test_a_reader_that_brings_nothing_for_longer_than_the_whole_takes_is_believed_no_more() -> None:
    storage = whole_only(Storage(3, 60, extent=4))
    reading = next(own for own in storage.nodes if storage.plan(own))
    others = [own for own in storage.nodes if own != reading]
    storage.now += 599.0
    assert not [own for own in others if storage.readers[own].plan(storage.replicas[own], storage.now)]
    storage.now += 2.0
    assert len([own for own in others if storage.plan(own)]) == 1


def test_who_reads_goes_on_when_another_is_elected_while_it_is_heard() -> None:
    storage = whole_only(Storage(3, 60, extent=4))
    reading = next(own for own in storage.nodes if storage.plan(own))
    elected = next(own for own in storage.nodes if own != reading)
    lines = ((elected,),) * BUCKETS
    for own, reader in storage.readers.items():
        assert not reader.set_readers(lines, by_chunk=False, now=storage.now, heard={*storage.nodes} - {own})
        assert reader.readers == tuple(sorted((reading, elected)))
    storage.now += 0.1
    assert not storage.readers[elected].plan(storage.replicas[elected], storage.now)
    storage.readers[elected].set_readers(lines, by_chunk=False, now=storage.now, heard=())
    storage.now += 1.5 * SETTINGS.read_takeover_s
    assert storage.readers[elected].plan(storage.replicas[elected], storage.now), "who is not heard has gone"


def test_a_connection_that_breaks_begins_no_object_again() -> None:
    storage = whole_only(Storage(2, 60, extent=4))
    reading = next(own for own in storage.nodes if storage.plan(own))
    (other,) = (own for own in storage.nodes if own != reading)
    reader, replica = storage.readers[other], storage.replicas[other]
    storage.now += 100.0  # in the midst of a model nothing new is told for a while
    for _ in range(3):
        reader.forget(reading, storage.now)
        reader.set_readers(((other,),) * BUCKETS, by_chunk=False, now=storage.now)
        assert not reader.plan(replica, storage.now)
        storage.now += SETTINGS.read_takeover_s - 0.1
        assert not reader.plan(replica, storage.now), "it would be back by now"
        reader.set_readers(((reading, other),) * BUCKETS, by_chunk=False, now=storage.now, heard={reading})
        reader.claimed(reading, (20,), storage.now)
    reader.forget(reading, storage.now)
    reader.forget(reading, storage.now + SETTINGS.read_takeover_s)
    assert reader.plan(replica, storage.now + 1.5 * SETTINGS.read_takeover_s), "it has told nothing since"


def test_who_learns_late_that_ranges_lack_waits_for_who_reads() -> None:
    storage = Storage(3, 60, extent=4)
    reading, learns = storage.nodes[:2]
    storage.readers[learns].claimed(reading, (0,), storage.now)
    storage.readers[learns].readable = None
    assert not storage.readers[learns].plan(storage.replicas[learns], storage.now), "its probe tells at once"
    storage.readers[learns].readable = True
    storage.readers[learns].read_from_start(0, storage.now)
    storage.readers[learns].claimed(reading, (), storage.now + 0.1)
    assert not storage.readers[learns].plan(storage.replicas[learns], storage.now + 0.2)
