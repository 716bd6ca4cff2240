"""Who reads what from storage, and when somebody else does."""

from __future__ import annotations

from random import Random

import pytest
from msgspec import structs
from msgspec.structs import replace

from gossipd.core.chunkset import ChunkSet
from gossipd.core.ids import SOURCE
from gossipd.swarm.local_replica import LocalReplica
from gossipd.swarm.rendezvous import BUCKETS, bucket_lines, bucket_of
from gossipd.swarm.settings import PlannerSettings
from gossipd.swarm.source_read_planner import SourceReadPlanner
from membership.member import NodeId
from tests.gossipd.swarm.planning import CHUNK_BYTES, DEPLOYMENT, node, shape

SETTINGS = PlannerSettings(fetches_many=6)  # whatever the number of chunks
WINDOW = SETTINGS.reads_window(2_000)


def extents(reader: SourceReadPlanner) -> list[int]:
    """The first chunk of each, in the reading order."""
    return [reader.order.chunks(position).start for position in range(len(reader.order))]


class Storage:
    """Several readers that see each other's reads after a while."""

    def __init__(
        self,
        readers: int,
        chunks: int,
        *,
        extent: int = 1,
        by_chunk: bool = False,
        settings: PlannerSettings = SETTINGS,
        chunk_bytes: int = CHUNK_BYTES,
    ) -> None:
        of = structs.replace(shape(chunks, extent=extent), chunk_bytes=chunk_bytes, bytes_total=chunks * chunk_bytes)
        self.nodes = tuple(sorted(node(number) for number in range(1, readers + 1)))
        self.now = 100.0
        self.readers: dict[bytes, SourceReadPlanner] = {}
        self.replicas: dict[bytes, LocalReplica] = {}
        for own in self.nodes:
            reader = SourceReadPlanner(own, of, DEPLOYMENT, settings, Random(1))
            reader.readable = True
            reader.set_readers(bucket_lines(self.nodes, b"salt"), by_chunk=by_chunk, now=self.now)
            self.readers[own] = reader
            self.replicas[own] = LocalReplica(DEPLOYMENT, of, ChunkSet(chunks), now=self.now)
        self.read: list[int] = []

    def plan(self, own: bytes, *, yields: bool = False) -> list[int]:
        runs = self.readers[own].plan(self.replicas[own], self.now, yields=yields)
        chunks = [chunk for run in runs for chunk in run]
        for chunk in chunks:
            self.replicas[own].start(chunk, SOURCE, self.now)
        self.read += chunks
        for reader in self.readers.values():
            reader.claimed(own, chunks, self.now)  # type: ignore[arg-type]
        return chunks

    def tell(self, own: bytes) -> None:
        """The others hear what it reads now."""
        reading = list(self.replicas[own].flights)
        for reader in self.readers.values():
            reader.claimed(own, reading, self.now)  # type: ignore[arg-type]

    def land(self, own: bytes) -> None:
        for chunk in list(self.replicas[own].flights):
            self.replicas[own].land(chunk, SOURCE)
            self.replicas[own].store(chunk, self.now)
            for reader in self.readers.values():
                reader.present[chunk] = 1


def test_every_chunk_is_read_once_by_somebody() -> None:
    storage = Storage(4, 300, extent=4)
    for _ in range(300):
        for own in storage.nodes:
            storage.plan(own)
        for own in storage.nodes:
            storage.land(own)
        storage.now += 0.1
    assert sorted(storage.read) == list(range(300))


def test_few_readers_of_few_chunks_keep_the_link_of_storage_busy() -> None:
    for readers in (1, 2, 4):
        storage = Storage(readers, 100)
        assert sum(len(storage.plan(own)) for own in storage.nodes) >= SETTINGS.reads_min // 2


