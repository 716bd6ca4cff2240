"""This host's part in reading external storage: which extents it reads, when, and when it takes over another's.

What lives here: one deployment's reading order, ownership of extents, takeover. What does not: the choice of the source
readers (``roles``), and how a range is read (``sources``).

Theory of operation. The extents of a model leave storage in one order that all source readers compute
(``rendezvous.reading_order``). Each extent has a preference list of readers, of which the first owns it: in turns,
which is the most even, or by the bucket of its chunk where the owner is to be first in its rack's list for that bucket
too (``roles``). A reader starts an extent of its own when fewer than ``reads_window`` earlier or equal extents are not
yet known to be present anywhere. So the whole cluster has about that many in flight, however many racks there are,
without a message about it: the deltas are the clock. Rejected: a fixed number of reads per reader, because all readers
then get their last chunk at the same late moment.

A chunk that is being read can be had from its reader while it comes, and so is announced before it is here. It is
present when no reader says any more that it reads the chunk: until then a "holder" may only have been promised it, and
a read that hangs must be taken over though half of the cluster waits for it.

An extent that stays at the head of the order is stuck. After ``read_stuck_s`` it no longer holds up those behind it.
After ``read_takeover_s`` for each rank without anything that its owner brings, the next reader in its list reads it;
later where this host's reads take longer, and for chunks of many small files. A claimed chunk is left to the claimant
four times as long, also by the owner when another reader helps. A reader whose connection fails leaves the lists at
once, and ``inherited_share`` says when its successor begins. A chunk that is present, or that this host is reading, is
never read. Views that differ cost duplicate bytes, never a chunk.

A reader that is first in no list, because its link is slower, reads only what it takes over. The other readers share
the window, and only they help one another.

Storage that sends objects only whole is read in the model's order by one reader at a time (``reading_turn``).

Rejected: leases or a lock, because the election guards cost and not state; a random order per reader, because it helps
only while views differ, which ``seeds_stable_s`` covers, and no window fits over it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable
from math import inf
from random import Random

from msgspec import Struct

from gossipd.core.model import Shape
from gossipd.swarm.extent_order import ExtentOrder
from gossipd.swarm.inherited_share import InheritedShare
from gossipd.swarm.local_replica import LocalReplica
from gossipd.swarm.read_window import ReadWindow
from gossipd.swarm.reading_turn import ReadingTurn
from gossipd.swarm.rendezvous import BUCKETS
from gossipd.swarm.settings import PlannerSettings
from membership.member import NodeId

_CLAIM_FACTOR = 4.0  # a claimed read is left alone this many times longer, by the successors and by its owner
_LASTS_SHARE = 0.7  # of what a read takes: a read that was claimed within it is not about to end
_RETRY_S_MAX = 30.0
_LOST_S_MIN = 120.0  # the adapter retries for at most a minute before it gives up
# Of what a read takes, as for fetches. A read that is given up too early goes on in the adapter, and its bytes come
# twice; other readers take over long before.
_LOST_USUALS = 20
# A reader of a whole object may drop all bytes before the run that it claims; at this rate, in bytes/s, or in ten
# minutes it has done so, or it lies.
_WHOLE_RATE_MIN, _WHOLE_S_MIN = 8e6, 600.0
_MIDST_CHUNKS = 24  # from either end of a model
_EXTRA_LOOKS = 16  # extents per plan that an extra reader looks at
_BYTE_OF_BITS = tuple(bytes(byte >> bit & 1 for bit in range(8)) for byte in range(256))


class _Head(Struct):
    """An absent extent, chunks ``first`` to ``stop``, and since when it has been among the first."""

    since_s: float
    first: int
    stop: int
    bucket: int


class SourceReadPlanner:
    """Plans the reads of one deployment."""

    def __init__(self, own: NodeId, shape: Shape, salt: bytes, settings: PlannerSettings, rng: Random) -> None:
        self._own = own
        self._shape = shape
        self._planner_settings = settings
        self._rng = rng
        self.order = ExtentOrder(shape, salt)
        self._taken_over: set[int] = set()  # positions read by others than their owners, no progress of those
        self._jitter = rng.random() / 2
        self._ahead = deque(range(len(self.order)))  # positions of extents not known to be present, ascending
        self.present = bytearray(shape.chunk_count)
        self._heads: dict[int, _Head] = {}  # by position: the first absent extents, as of the last plans
        self._claims: dict[NodeId, dict[int, float]] = {}  # peer -> chunks that it reads, and when we heard so
        self._claim_counts: dict[int, int] = {}  # chunk -> how many peers read it
        # Reader -> when an extent of its own was last seen to arrive, or its first claim.
        self._progress_s: dict[NodeId, float] = {}
        self._lines: tuple[tuple[NodeId, ...], ...] = ((),) * BUCKETS
        self.inherited = InheritedShare(own, settings.read_grace_s)
        self.readers: tuple[NodeId, ...] = ()
        self._owners: set[NodeId] = set()  # readers that are first in some list
        self.is_reader = False
        self.readable: bool | None = None
        self._usual_s = 0.0  # seconds that our reads take, smoothed; 0 until one has ended
        self._failures = self.read_count = 0
        self._pause_until = 0.0
        self._helps = False  # of the last reads that began some are in others' shares, or others had begun them
        self._extra_at: int | None = None  # the position whose extent an extra reader reads
        self._turn: ReadingTurn | None = None
        self.window = ReadWindow(shape, settings)

    def set_classes(self, class_of: bytes | None) -> None:
        """Hosts want other chunks: see ``ExtentOrder.class_of``."""
        if class_of == self.order.class_of:
            return
        self.order.set_classes(class_of)
        self._moved()
        self._ahead = deque(self.order.absent(self.present))

    def _moved(self) -> None:
        """Other extents stand at each position."""
        self._heads.clear()
        self._taken_over.clear()

    @property
    def is_in_each_line(self) -> bool:
        """Whether this host is a source reader of every chunk. Where hosts want parts, those that want it read one."""
        return all(self._own in line for line in self._lines)

    @property
    def from_start(self) -> bool:
        """Whether storage sends objects only whole, so that reads are in order and one at a time."""
        return self._turn is not None

    def read_from_start(self, present_bits: int, now: float) -> None:
        """Storage sends objects only whole."""
        if self._turn is None:
            self._turn = ReadingTurn(now)
            for peer in sorted(self._claims)[:1]:
                self._turn.heard(peer, now)
            self.order.read_from_start()
            self._moved()
            self.rebuild(present_bits)

    def rebuild(self, present_bits: int) -> None:
        """A holder is gone or a chunk was lost: compute from scratch which chunks are present."""
        size = self._shape.chunk_count
        raw = present_bits.to_bytes((size + 7) // 8, "little")
        present = self.present = bytearray(b"".join(map(_BYTE_OF_BITS.__getitem__, raw)))[:size]
        for chunk in self._claim_counts:
            present[chunk] = 0
        self._ahead = deque(self.order.absent(present))

    def _line(self, position: int) -> tuple[NodeId, ...]:
        return self._lines[self.order.bucket(position)]

    def set_readers(
        self, lines: tuple[tuple[NodeId, ...], ...], *, by_chunk: bool, now: float,
        heard: Collection[NodeId] = frozenset(),
    ) -> Collection[int]:  # fmt: skip
        """The source readers may have changed. Returns the chunks that only former readers had claimed, except those in
        ``heard``: their reads go on, and they will be heard to end them. ``lines``: for each bucket its preference list
        of all readers. ``by_chunk``: whether the bucket of an extent is that of its first chunk, and not that of its
        turn. Of an object that storage sends only whole, who reads it goes on while it is heard."""
        if self._turn is not None:
            lines = self._turn.kept_first(lines, {self._own, *heard})
        if lines == self._lines and by_chunk == self.order.by_chunk:
            return ()
        if self.readers and len(lines) == len(self._lines):
            self.inherited.changed(lines, self._lines, now, is_other_rule=by_chunk != self.order.by_chunk)
        self.order.by_chunk = by_chunk
        for position, head in self._heads.items():
            head.bucket = self.order.bucket(position)
        readers = tuple(sorted({node for line in lines[::BUCKETS] for node in line}))
        gone = sorted(self._claims.keys() - {*readers, *heard})
        free = [chunk for node in gone for chunk in self.forget(node, now)]
        self.readers, self._lines = readers, lines
        self._owners = {line[0] for line in lines if line}
        self.window.readers, self.window.owners = len(readers), len(self._owners)
        self.is_reader = self._own in readers
        return free

    def seen(self, chunks: Iterable[int]) -> None:
        """A peer holds these chunks, or gets them from the reader that reads them now."""
        claimed, present = self._claim_counts, self.present
        for chunk in chunks:
            if chunk not in claimed:
                present[chunk] = 1

    def recheck_presence(self, chunk: int) -> None:
        """A peer reads this chunk, and it is not here: its "holders" may only have been promised it."""
        if self.present[chunk] and chunk in self._claim_counts:
            self.present[chunk] = 0
            position = self.order.position(chunk)
            if position is None:
                return
            at = bisect_left(self._ahead, position)
            if at == len(self._ahead) or self._ahead[at] != position:
                self._ahead.insert(at, position)

    @property
    def claimed_chunks(self) -> Collection[int]:
        """Those that some peer reads: one that has announced them may only have been promised them."""
        return self._claim_counts.keys()

    @property
    def claimants(self) -> Collection[NodeId]:
        """The peers that have claims."""
        return self._claims.keys()

    def claims(self, peer: NodeId) -> bool:
        """Whether the peer has said that it reads something."""
        return peer in self._claims

    def claimed(self, peer: NodeId, chunks: Collection[int], now: float) -> Collection[int]:
        """A peer says what it is reading now. Returns the chunks that no peer claims any more."""
        before = self._claims.get(peer, {})
        claim = {chunk: before.get(chunk, now) for chunk in chunks}
        if claim == before:
            return ()
        if self._turn is not None:
            self._turn.heard(peer, now)
        if claim:
            self._claims[peer] = claim
            self._progress_s.setdefault(peer, now)  # only its first: what it says later is no progress
            for position in {at for chunk in claim if (at := self.order.position(chunk)) is not None}:
                # What a helper brings must not count as progress of the owner.
                if self._line(position)[:1] != (peer,):
                    self._taken_over.add(position)
        else:
            del self._claims[peer]
        for chunk in claim.keys() - before.keys():
            self._claim_counts[chunk] = self._claim_counts.get(chunk, 0) + 1
            if (at := self.order.position(chunk)) is not None:
                self.inherited.begun(peer, self.order.bucket(at), now)
        return self._unclaim(before.keys() - claim.keys())

    def _unclaim(self, chunks: Collection[int]) -> Collection[int]:
        free = []
        for chunk in sorted(chunks):
            self._claim_counts[chunk] -= 1
            if not self._claim_counts[chunk]:
                del self._claim_counts[chunk]
                free.append(chunk)
        return free

    def forget(self, peer: NodeId, now: float) -> Collection[int]:
        """Drop a peer's claims. Returns the chunks that no peer claims any more."""
        if self._turn is not None and peer in self._claims:
            self._turn.heard(peer, now)
        return self._unclaim(self._claims.pop(peer, {}))

    def read_failed(self, now: float) -> None:
        """Storage failed: pause, longer each time."""
        self._failures += 1
        pause = min(_RETRY_S_MAX, self._planner_settings.read_retry_s * 2 ** min(self._failures - 1, 5))
        self._pause_until = now + pause * self._rng.uniform(0.75, 1.25)

    def read_ended(self, elapsed_s: float, chunk_time_s: float) -> None:
        """A read delivered a chunk; ``read_count`` counts them."""
        self._failures = 0
        self.read_count += 1
        self._usual_s += (elapsed_s - self._usual_s) / 4 if self._usual_s else elapsed_s
        self.window.read_ended(elapsed_s, chunk_time_s)

    def flows_max(self, missing: int, waiting: int = 0) -> int:
        """How many flows may share our link while this host reads; see ``ReadWindow.flows_max``."""
        return self.window.flows_max(len(self._ahead), missing, waiting)

    def is_being_read(self, now: float) -> bool:
        """Whether another reader claims a read, and the claim is not too old to be believed."""
        since = self._believed_since(now)
        return any(heard_s > since(chunk) for claim in self._claims.values() for chunk, heard_s in claim.items())

    def _believed_since(self, now: float) -> Callable[[int], float]:
        """Since when a claim of a chunk must have been heard to be believed."""
        since_s, packed_s = now - _CLAIM_FACTOR * self.takeover_s(), self._shape.packed_s
        return lambda chunk: since_s - _CLAIM_FACTOR * packed_s(chunk)

    @property
    def is_failing(self) -> bool:
        """Whether the last read of this host failed."""
        return self._failures > 0

    def is_midst(self, replica: LocalReplica) -> bool:
        """Whether the other readers have enough to read without soon hearing what this host has begun: it is of its own
        share, and much is left to read."""
        left = min(replica.missing_count, len(self._ahead) * self._shape.extent_chunks)
        return not self._helps and min(replica.held_count, left) > _MIDST_CHUNKS

    @property
    def can_read_extra(self) -> bool:
        """Whether there is something that the source readers reach late."""
        return self._turn is None and len(self._ahead) > 2 * self.window.positions_max()

    def plan(
        self, replica: LocalReplica, now: float, *, yields: bool = False, is_extra: bool = False
    ) -> list[tuple[int, ...]]:  # fmt: skip
        """Runs of adjacent chunks to read from storage now. ``yields``: to a deployment of higher priority. Then the
        whole cluster reads one extent at a time, as many readers with one read each would take most of its link.
        ``is_extra``: this host owns nothing and reads what the owners reach late."""
        if not self.is_reader or self.readable is False or now < self._pause_until or not self._ahead:
            return []
        if self._turn is not None:
            return self._plan_from_start(self._turn, replica, now)
        most = self.window.unit_chunks if yields else self.window.chunks_max()
        # Reads near their end make room for the next. At most half of them count: a read that storage failed is
        # repeated from its beginning and still counts as ending.
        room = most - replica.reads + min(replica.ending_reads, max(1, most // 2))
        if self.readable is None:  # not probed yet: one read tells as much as the probe, but others may be at it
            room = 0 if self.is_being_read(now) else min(room, self.window.unit_chunks - replica.reads)
        if room <= 0:
            return []
        head = self._head(now, 1 if yields else self.window.positions_max())
        runs: list[tuple[int, ...]] = []
        takeover_s = self.takeover_s()
        for position in head:
            if room <= 0:
                break
            if self._may_read(position, now, takeover_s):
                if self._line(position)[0] != self._own:
                    self._taken_over.add(position)
                for run in self._runs(position, replica, room, now):
                    runs.append(run)
                    room -= len(run)
        if is_extra and not yields:
            runs += self._extra_runs(replica, room, now)
        elif not runs and not replica.reads and not yields:
            runs = self._steal(head, replica, now)
        self._helps = any(self.order.position(run[0]) in self._taken_over for run in runs)
        return runs

    def _extra_runs(self, replica: LocalReplica, room: int, now: float) -> list[tuple[int, ...]]:
        """Of extents at random beyond the owners' window, one after the other. Rejected: onward from one place, because
        two extra readers that meet there go on together, each before it hears of the other's reads."""
        runs: list[tuple[int, ...]] = []
        first, looked_at = self.window.positions_max(), set[int]()
        for _ in range(_EXTRA_LOOKS):
            if room <= 0 or not self.can_read_extra:
                break
            at = self._extra_at
            if at is None or at in looked_at:
                at = self._ahead[self._rng.randrange(first, len(self._ahead))]
            if at in looked_at:
                continue  # what this plan began there is not under way yet
            looked_at.add(at)
            found = self._runs(at, replica, room, now)
            self._extra_at = at if found else None
            if found:
                self._taken_over.add(at)
            runs += found
            room -= sum(map(len, found))
        return runs

    def _plan_from_start(self, turn: ReadingTurn, replica: LocalReplica, now: float) -> list[tuple[int, ...]]:
        """The next run in the model's order, if this host reads and no other does. Whatever this host lacks is kept as
        it passes, also what others hold: what one of them was only promised would be read again from the first byte."""
        if replica.reads:
            turn.heard(self._own, now)
            return []
        believed_since = now - max(_WHOLE_S_MIN, self._shape.bytes_total / _WHOLE_RATE_MIN)
        claims = [claim for peer, claim in self._claims.items() if peer != self._own]
        others = any(heard_s > believed_since for claim in claims for heard_s in claim.values())
        wait_s = self.takeover_s() * (1 + self._jitter)
        line = self._lines[0] if self.order.class_of is None else self.readers
        if others or not turn.is_mine(self._own, line, now, wait_s):
            return []
        lacking = next((chunk for chunk in replica.missing() if not replica.reads_now(chunk)), None)
        if lacking is None or not self._head(now, 1) or (position := self.order.position(lacking)) is None:
            return []
        runs = self._runs(position, replica, self._shape.extent_chunks, now, is_passing=True)[:1]
        if runs:
            turn.heard(self._own, now)
        return runs

    def _steal(self, head: list[int], replica: LocalReplica, now: float) -> list[tuple[int, ...]]:
        """A reader without reads of its own helps a busy one with the extent that the owner reaches last. The helper is
        the first in the extent's list that has nothing left to begin. The owner may have begun extents whose claims are
        still on their way here, so the next extents in order are left to it: as many as it may be reading beyond its
        recent claims, and one."""
        claims_released = [position for position in head if not self._is_claimed(position)]
        left = Counter(self._line(position)[0] for position in claims_released if self._line(position))
        before = Counter(left)
        for position in reversed(claims_released):
            line = self._line(position)
            before.subtract(line[:1])
            helper = next((node for node in line if not left[node] and node in self._owners), None)
            if helper == self._own and before[line[0]] >= self._kept(line[0], now):
                age = now - self._heads[position].since_s
                if age >= max(self._planner_settings.read_stuck_s, 2 * self._likely_s()):
                    self._taken_over.add(position)
                    if runs := self._runs(position, replica, self.window.unit_chunks, now):
                        return runs
        return []

    def _kept(self, owner: NodeId, now: float) -> int:
        since = now - _LASTS_SHARE * self._likely_s()
        young = sum(heard_s > since for heard_s in self._claims.get(owner, {}).values()) // self.window.unit_chunks
        return 1 + max(0, -(-self.window.chunks_max() // self.window.unit_chunks) - 1 - young)

    def _is_claimed(self, position: int) -> bool:
        return not self._claim_counts.keys().isdisjoint(self.order.chunks(position))

    def _head(self, now: float, window: int) -> list[int]:
        """The first absent positions: a window of moving ones, and the stuck ones among them."""
        head: list[int] = []
        moving, most = 0, 4 * window
        ahead, present, heads = self._ahead, self.present, self._heads
        since_s = now - max(self._planner_settings.read_stuck_s, 2 * self._likely_s())
        while ahead and moving < window and len(head) < most:
            position = ahead.popleft()
            one = heads.get(position)
            if one is None:
                chunks = self.order.chunks(position)
                one = heads[position] = _Head(now, chunks.start, chunks.stop, self.order.bucket(position))
            # An extent that is present is progress of its owner, and leaves the order for good.
            if 0 not in present[one.first : one.stop]:
                del heads[position]
                line = self._lines[one.bucket]
                if line and position not in self._taken_over:
                    self._progress_s[line[0]] = now
                self._taken_over.discard(position)
                continue
            head.append(position)
            if one.since_s > since_s:
                moving += 1
        # The positions that were taken off to look at them go back in front.
        ahead.extendleft(reversed(head))
        return head

    def _may_read(self, position: int, now: float, takeover_s: float) -> bool:
        head = self._heads[position]
        line = self._lines[head.bucket]
        if self._own not in line:
            return False
        place, owner = line.index(self._own), line[0]
        if place == 0:
            former = self.inherited.awaited_owner(head.bucket, now)
            if not former:
                return former is None
            place, owner = 1, former[0]
        # A successor waits from the owner's last progress; the jitter keeps two of one rank from beginning together.
        waited = now - max(self._progress_s.get(owner, 0.0), head.since_s)
        turns = place + self._jitter
        if waited < takeover_s * turns or not self._is_claimed(position):
            return waited >= takeover_s * turns  # unclaimed: the owner has not begun, or its read has failed
        return waited >= (takeover_s + self._shape.packed_s(head.stop - 1)) * turns * _CLAIM_FACTOR

    def takeover_s(self) -> float:
        """How long a read may make no progress before another reader begins it."""
        return max(self._planner_settings.read_takeover_s, self._planner_settings.late_wait * self._likely_s())

    def heard_to_read(self) -> frozenset[NodeId]:
        """Who says that it reads, or has said so, or was seen to bring what it owns."""
        return frozenset({*self._claims, *self._progress_s})

    def idle_s(self, rank: int, now: float) -> float:
        """After how long without any new chunk out of storage the host of that rank stands in for the readers."""
        claimed = _CLAIM_FACTOR if self.is_being_read(now) else 1.0
        return claimed * self.takeover_s() * (1.0 + (1 << rank))

    def lost_s(self) -> float:
        """After how long a read will never end, though the adapter has not said so. Until a read has ended, all that
        this host may be reading is given the rate of the slowest fetch. Rejected: a fixed time, because large chunks
        from slow storage would be read again and again."""
        if self._turn is not None:
            return inf  # it may have to drop hours of bytes first, and the adapter bounds its silence
        most_bytes = self.window.unit_chunks * self.window.reads_max() * self._shape.chunk_bytes
        first_s = most_bytes / self._planner_settings.fetch_rate_min
        return max(_LOST_S_MIN, _LOST_USUALS * self.window.unit_chunks * self._usual_s or first_s)

    def _likely_s(self) -> float:
        """Seconds that a read takes, by this host's own; before one has ended, at ``read_rate_assumed``. Rejected:
        takeovers after ``read_takeover_s`` from the start, because readers of large chunks would repeat reads."""
        if self._usual_s:
            return self._usual_s
        reads = min(self.window.least, len(self.order))
        return reads * self._shape.chunk_bytes_mean / self._planner_settings.read_rate_assumed

    def _runs(
        self, position: int, replica: LocalReplica, room: int, now: float, *, is_passing: bool = False
    ) -> list[tuple[int, ...]]:
        """Absent chunks of the extent that no other reader is likely to be reading, in runs of at most a unit; where
        their bytes come anyway (``is_passing``), all that are lacking here. A claim counts by its own age, not by the
        time for which its chunk has been due: where storage is slow, a chunk is due for longer than any read takes, and
        owners would read again what helpers have begun."""
        runs: list[tuple[int, ...]] = []
        run: list[int] = []
        since = self._believed_since(now)
        others = [claim for peer, claim in self._claims.items() if peer != self._own]
        for chunk in self.order.chunks(position):
            absent = not (replica.holds(chunk) or replica.reads_now(chunk)) and (is_passing or not self.present[chunk])
            absent = absent and not any(claim.get(chunk, -inf) > since(chunk) for claim in others)
            if absent and room > 0:
                run.append(chunk)
                room -= 1
            if run and (not absent or room <= 0 or len(run) >= self.window.unit_chunks):
                runs.append(tuple(run))
                run = []
        if run:
            runs.append(tuple(run))
        return runs
