"""One host's row of ``/v1/sketch``: what is known here of its holdings.

What lives here: a pure function. What does not: the sketch (``core.sketch``), whose holdings are known
(``swarm.planner``), and the fields' names (``schema``).
"""

from __future__ import annotations

from base64 import b64encode

from gossipd.api.deployment_row import TargetFacts
from gossipd.api.schema import SketchRow
from gossipd.core.chunkset import ChunkSet
from gossipd.core.sketch import KnownHoldings, sketch
from gossipd.deployment.progress_record import DELETED, HostState
from gossipd.deployment.progress_table import HostProgress


def sketch_row(
    target: TargetFacts, told: HostProgress | None, known: KnownHoldings | None, *, chunk_count: int, now: float
) -> SketchRow | None:
    """The row, from the host's last record and what it has announced here; None where its chunks are not known.

    A record tells a number of chunks only: which, where it is all of them or none. That a host has all goes before what
    it has announced, because a host that is complete itself listens to nobody. A host whose key two hosts use has none.
    """
    if target.is_twice:
        return None
    is_whole = told is not None and told.progress.state is HostState.COMPLETE and not told.progress.chunks_wanted
    if known is not None and (known.heard_s is None or not is_whole):
        age_s = 0.0 if known.heard_s is None else now - known.heard_s
        known_by = "itself" if known.heard_s is None else "announcements"
        return _row(target, known_by, age_s, known.held, known.wanted)
    if told is None:
        return None
    if not is_whole and told.progress.chunks_verified and told.progress.state not in DELETED:
        return None
    everything = ChunkSet.full(chunk_count)
    held = everything if is_whole else ChunkSet(chunk_count)
    return _row(target, "progress", told.age_s(now), held, everything)


def _row(target: TargetFacts, known_by: str, age_s: float, held: ChunkSet, wanted: ChunkSet) -> SketchRow:
    return SketchRow(
        name=target.name, rack=target.rack, known_by=known_by, age_s=round(max(0.0, age_s), 1),
        chunks_held=len(held & wanted), shares=b64encode(sketch(held, wanted)).decode(),
    )  # fmt: skip
