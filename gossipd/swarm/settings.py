"""What an operator or a benchmark may change about the planner: unit, range and trade of each value."""

from __future__ import annotations

from msgspec import Struct

from gossipd.core.timing import STALL_S


class PlannerSettings(Struct, frozen=True):
    """Bounds and times of the swarm brain. The defaults serve 100 Mbit/s to 100 Gbit/s."""

    fetches_min: int = 4
    """Fetches in flight for a model of few chunks, 1 to ``fetches_max``. Fewer let links idle, more delay chunks."""
    fetches_many: int = 10
    """The same for a model of many chunks, see ``flows``. More keeps links busier, up to about 10."""
    fetches_step_chunks: int = 250
    """Chunks of a model for each further fetch, 1 or more: what a fetch gains grows with the number of chunks."""
    handling_s: float = 0.045
    """Seconds from a chunk's last byte to the next request on an idle link, as measured: hash, write, announce, plan.
    One further fetch is in flight for every chunk time that fits into it; a larger value only lengthens queues."""
    fetches_max: int = 24
    """Most fetches in flight, of all deployments, ``fetches_min`` to 64. More help a slow host, and queue at peers."""
    pool_bytes: int = 128 * 1024**2
    """Memory for chunks in transit: one deployment has no more fetches than fit into it and ``fetches_unleased``, but
    ``fetches_min``. More in flight would wait for memory, each with its supplier chosen long before it is asked."""
    fetches_unleased: int = 2
    """Fetches beyond those that ``pool_bytes`` holds, 0 or more: one takes over memory when another has ended. More
    choose their suppliers early, fewer leave memory idle until the next plan."""
    backlog_share: float = 0.33
    """Further fetches for each chunk that is ready, 0 to 1. More speeds up small clusters and slows down large ones."""
    pipeline_s: float = 0.25
    """Seconds of a request's round trip on loaded links (50 ms of queue at each of four ports). The limit of fetches is
    higher by one for every chunk time that fits into it; a larger value lengthens queues."""
    fetches_slack: int = 2
    """Fetches allowed beyond those of ``pipeline_s``, 0 or more. More keeps long paths full and lengthens queues."""
    fetches_per_peer_max: int = 3
    """Most fetches in flight from one peer, 1 or more. Fewer limit a bad peer, more fill the window from few peers."""
    fetch_rate_min: float = 128 * 1024
    """Least bytes/s of one fetch: the link's rate divided by it limits the number of fetches, and the first deadlines
    follow from it. Both ends cut transfers at half of it. More means fewer fetches on slow links."""
    fetch_timeout_s_min: float = 5.0
    """Shortest deadline of a fetch in seconds; else 20 times the usual. Shorter drops hanging peers, also slow ones."""
    slots_min: int = 4
    slots_max: int = 24
    """Bounds of upload slots, which follow the fetches of others. With more, first copies leave their holder slowly,
    all at once; with fewer, requests are refused."""
    slots_assumed: int = 4
    """Free upload slots of a peer that has told none yet, 1 or more. More risks refusals, fewer waits."""

    batch_s_min: float = 0.02
    batch_chunk_share: float = 0.25
    """Urgent announcements wait at least for ``max(batch_s_min, batch_chunk_share x chunk time)``, above 0 to 600 s,
    and longer in the midst of a model (``link_times``). Longer saves messages; the wait costs three to four times
    itself at the end."""
    news_lazy_s: float = 3.0
    """Seconds until a neighbour hears of chunks that it has or need not act on, above 0 to 600, and three times as long
    while they are few. Longer saves messages; shorter keeps views fresh. Beyond 3 s the end comes later."""
    early_announcers: int = 2
    """Holders of a chunk that tell a rack peer soon, on average, 1 or more. More costs messages, 1 costs time."""

    rack_peers_max: int = 40
    """Neighbours in the rack, 20 to 40. Fewer cost efficiency, more cost messages."""
    far_neighbours_max: int = 64
    """Neighbours in other racks, for imports and relays; a source reader may have more, within ``subscribers_max``. One
    more than this is the limit of source readers, which are neighbours of one another. More costs messages."""
    everyone_max: int = 48
    """Up to this number of hosts all are neighbours. More shortens paths and costs messages."""
    subscribers_max: int = 160
    """Most subscribers, at least ``rack_peers_max + far_neighbours_max``, with room for newcomers and for the importers
    of what a source reader reads; others get no answer. More costs uplink."""
    silence_s: float = 5.0
    """Seconds of silence, and several chunk times, after which a neighbour is asked for its holdings; doubles while
    nothing new comes. Shorter finds lost deltas sooner and costs messages."""

    spread: int = 6
    """With h holders in the rack, the hosts of the first ``spread x h`` ranks ask them; 1 or more. With fewer, first
    copies fan out in a deeper tree; more swamp the first holders."""
    spread_far: int = 4
    """The same among racks: with h holders in other racks the first ``spread_far x h`` racks import; 1 or more."""
    busy_weight: float = 0.2
    """What a busy slot of a holder weighs against one of our own fetches there, 0 to 1. More avoids busy holders."""
    rarity_weight: float = 0.2
    """What a place in the order of rarity weighs against one busy slot, 0 to 1. More prefers rare chunks."""
    late_wait: float = 3.0
    """A host of a late rank asks after this many times what a fetch takes. Less costs duplicates, more costs time."""
    import_fallback_s: float = 1.5
    """Least seconds, for each rank, that a host leaves an import to hosts of lower ranks, above 0 to 600. Less costs
    double imports, more costs time when an importer hangs."""

    reader_share: float = 0.8
    """Where many source readers read, the share of the flows on their own links that is used, 0 to 1: they do not all
    read at once. More leaves each read less of the link."""
    reads_per_flow: int = 2
    """Extents being read in the whole cluster for each of ``flows``, 1 to 16. With fewer, the external link idles or
    the source readers finish last; more are still to be spread when storage has sent the last byte."""
    reads_min: int = 16
    """Least extents being read, 2 to 64. With fewer, the next read begins late where a chunk takes as long as its
    announcement, of which readers hear with other news in the midst of a model; more are still to be spread at the end,
    and quick hosts beside seeds with slow links wait for them."""
    read_rate_assumed: float = 125e6
    """Bytes/s of all reads of a cluster until one of this host's own has ended. More takes over sooner, which costs
    duplicates on slow storage; less waits longer for a reader that hangs."""
    read_stuck_s: float = 1.5
    """Seconds after which an extent at the head of the order holds up no others. Less puts more in flight."""
    read_takeover_s: float = 3.0
    """Least seconds, or ``late_wait`` times what reads take, until the next source reader takes over an extent whose
    owner makes no progress; above 0 to 600. Less costs duplicates, more costs time when a reader hangs."""
    read_grace_s: float = 1.0
    """Seconds that a new owner waits for deltas about chunks that the old owner had read. Less costs duplicates."""
    read_share_max: float = 0.01
    """Share of the model in flight from storage, 0 to 1, at least half of ``reads_min`` and an extent for each reader.
    More costs duplicates when a reader dies."""
    read_retry_s: float = 2.0
    """Seconds of pause after a failed read; doubles up to 30 s. Less loads storage that fails."""

    seeds_stable_s: float = 3.0
    """Seconds without a change of seeds before a read begins, among 1,000 members; a third of it among few. Less costs
    duplicates at a cold start, more time."""
    claim_rank_s: float = 0.3
    """Seconds that each next candidate waits longer before its claim: more than gossip takes, or two claim a rack."""
    claim_hold_down_s: float = 60.0
    """Seconds after which a host that gave up its claim may claim again. Less moves seeds to and fro."""
    quorum_window_s: float = 10.0
    quorum_hold_s: float = 60.0
    """When more than half of the racks vanish within ``quorum_window_s``, that is taken for a partition, and reads
    pause for this many seconds. A longer pause costs time, a shorter one a second copy out of storage."""

    hedge_share: float = 0.005
    """The last part of a model, 0 to 1, at least two chunks, that is hedged early. More costs duplicates."""
    hedge_after: float = 3.0
    """A fetch that takes this many times the usual is hedged. Less costs duplicates, more costs time."""
    hedge_s_min: float = 0.5
    """Least seconds until a fetch that has brought nothing is hedged; above 0 to 600. Less costs duplicates where a
    machine is busy, more costs time when the holder of one of the last chunks hangs."""
    stall_s: float = STALL_S
    """Seconds without a chunk after which status shows a reason, above 0 to 600."""
    lag_share: float = 0.75
    lag_chunks: int = 24
    """A host that holds less than ``lag_share`` of what this host holds, less ``lag_chunks``, is slow and gets no
    roles. Where chunks take long fewer are taken off: ``behind_chunks``, and those that come in two lazy rounds."""
    behind_chunks: int = 8
    """A host that holds this many chunks less than half of its rack peers promises no chunk before it is here. Fewer
    would touch equal hosts, more lets peers wait for a slow relay."""

    def flows(self, chunk_count: int) -> int:
        """Fetches that keep a link busy while a model of that many chunks comes, without handling and backlog."""
        more = max(0, chunk_count - self.fetches_step_chunks) // self.fetches_step_chunks
        return max(self.fetches_min, min(self.fetches_min + more, self.fetches_many, self.fetches_max))

    def reads_window(self, chunk_count: int) -> int:
        """Extents of such a model that are being read in the whole cluster."""
        return max(self.reads_min, self.reads_per_flow * self.flows(chunk_count))

    def validate(self) -> None:
        """Raises ValueError, which names the field, for a value that cannot work."""
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
        for name in ("batch_s_min", "news_lazy_s", "stall_s", "read_takeover_s", "import_fallback_s", "hedge_s_min"):
            if not 0 < getattr(self, name) <= 600:
                raise ValueError(f"{name} must be above 0 and at most 600 s")
