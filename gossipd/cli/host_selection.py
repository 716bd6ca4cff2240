"""Which hosts of a deployment a page shows: those with a problem first, then the slowest; the others as counts.

What lives here: values for the plain and for the live page. What does not: drawing (``status``, ``live_status``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from gossipd.cli.options import chunks_wanted
from gossipd.core.reasons import CuredBy, HostReason, reason_of_word

HOSTS_SHOWN = 24  # up to here every host has a row; --all and --json have them at any number
PROBLEMS_MAX = 40
SLOWEST = 10
RACKS_MAX = 40
_ENDED = ("failed", "expired")
_GONE = (HostReason.DEAD, HostReason.LEFT)


@dataclass(frozen=True, slots=True)
class HostSelection:
    """``shown``: rows of hosts, the most pressing first. ``left_out``: how many of the others, by reason or state."""

    shown: tuple[dict[str, Any], ...]
    left_out: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class RackCounts:
    """Hosts of one rack; chunks are sums over them."""

    rack: str
    hosts: int
    complete: int
    problems: int
    chunks: int
    chunks_wanted: int


def rank_of_problem(host: dict[str, Any]) -> int | None:
    """How pressing: 0 failed or refused, 1 stalled, 2 dead; None without a problem, as when nobody need do anything."""
    return _rank_of_problem(host["state"], host["reason"])


@lru_cache(maxsize=256)  # of all hosts of a page, which have few states and reasons
def _rank_of_problem(state: str, word: str) -> int | None:
    if state == "complete":
        return None
    reason = reason_of_word(word)
    if state in _ENDED or reason.value.startswith("refused"):
        return 0
    if reason in _GONE:
        return 2
    return None if reason.cured_by is CuredBy.NOBODY else 1


def select(
    hosts: Sequence[dict[str, Any]], rows_max: int | None = None, *, left_out: Sequence[dict[str, Any]] = ()
) -> HostSelection:
    """Problems, at most ``PROBLEMS_MAX``, then the ``SLOWEST`` of the others that are not complete. With ``rows_max``
    as many rows as that, and complete hosts where there is room. ``left_out``: as in the deployment's row."""
    ranked = sorted(hosts, key=_rank)
    if rows_max is not None:
        shown = ranked[:rows_max]
    else:
        problems = [host for host in ranked if rank_of_problem(host) is not None][:PROBLEMS_MAX]
        slow = [host for host in ranked if rank_of_problem(host) is None and host["state"] != "complete"][:SLOWEST]
        shown = problems + slow
    chosen = {id(host) for host in shown}
    rest = Counter(host["reason"] or host["state"] for host in ranked if id(host) not in chosen)
    for group in left_out:
        rest[group["reason"] or group["state"]] += group["hosts"]
    return HostSelection(tuple(shown), tuple(rest.most_common()))


def _rank(host: dict[str, Any]) -> tuple[bool, int, int]:
    rank = rank_of_problem(host)
    return host["state"] == "complete", 3 if rank is None else rank, host["chunks_verified"]


def racks_worst_first(row: dict[str, Any]) -> list[RackCounts]:
    """Racks with problems first, then those that are least complete."""
    racks: dict[str, list[dict[str, Any]]] = {}
    for each in (*row["hosts"], *row.get("left_out", ())):
        racks.setdefault(each["rack"], []).append(each)
    counts = [_rack_counts(rack, each, row) for rack, each in racks.items()]
    return sorted(counts, key=lambda one: (-one.problems, one.chunks / max(1, one.chunks_wanted), one.rack))


def _rack_counts(rack: str, rows: Sequence[dict[str, Any]], row: dict[str, Any]) -> RackCounts:
    """Of rows of hosts, and of groups of hosts that were left out."""
    return RackCounts(
        rack=rack, hosts=sum(one.get("hosts", 1) for one in rows),
        complete=sum(one.get("hosts", 1) for one in rows if one["state"] == "complete"),
        problems=sum(rank_of_problem(one) is not None for one in rows),
        chunks=sum(one["chunks_verified"] for one in rows), chunks_wanted=sum(chunks_wanted(one, row) for one in rows),
    )  # fmt: skip


def words_left_out(selection: HostSelection) -> str:
    """``137 complete, 3 dead``."""
    return ", ".join(f"{count} {word}" for word, count in selection.left_out)