def test_readers_that_yield_read_one_extent_at_a_time_all_together() -> None:
    storage = Storage(12, 60, extent=2)
    for _ in range(30):
        reads = [chunk for own in storage.nodes for chunk in storage.plan(own, yields=True)]
        assert len(reads) == 1, "a quarter of an extent, but one chunk at least"
        assert not [chunk for own in storage.nodes for chunk in storage.plan(own, yields=True)]
        for own in storage.nodes:
            storage.land(own)
        storage.now += 0.1
    assert len({*storage.read}) == 30, "they go on"
    assert len([chunk for own in storage.nodes for chunk in storage.plan(own)]) >= WINDOW, "until they need not"


def test_every_chunk_is_read_once_by_who_is_first_in_line_for_its_bucket() -> None:
    storage = Storage(10, 600, by_chunk=True)
    lines = bucket_lines(storage.nodes, b"salt")
    for _ in range(300):
        for own in storage.nodes:
            assert all(lines[bucket_of(chunk)][0] == own for chunk in storage.plan(own))
        for own in storage.nodes:
            storage.land(own)
        storage.now += 0.1
    assert sorted(storage.read) == list(range(600))


def test_who_owns_an_extent_by_another_rule_than_before_waits_for_news() -> None:
    storage = Storage(2, 256)
    first = storage.nodes[0]
    reader = storage.readers[first]
    reader.set_readers(bucket_lines(storage.nodes, b"salt"), by_chunk=True, now=storage.now)
    assert storage.plan(first) == []
    storage.now += 2 * SETTINGS.read_grace_s
    assert storage.plan(first)


def test_shares_are_even() -> None:
    storage = Storage(4, 256)
    counts = dict.fromkeys(storage.nodes, 0)
    for _ in range(300):
        for own in storage.nodes:
            counts[own] += len(storage.plan(own))
            storage.land(own)
        storage.now += 0.01
    assert max(counts.values()) - min(counts.values()) <= 2


def test_many_readers_together_have_about_the_window_in_flight() -> None:
    storage = Storage(25, 2_000)
    in_flight = sum(len(storage.plan(own)) for own in storage.nodes)
    assert WINDOW / 2 <= in_flight <= WINDOW


def test_large_chunks_are_given_time_before_a_read_has_shown_how_long_it_takes() -> None:
    storage = Storage(25, 200, chunk_bytes=2_500_000_000)
    for _ in range(20):  # a read takes 24 s on a link of 10 Gbit/s that twelve share
        for own in storage.nodes:
            storage.plan(own)
        for reader in storage.readers.values():
            for own in storage.nodes:
                reader.claimed(own, tuple(storage.replicas[own].flights), storage.now)
        storage.now += 1.0
    assert len(storage.read) <= WINDOW


def test_few_readers_have_more_reads_each() -> None:
    storage = Storage(2, 2_000)
    assert len(storage.plan(storage.nodes[0])) == WINDOW // 2


def test_readers_that_own_nothing_leave_their_reads_to_those_that_do() -> None:
    storage = Storage(3, 256)
    first, *others = storage.nodes
    lines = tuple((first, *line) for line in bucket_lines(tuple(others), b"salt"))
    for reader in storage.readers.values():
        reader.set_readers(lines, by_chunk=False, now=storage.now)
    reads = {node: storage.readers[node].window.reads_max() for node in storage.nodes}
    assert set(reads.values()) == {SETTINGS.reads_window(256)}
    assert len(storage.plan(first)) == SETTINGS.reads_min // 2, "as many as all three would have had"


def test_no_reader_has_more_in_flight_than_its_share_of_the_model_allows() -> None:
    storage = Storage(1, 1_000, extent=4)
    assert len(storage.plan(storage.nodes[0])) == 10


def test_reads_are_runs_of_adjacent_chunks_of_one_extent() -> None:
    storage = Storage(1, 1_600, extent=8)
    reader, replica = storage.readers[storage.nodes[0]], storage.replicas[storage.nodes[0]]
    for run in reader.plan(replica, storage.now):
        assert len(run) == reader.window.unit_chunks == 2
        assert run[1] == run[0] + 1
        assert run[0] // 8 == run[1] // 8


