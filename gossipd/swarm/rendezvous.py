"""Rendezvous hashing in bulk: every host computes the same answer from the same view, without a message.

What lives here: scores, and three uses of them: the preference list of a bucket, each source reader's share of external
storage, and the order in which it is read. What does not: the members (``peers``), and any decision.

Chunks fall into ``BUCKETS`` buckets, and one BLAKE3 stream per (node, deployment) gives a node's score for each bucket.
Rejected: hashing chunk by chunk, because it takes seconds for large models.

The first rank of each bucket is given out with a bound on load (Mirrokni, Thorup, Zadimoghaddam 2016, "Consistent
hashing with bounded loads", with the bound at the exact share). Rejected: plain rendezvous hashing, because the busiest
of few source readers owns too much; an exact permutation per block, because it moves all owners when one node leaves.
"""

from __future__ import annotations

import struct
from functools import lru_cache

from blake3 import blake3

from membership.member import NodeId

BUCKETS = 256  # 6 to 7 for each of 40 rack peers: even to within one part in six
_SPREAD = 0x9E3779B1  # 2**32 / golden ratio (Knuth, 6.4): neighbouring chunks fall far apart


def bucket_of(chunk: int) -> int:
    """The bucket of a chunk; adjacent chunks are in different buckets."""
    return (chunk * _SPREAD & 0xFFFFFFFF) >> 24


@lru_cache(maxsize=4_096)  # 10 kB each: two deployments among 1,000 hosts take 20 MB
def scores(name: bytes, salt: bytes, count: int) -> tuple[int, ...]:
    """``count`` 64-bit scores of one node or rack."""
    return struct.unpack(f"<{count}Q", blake3(salt + name).digest(length=8 * count))


@lru_cache(maxsize=64)  # some 100 kB each for 40 members: the lists of source readers; ``roles`` keeps those of racks
def bucket_lines(members: tuple[NodeId, ...], salt: bytes, count: int = BUCKETS) -> tuple[tuple[NodeId, ...], ...]:
    """For each of ``count`` buckets, its preference list of the members. ``members`` must be sorted."""
    if not members:
        return ((),) * count
    room = [-(-count // len(members))] * len(members)
    lines = []
    for scored in zip(*(scores(member, salt, count) for member in members), strict=True):
        line = sorted(range(len(members)), key=scored.__getitem__, reverse=True)
        first = line[0]
        if not room[first]:
            first = next(place for place in line if room[place])
            line.remove(first)
            line.insert(0, first)
        room[first] -= 1
        lines.append(tuple([members[place] for place in line]))
    return tuple(lines)


def bucket_firsts(
    members: tuple[NodeId, ...], salt: bytes, count: int, behind: frozenset[NodeId] = frozenset()
) -> tuple[NodeId, ...]:
    """The first of each of ``bucket_lines``, without the rest: one that is not ``behind``, if there is any. There must
    be members."""
    late = {place for place, member in enumerate(members) if member in behind}
    room = [-(-count // len(members))] * len(members)
    firsts = []
    for scored in zip(*(scores(member, salt, count) for member in members), strict=True):
        first = scored.index(max(scored))
        if not room[first]:
            line = sorted(range(len(members)), key=scored.__getitem__, reverse=True)
            first = next(place for place in line if room[place])
        room[first] -= 1
        if first in late and len(late) < len(members):
            first = max((place for place in range(len(members)) if place not in late), key=scored.__getitem__)
        firsts.append(members[first])
    return tuple(firsts)


@lru_cache(maxsize=64)
def rack_lines(racks: tuple[str, ...], salt: bytes) -> tuple[tuple[str, ...], ...]:
    """For each bucket, the racks in a random order: which racks import first, and the ring along which they relay."""
    if not racks:
        return ((),) * BUCKETS
    columns = zip(*(scores(rack.encode(), salt, BUCKETS) for rack in racks), strict=True)
    orders = [sorted(range(len(racks)), key=column.__getitem__) for column in columns]
    return tuple([tuple([racks[at] for at in order]) for order in orders])


@lru_cache(maxsize=64)
def reading_order(extents: int, salt: bytes, extent_chunks: int) -> tuple[int, ...]:
    """The order in which extents leave external storage: random, and the same for all source readers. One extent of
    each bucket comes before the next of any, so that every source reader always has something to read."""
    score = scores(b"reading order", salt, extents)
    turn = scores(b"order of buckets", salt, BUCKETS)
    read = [0] * BUCKETS
    places: list[tuple[int, int, int]] = []
    for extent in sorted(range(extents), key=score.__getitem__):
        bucket = bucket_of(extent * extent_chunks)
        places.append((read[bucket], turn[bucket], extent))
        read[bucket] += 1
    return tuple(extent for _, _, extent in sorted(places))
