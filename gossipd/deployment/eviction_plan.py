"""Which complete versions make room on a disk that is too full, in which order.

What lives here: the choice, from what the store and the cluster tell. What does not: looking (``daemon.watermarks``),
and deleting (``store.models.eviction``).

A version that is not ``current`` goes before one that is: jobs load the current one by its name, and another only after
a rollback. Among versions that are alike in this, the one that was used longest ago goes first. What anything keeps is
never chosen.

Some hosts of a rack keep a version for the whole rack (``keepers``): those that come first when its holders are put in
order by a hash, so that all agree without a message. A keeper does not evict the version, whatever the others do; each
other host may. Rejected: to ask the others first, which a host with a full disk and no link could not do.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from blake3 import blake3
from msgspec import Struct

from gossipd.core.ids import DeploymentId
from membership.member import NodeId

DEPLOYING, REPLICA = "deploying", "replica"


class EvictionCandidate(Struct, frozen=True):
    """A complete version on this host. ``label``: NAME@VERSION for people; ``model``: with the plain number. ``kept``:
    what keeps it, a word such as ``pinned``; empty when nothing does."""

    deployment: DeploymentId
    label: str
    byte_count: int
    last_used_s: float
    is_current: bool
    kept: str = ""
    model: str = ""


class EvictionPlan(Struct, frozen=True):
    """``chosen`` in the order of eviction; ``kept``: all that something keeps, the longest unused first."""

    chosen: tuple[EvictionCandidate, ...]
    kept: tuple[EvictionCandidate, ...]


def plan_eviction(
    candidates: Sequence[EvictionCandidate], *, used_bytes: int, target_bytes: int | None, is_prune: bool = False
) -> EvictionPlan:
    """What to evict until no more than ``target_bytes`` of the disk are used.

    Args:
        used_bytes: of the file system, by anybody.
        target_bytes: None for no target.
        is_prune: also every version that is not current, whatever is used.
    """
    ordered = sorted(candidates, key=lambda one: (one.is_current, one.last_used_s, one.label))
    chosen, left_bytes = [], used_bytes
    for one in ordered:
        is_too_full = target_bytes is not None and left_bytes > target_bytes
        if not one.kept and (is_too_full or (is_prune and not one.is_current)):
            chosen.append(one)
            left_bytes -= one.byte_count
    return EvictionPlan(tuple(chosen), tuple(one for one in ordered if one.kept))


def keepers(deployment: DeploymentId, holders: Collection[NodeId], count: int) -> list[NodeId]:
    """The ``count`` holders of a rack that keep it, in the order in which they are asked to."""
    return sorted(holders, key=lambda node: blake3(node, key=deployment).digest())[:count]