def test_what_is_present_anywhere_is_not_read() -> None:
    storage = Storage(1, 100)
    reader = storage.readers[storage.nodes[0]]
    reader.rebuild((1 << 100) - 1 - (1 << 42))
    assert storage.plan(storage.nodes[0]) == [42]


def test_nothing_is_read_from_a_source_that_is_not_readable_and_one_chunk_while_that_is_not_known() -> None:
    storage = Storage(1, 100)
    reader = storage.readers[storage.nodes[0]]
    reader.readable = False
    assert storage.plan(storage.nodes[0]) == []
    reader.readable = None
    assert len(storage.plan(storage.nodes[0])) == 1, "the others wait for what the probe says"
    assert storage.plan(storage.nodes[0]) == []


def test_at_the_end_a_reader_leaves_more_of_its_link_to_what_all_wait_for() -> None:
    storage = Storage(1, 100)
    reader = storage.readers[storage.nodes[0]]
    usual = reader.flows_max(1)
    assert reader.flows_max(100, 50) == reader.flows_max(100) + 5, "its link waits for uplinks that slower hosts share"
    reader.rebuild((1 << 100) - 1 - (1 << 42))
    reader.plan(storage.replicas[storage.nodes[0]], storage.now)
    assert 3 == reader.flows_max(1) < usual


def test_the_heir_of_a_dead_reader_waits_for_news_and_then_reads_its_share() -> None:
    storage = Storage(2, 64)
    first, second = storage.nodes
    own_share = set(storage.plan(second))
    storage.land(second)
    storage.readers[second].set_readers(bucket_lines((second,), b"salt"), by_chunk=False, now=storage.now)
    before = set(storage.plan(second))
    assert own_share.isdisjoint(before)
    storage.land(second)
    for _ in range(80):
        storage.now += 0.2
        storage.plan(second)
        storage.land(second)
    assert sorted(storage.read) == list(range(64))
    assert storage.readers[first].readers == storage.nodes


@pytest.mark.parametrize("goes_on", [True, False], ids=["disagrees", "agrees"])
def test_a_new_owner_leaves_its_share_to_a_former_one_that_goes_on_reading(*, goes_on: bool) -> None:
    storage = Storage(2, 64)
    first, second = storage.nodes
    storage.plan(first)
    lines = bucket_lines((second,), b"salt")  # the second takes the first for slow, and keeps it last in each line
    lines = tuple((*line, first) for line in lines)
    storage.readers[second].set_readers(lines, by_chunk=False, now=storage.now)
    assert storage.readers[second].inherited.take_unasked() == {first}
    for _ in range(60):
        storage.plan(second)
        if goes_on:
            storage.plan(first)
        storage.now += 0.2
        storage.land(second)
        storage.land(first)
        storage.tell(first)
    assert sorted(storage.read) == list(range(64))


@pytest.mark.parametrize("is_owner", [True, False], ids=["owner", "former-owner"])
def test_who_claims_one_chunk_after_the_other_and_brings_none_is_not_waited_for(*, is_owner: bool) -> None:
    storage = Storage(2, 16)
    liar, heir = storage.nodes
    reader, line = storage.readers[heir], (liar, heir) if is_owner else (heir, liar)
    reader.set_readers((line,) * BUCKETS, by_chunk=False, now=storage.now)
    begun_s = storage.now
    while len(storage.read) < 16:
        reader.claimed(liar, {(len(storage.read) + int(storage.now * 5) % 2) % 16}, storage.now)
        storage.plan(heir)
        storage.land(heir)
        storage.now += 0.2
        assert storage.now < begun_s + 8 * SETTINGS.read_takeover_s
    assert sorted(storage.read) == list(range(16))


