"""One host's row of ``/v1/sketch``: what is known here of its holdings, or what it has answered.

What lives here: pure functions. What does not: the sketch (``core.sketch``), whose holdings are known
(``swarm.planner``), and the fields' names (``schema``).
"""

from __future__ import annotations

from base64 import b64encode

from gossipd.api.deployment_row import TargetFacts
from gossipd.api.schema import SketchRow
from gossipd.core.chunkset import ChunkSet
from gossipd.core.sketch import BINS, FINE_BINS, KnownHoldings, sketch
from gossipd.deployment.progress_record import DELETED, HostState
from gossipd.deployment.progress_table import HostProgress
from gossipd.wire.control import Sketch


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


def own_fine_row(target: TargetFacts, known: KnownHoldings) -> SketchRow:
    """The row of the host that answers, in up to 256 bins."""
    return _row(target, "itself", 0.0, known.held, known.wanted, bins_max=FINE_BINS)


def answered_row(
    target: TargetFacts, answer: Sketch | None, age_s: float, *, chunk_count: int
) -> SketchRow | None:  # fmt: skip
    """The row from what the host itself has answered, in up to 256 bins; None without an answer that fits the model."""
    if answer is None or len(answer.shares) != min(FINE_BINS, chunk_count) or answer.chunks_held > chunk_count:
        return None
    return _as_row(target, "answer", age_s, answer.chunks_held, answer.shares)


def _row(
    target: TargetFacts, known_by: str, age_s: float, held: ChunkSet, wanted: ChunkSet, *, bins_max: int = BINS
) -> SketchRow:
    return _as_row(target, known_by, age_s, len(held & wanted), sketch(held, wanted, bins_max))


def _as_row(target: TargetFacts, known_by: str, age_s: float, chunks_held: int, shares: bytes) -> SketchRow:
    return SketchRow(
        name=target.name, rack=target.rack, known_by=known_by, age_s=round(max(0.0, age_s), 1),
        chunks_held=chunks_held, shares=b64encode(shares).decode(),
    )  # fmt: skip
