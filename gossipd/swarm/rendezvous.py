"""Rendezvous hashing in bulk: the same answer on every host from the same view, with no message.

What lives here: scores, and three uses of them: who stands where in the line of a bucket, which share of
external storage belongs to which reader, and the order in which external storage is read. What does not:
who is in the view (``peers``), and what is done with the answer.

Chunks are not hashed one by one: 30,000 chunks times 25 readers take 4 s that way. Chunks
fall into ``BUCKETS`` buckets, and one BLAKE3 stream per (node, deployment) gives a node's score for each.

The first place of each bucket is given out with a bound on load (Mirrokni, Thorup, Zadimoghaddam 2016,
"Consistent hashing with bounded loads", with the bound at the exact share): with plain rendezvous hashing the
busiest of four readers owns 10 % more than its share of 256, and the last host would wait for it. Rejected:
the exact permutation per block, which re-owns everything when one node leaves.
"""

from __future__ import annotations

import struct
from functools import lru_cache

from blake3 import blake3

from membership.member import NodeId

BUCKETS = 256  # 6 to 7 for each of 40 rack mates: balanced to within one part in six before free slots even it out
_SPREAD = 0x9E3779B1  # 2**32 / golden ratio (Knuth, 6.4): neighbours fall far apart


def bucket_of(chunk: int) -> int:
    """The bucket of a chunk; adjacent chunks are in different ones."""
    return (chunk * _SPREAD & 0xFFFFFFFF) >> 24


@lru_cache(maxsize=4_096)  # 10 kB each in full: two deployments among 1,000 hosts take 20 MB, and 16,384 took 160
def scores(name: bytes, salt: bytes, count: int) -> tuple[int, ...]:
    """``count`` 64-bit scores of one node or rack."""
    return struct.unpack(f"<{count}Q", blake3(salt + name).digest(length=8 * count))


@lru_cache(maxsize=16)  # some 100 kB each for 40 members; lines of readers, racks' are kept by ``roles``
def bucket_lines(members: tuple[NodeId, ...], salt: bytes, count: int = BUCKETS) -> tuple[tuple[NodeId, ...], ...]:
    """For each of ``count`` buckets, the members from first to last in line. ``members`` must be sorted."""
    if not members:
        return ((),) * count
    scored = {member: scores(member, salt, count) for member in members}
    room = dict.fromkeys(members, -(-count // len(members)))
    lines = []
    for bucket in range(count):
        line = sorted(members, key=lambda member: scored[member][bucket], reverse=True)
        first = next(member for member in line if room[member] > 0)
        room[first] -= 1
        if first is not line[0]:
            line.remove(first)
            line.insert(0, first)
        lines.append(tuple(line))
    return tuple(lines)


@lru_cache(maxsize=64)
def rack_lines(racks: tuple[str, ...], salt: bytes) -> tuple[tuple[str, ...], ...]:
    """For each bucket, the racks in a random order: who imports early and who late, and the ring of relays."""
    scored = [scores(rack.encode(), salt, BUCKETS) for rack in racks]
    orders = [sorted((scored[at][bucket], at) for at in range(len(racks))) for bucket in range(BUCKETS)]
    return tuple(tuple(racks[at] for _, at in order) for order in orders)


@lru_cache(maxsize=64)
def reading_order(extents: int, salt: bytes, extent_chunks: int) -> tuple[int, ...]:
    """The order in which extents leave external storage: random, and the same for all readers.

    One of each bucket before the next of any, so that every reader has something to read at any time.
    """
    score = scores(b"reading order", salt, extents)
    turn = scores(b"order of buckets", salt, BUCKETS)
    read = [0] * BUCKETS
    places: list[tuple[int, int, int]] = []
    for extent in sorted(range(extents), key=score.__getitem__):
        bucket = bucket_of(extent * extent_chunks)
        places.append((read[bucket], turn[bucket], extent))
        read[bucket] += 1
    return tuple(extent for _, _, extent in sorted(places))