def test_a_share_that_makes_no_progress_is_taken_over_and_a_claimed_one_later() -> None:
    for claimed in (False, True):
        storage = Storage(2, 16)
        silent, awake = storage.nodes
        waited = 0.0
        while len(storage.read) < 16 and waited < 60:
            if claimed:
                missing = [chunk for chunk in range(16) if not storage.readers[awake].present[chunk]]
                storage.readers[awake].claimed(silent, missing, 100.0)
            storage.plan(awake)
            storage.land(awake)
            storage.now += 0.25
            waited += 0.25
        assert sorted(storage.read) == list(range(16))
        takeover = SETTINGS.read_takeover_s
        assert takeover < waited < 4 * takeover if not claimed else 4 * takeover < waited < 8 * takeover


def test_what_somebody_reads_is_present_when_the_read_has_ended_and_not_when_it_is_promised() -> None:
    storage = Storage(2, 100)
    own, other = storage.nodes
    reader = storage.readers[own]
    assert not reader.claimed(other, (3, 4), storage.now)
    reader.seen([3])
    reader.rebuild(1 << 4)
    assert not reader.present[3]
    assert not reader.present[4]
    assert not reader.claimed(own, (4,), storage.now), "two read it"
    assert list(reader.claimed(other, (), storage.now)) == [3]
    assert list(reader.forget(own, storage.now)) == [4]
    reader.seen([3])
    assert reader.present[3]


def test_a_read_that_hangs_is_taken_over_by_one_who_gets_the_chunk_from_who_reads_it() -> None:
    storage = Storage(2, 16)
    hung, awake = storage.nodes
    chunk = storage.plan(hung)[0]
    storage.replicas[awake].start(chunk, hung, storage.now)
    storage.readers[awake].seen([chunk])
    begun: list[int] = []
    while storage.now < 100.0 + 8 * SETTINGS.read_takeover_s and chunk not in begun:
        begun = storage.plan(awake)
        for one in begun:
            storage.replicas[awake].land(one, SOURCE)
            storage.replicas[awake].store(one, storage.now)
            storage.readers[awake].present[one] = 1
        storage.now += 0.25
    assert chunk in begun
    assert storage.now > 100.0 + 4 * SETTINGS.read_takeover_s, "it was claimed"


def test_a_read_that_hangs_is_taken_over_when_its_chunk_was_promised_before_the_read_was_heard_of() -> None:
    storage = Storage(2, 16)
    hung, awake = storage.nodes
    reader = storage.readers[awake]
    chunk = next(chunk for position, chunk in enumerate(extents(reader)) if reader._line(position)[0] == hung)
    reader.seen([chunk])
    assert chunk not in storage.plan(awake), "it has left the line"
    for _ in range(2):  # what is in line is in line once
        reader.claimed(hung, (chunk,), storage.now)
        reader.recheck_presence(chunk)
    begun: list[int] = []
    while storage.now < 100.0 + 16 * SETTINGS.read_takeover_s:
        begun += storage.plan(awake)
        storage.land(awake)
        storage.now += 0.25
    assert begun.count(chunk) == 1
    assert sorted(reader._ahead) == list(reader._ahead)


def test_who_helps_leaves_the_owner_what_it_may_have_begun() -> None:
    storage = Storage(2, 32)
    idle, _ = storage.nodes
    helper = storage.readers[idle]
    for position, extent in enumerate(extents(helper)):
        if helper._line(position)[0] == idle:
            helper.present[extent] = 1
    helped: list[int] = []
    storage.plan(idle)
    storage.now += 1.5 * SETTINGS.read_stuck_s  # and not yet taken over
    left = helper.present.count(0)
    for _ in range(32):
        helped += storage.plan(idle)
        storage.land(idle)
    assert 0 < len(helped) == left - helper.window.chunks_max()


def test_who_helps_an_owner_that_says_what_it_reads_leaves_it_one() -> None:
    storage = Storage(2, 32)
    idle, busy = storage.nodes
    helper = storage.readers[idle]
    own = [extent for position, extent in enumerate(extents(helper)) if helper._line(position)[0] == busy]
    helper.rebuild((1 << 32) - 1 - sum(1 << chunk for chunk in own))
    storage.plan(idle)
    claimed = own[: helper.window.reads_max()]
    storage.now += 1.5 * SETTINGS.read_stuck_s
    helper.claimed(busy, claimed, storage.now)
    helped: list[int] = []
    for _ in range(32):
        helped += storage.plan(idle)
        storage.land(idle)
    assert len(helped) == len(own) - len(claimed) - 1
    assert not set(helped) & set(claimed)


