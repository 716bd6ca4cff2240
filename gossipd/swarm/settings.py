"""What an operator or a benchmark may turn on the planner. Every value says what it trades and where it is from."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PlannerSettings:
    """Bounds and times of the brain; times in seconds. The defaults serve 100 Mbit/s to 100 Gbit/s."""

    fetches_min: int = 4
    """Fetches in flight of a model of few chunks, when few are ready. Fewer let links idle by chance; each more adds
    one chunk time to what a chunk takes, and an eighth of that to every hop, since chunks are relayed while they
    arrive. 8 hosts took 256 chunks in 1.07 and 1.09 downloads with 3, 1.08 and 1.09 with 4, 1.13 and 1.14 with 6, and
    1.17 to 1.21 with 10 (lab)."""
    fetches_many: int = 10
    """The same for a model of many chunks, see ``flows``. Hosts take 0.983 of a chunk per chunk time with 6, 0.986 with
    8, 0.989 with 10, 0.988 with 12 (250 hosts, 1,000 chunks, simulated)."""
    fetches_step_chunks: int = 250
    """One fetch more for so many chunks more: what it gains grows with the number of chunks, what it costs does not."""
    handling_s: float = 0.045
    """What a chunk costs between its last byte and the next request for it, on an idle link: hash, write, news, plan.
    So many chunk times of further fetches are always in flight."""
    fetches_max: int = 24
    """Most fetches in flight, of all deployments. Above ``fetches_min`` by what a backlog and small chunks add."""
    backlog_share: float = 0.33
    """Further fetches per chunk that is ready and waits: a host that falls behind asks for more at a time. With 0.6
    sixteen hosts are half a point to a point faster (simulated; in the lab no difference with 0.5), 250 up to three
    chunk times slower."""
    pipeline_s: float = 0.25
    """Round trip of a request on loaded links (50 ms of queue in each of four ports in the lab): so many chunk times of
    further fetches are of use, and ``fetches_slack`` besides."""
    fetches_slack: int = 2
    fetches_per_peer_max: int = 3
    """Most fetches in flight from one peer, so that one bad peer never holds all of them."""
    fetch_rate_min: float = 128 * 1024
    """Bytes/s of one fetch: no more are in flight than the link has shown to give that much each, since both ends cut
    transfers of half of it; and what a fetch is given time for before one has ended."""
    fetch_timeout_s_min: float = 5.0
    """Shortest deadline of a fetch; else 20 times what a fetch takes."""
    slots_min: int = 4
    slots_max: int = 24
    """Bounds of upload slots, which follow the fetches that others are likely to have in flight. With more, first
    copies leave their holder slowly, all at once; with fewer, requests are refused."""
    slots_assumed: int = 4
    """Free upload slots of a peer that has not said yet."""

    batch_s_min: float = 0.02
    batch_chunk_share: float = 0.25
    """News wait for ``max(batch_s_min, batch_chunk_share x chunk time)``: staleness costs 3 to 4 times itself at
    the end, messages cost CPU."""
    news_lazy_s: float = 3.0
    """How late a neighbour hears what it has already or need not act on. With 1 a third of all deltas was such news; 3
    instead of 2 takes a fifth off all messages, and of five comparisons cost a chunk time or none in four and four in
    one; 4 costs 6 to 10 (160 and 250 hosts with 200 chunks of 0.2 s, 1,000 with 60, simulation)."""
    early_announcers: int = 2
    """From so many holders of a chunk a rack mate that lacks it hears soon. With all of them a host sent 105 deltas a
    second and the last one was 29 and 29 chunk times behind, with 4 74 (28), with 2 60 (28, 30), with 1 48 (32, 34; 160
    hosts in 4 racks, 200 chunks of 0.2 s, simulation); with 5 % of the hosts killed 28 with 2 for 28 with all, with 3 %
    of them slow 33 for 32."""

    rack_peers_max: int = 40
    """Neighbours in the rack. 20 to 40 are needed for 95 % and more (simulated)."""
    far_neighbours_max: int = 64
    """Neighbours in other racks, from whom and to whom this host imports and relays. No more readers than this and one,
    as they are neighbours of each other; a reader may have more, within ``subscribers_max``."""
    everyone_max: int = 48
    """Up to so many hosts, all are neighbours."""
    subscribers_max: int = 160
    """Peers that may hear our news; more are not answered. mates_max + far_neighbours_max and room for newcomers, or
    for those who import what a reader reads."""
    silence_s: float = 5.0
    """A neighbour that said nothing for so long, and for several chunk times, is asked again for its holdings; later
    each time while nothing new comes of it."""

    spread: int = 6
    """With h holders in the rack, only the first ``spread x h`` in line ask them: first copies fan out as a tree."""
    spread_far: int = 4
    """The same among racks: with h holders in other racks known, the first ``spread_far x h`` racks import. 2 is worse
    by 1 to 2 chunk times (250 hosts, simulated)."""
    busy_weight: float = 0.2
    """What a busy slot of a holder weighs against one fetch of our own in flight from it."""
    rarity_weight: float = 0.2
    """What a place in the order of rarity weighs against one busy slot of a holder."""
    late_wait: float = 3.0
    """A host that is late in line asks anyway after so many times what a fetch usually takes."""
    import_fallback_s: float = 1.5
    """How long the next in line waits at least for the one before it to import a chunk that another rack is known to
    hold; else ``late_wait`` times what a fetch usually takes."""

    reader_share: float = 0.8
    """Where many readers read, how much of the flows that their reads allow on their own links is used: not all of
    them read all the time."""
    reads_per_flow: int = 2
    """Extents being read in the whole cluster, for each of ``flows``. A read shares its reader's link with the fetches
    there, and where all reads together are fewer than the flows on one link, the external link idles or the readers
    finish last (with 12 reads and 8 fetches 6 chunk times after the others, with 16 when they do; simulated). What is
    in flight when storage has sent the last byte is still to be spread; that chunks are relayed while they are read
    makes it cheap."""
    reads_min: int = 12
    """Extents being read at least: where a chunk takes as long as the news of it the next are asked for late. With 8
    hosts took 1.13 downloads, with 12 1.06 (16 hosts, 1,024 chunks of 21 ms, 4 fetches, simulated)."""
    read_rate_assumed: float = 125e6
    """Bytes/s that all reads of a cluster together are taken to have until one of a host's own has ended: 1 Gbit/s.
    Chunks of 16 MiB are then expected within 1.6 to 2.7 s and taken over after three times that; storage that is slower
    at first costs duplicates, a reader that hangs with its first read so much more patience."""
    read_stuck_s: float = 1.5
    """An extent at the head of the order for so long no longer holds up the extents behind it."""
    read_takeover_s: float = 3.0
    """After so long at least, or ``late_wait`` times what reads take, the next in line reads an extent whose owner
    makes no progress."""
    read_grace_s: float = 1.0
    """A new owner waits so long for news of chunks that the old owner had read."""
    read_share_max: float = 0.01
    """External bytes in flight, as a share of the model, unless that is less than one extent per reader."""
    read_retry_s: float = 2.0
    """Pause after a failed read; doubles up to 30 s."""

    seeds_stable_s: float = 3.0
    """Nobody reads before the set of readers has been the same for so long (cold starts cost 1.0002 x with it)."""
    claim_rank_s: float = 0.3
    """Each next candidate waits this much longer before it claims to be its rack's seed."""
    claim_hold_down_s: float = 60.0
    """A seed that gave up its claim does not claim again for so long."""
    quorum_window_s: float = 10.0
    quorum_hold_s: float = 60.0
    """When half of the racks vanish within the window that is taken for a partition: reads pause for the hold."""

    hedge_share: float = 0.005
    """The last part of a model, at least two chunks, may be asked for twice."""
    hedge_after: float = 3.0
    """A fetch that takes this many times the usual is asked for elsewhere too."""
    stall_s: float = 3.0
    """No chunk for so long has a reason in status."""
    lag_share: float = 0.75
    lag_chunks: int = 24
    """A host that holds less than ``lag_share`` of what we hold, less ``lag_chunks``, is slow: no duties for it. Fewer
    are taken off where a chunk takes longer than news of it: ``behind_chunks``, and what comes while two lazy news are
    due. With 24 for chunks of 2 s a rack whose importer was slow lost 15 chunk times (simulated)."""
    behind_chunks: int = 8
    """A host that holds so many chunks less than half of its mates promises no chunk before it is here. Equal hosts are
    less far apart: none is later with it, and with 3 % of slow hosts the last of the others is 24 to 31 instead of 30
    to 37 chunk times behind (250 hosts, 200 chunks, simulated)."""

    def flows(self, chunk_count: int) -> int:
        """Fetches that keep a link busy while a model of so many chunks comes, when none is handled or waits."""
        more = max(0, chunk_count - self.fetches_step_chunks) // self.fetches_step_chunks
        return max(self.fetches_min, min(self.fetches_min + more, self.fetches_many, self.fetches_max))

    def reads_window(self, chunk_count: int) -> int:
        """Extents of such a model being read in the whole cluster."""
        return max(self.reads_min, self.reads_per_flow * self.flows(chunk_count))

    def validate(self) -> None:
        """Raises ValueError, which names the field, for values that cannot work."""
        if not 1 <= self.fetches_min <= self.fetches_max <= 64:
            raise ValueError("fetches_min and fetches_max must satisfy 1 <= fetches_min <= fetches_max <= 64")
        if not 1 <= self.reads_per_flow <= 16:
            raise ValueError("reads_per_flow must be 1 to 16")
        if not 2 <= self.reads_min <= 64:
            raise ValueError("reads_min must be 2 to 64")
        if self.early_announcers < 1:
            raise ValueError("early_announcers must be at least 1")
        if self.spread < 1:
            raise ValueError("spread must be at least 1")
        for name in ("batch_s_min", "news_lazy_s", "stall_s", "read_takeover_s", "import_fallback_s"):
            if not 0 < getattr(self, name) <= 600:
                raise ValueError(f"{name} must be above 0 and at most 600 s")