def test_a_reader_that_has_nothing_left_helps_though_it_is_late_in_line_and_nobody_else_does() -> None:
    storage = Storage(4, 64)
    busy, *others = storage.nodes
    lines = [storage.readers[busy]._line(position) for position in range(64)]
    order = extents(storage.readers[busy])
    for own in storage.nodes:  # one has ended with all of its own, the others are in the middle of theirs
        reader = storage.readers[own]
        ended = [order[at] for at, line in enumerate(lines) if line[0] == others[0]]
        reader.rebuild(sum(1 << chunk for chunk in ended))
        storage.plan(own)
    storage.now += 1.5 * SETTINGS.read_stuck_s
    begun: dict[bytes, list[int]] = {own: [] for own in others}
    for _ in range(64):
        for own in others:
            begun[own] += storage.plan(own)
        storage.land(others[0])
    helped = [lines[order.index(chunk)] for chunk in begun[others[0]]]
    assert {line[0] for line in helped} == {busy, *others[1:]}
    assert {line.index(others[0]) for line in helped} == {1, 2, 3}
    assert not begun[others[1]]
    assert not begun[others[2]], "each has reads under way, and more of its own"


def test_what_an_owner_comes_to_next_is_left_to_it_though_others_help_with_the_rest() -> None:
    storage = Storage(5, 80, settings=replace(SETTINGS, read_share_max=0.5))
    lines = [storage.readers[storage.nodes[0]]._line(position) for position in range(80)]
    order = extents(storage.readers[storage.nodes[0]])
    owner, *idle = storage.nodes
    own = [order[at] for at, line in enumerate(lines) if line[0] == owner]
    helped: list[int] = []
    for helper in idle:  # all have nothing left, and none has heard of the others' help
        reader = storage.readers[helper]
        reader.rebuild((1 << 80) - 1 - sum(1 << chunk for chunk in own))
        storage.plan(helper)
    storage.now += 1.5 * SETTINGS.read_stuck_s
    for _ in range(80):
        for helper in idle:
            reader = storage.readers[helper]
            for chunk in (one for run in reader.plan(storage.replicas[helper], storage.now) for one in run):
                helped.append(chunk)
                reader.present[chunk] = 1
    assert helped
    assert storage.readers[owner].window.chunks_max() == 3
    assert not set(helped) & set(own[:3])


def test_two_who_have_nothing_left_never_help_with_the_same() -> None:
    storage = Storage(4, 64)
    lines = [storage.readers[storage.nodes[0]]._line(position) for position in range(64)]
    order = extents(storage.readers[storage.nodes[0]])
    idle = storage.nodes[:2]
    for own in idle:
        ended = [order[at] for at, line in enumerate(lines) if line[0] in idle]
        storage.readers[own].rebuild(sum(1 << chunk for chunk in ended))
        storage.plan(own)
    storage.now += 1.5 * SETTINGS.read_stuck_s
    helped: dict[bytes, list[int]] = {own: [] for own in idle}
    for _ in range(64):  # neither has heard what the other does
        for own in idle:
            runs = storage.readers[own].plan(storage.replicas[own], storage.now)
            for chunk in (chunk for run in runs for chunk in run):
                helped[own].append(chunk)
                storage.readers[own].present[chunk] = 1
    assert all(helped.values())
    assert not set(helped[idle[0]]) & set(helped[idle[1]])


def test_an_owner_leaves_alone_what_another_has_begun_however_long_it_was_due() -> None:
    storage = Storage(2, 16)
    helper, late = storage.nodes
    reader, replica = storage.readers[late], storage.replicas[late]
    reader.plan(replica, storage.now)  # looks at what is due, and has begun nothing of it yet
    storage.now += 8 * SETTINGS.read_takeover_s
    reader.claimed(helper, range(16), storage.now)
    assert reader.plan(replica, storage.now) == []
    storage.now += 3.9 * SETTINGS.read_takeover_s
    assert reader.plan(replica, storage.now) == [], "a claim that was just heard counts for as long as any other"
    storage.now += 0.2 * SETTINGS.read_takeover_s
    assert reader.plan(replica, storage.now)


@pytest.mark.parametrize(
    ("held", "present", "is_midst"),
    [(24, 24, False), (25, 25, True), (25, 176, False), (75, 75, True), (176, 176, False)],
)
def test_others_need_not_hear_of_reads_while_much_is_left_to_read(held: int, present: int, *, is_midst: bool) -> None:
    storage = Storage(2, 200)
    reader, replica = storage.readers[storage.nodes[0]], storage.replicas[storage.nodes[0]]
    for chunk in range(held):
        replica.store(chunk, storage.now)
    reader.rebuild((1 << present) - 1)
    assert storage.plan(storage.nodes[0])
    assert reader.is_midst(replica) is is_midst


def test_an_owner_is_to_hear_soon_that_another_reads_what_it_owns() -> None:
    storage = Storage(2, 200)
    helper = storage.nodes[1]
    reader, replica = storage.readers[helper], storage.replicas[helper]
    for chunk in range(50):
        replica.store(chunk, storage.now)
    assert storage.plan(helper)
    assert reader.is_midst(replica)
    storage.land(helper)
    storage.now += 2 * SETTINGS.read_takeover_s
    assert storage.plan(helper)
    assert not reader.is_midst(replica)


def test_a_failed_read_pauses_longer_each_time() -> None:
    storage = Storage(1, 100)
    own = storage.nodes[0]
    storage.readers[own].read_failed(storage.now)
    assert storage.plan(own) == []
    storage.now += 3.0
    assert storage.plan(own)
    for _ in range(10):
        storage.readers[own].read_failed(storage.now)
    storage.now += 20.0
    assert storage.plan(own) == []
    storage.now += 20.0
    storage.land(own)
    assert storage.plan(own)


def lacking_a_packed_chunk(files: int) -> tuple[SourceReadPlanner, LocalReplica, NodeId]:
    """A reader that has all but the last chunk, which packs so many files, and the node that owns it."""
    of, (own, owner) = structs.replace(shape(20), packed_chunk=19, packed_files=files), (node(1), node(2))
    reader = SourceReadPlanner(own, of, DEPLOYMENT, SETTINGS, Random(1))
    reader.readable = True
    reader.set_readers(((owner, own),) * BUCKETS, by_chunk=False, now=0.0)
    reader.seen(range(19))
    return reader, LocalReplica(DEPLOYMENT, of, ChunkSet.of(20, range(19)), now=0.0), owner


@pytest.mark.parametrize(("files", "left_s", "taken_s"), [(0, 11.0, 20.0), (3000, 300.0, 480.0)])
def test_a_claimed_chunk_of_many_small_files_is_left_to_its_reader_for_longer(
    files: int, left_s: float, taken_s: float
) -> None:
    reader, replica, owner = lacking_a_packed_chunk(files)
    reader.claimed(owner, (19,), 0.0)
    assert not reader.plan(replica, 0.0)
    assert not reader.plan(replica, left_s)
    assert reader.is_being_read(left_s)
    assert reader.plan(replica, taken_s) == [(19,)]
    assert not reader.is_being_read(taken_s)


@pytest.mark.parametrize("files", [0, 3000])
def test_what_its_owner_does_not_read_is_taken_over_soon_however_many_files_it_has(files: int) -> None:
    reader, replica, _ = lacking_a_packed_chunk(files)
    assert not reader.plan(replica, 0.0)
    assert reader.plan(replica, 3 * SETTINGS.read_takeover_s) == [(19,)]
