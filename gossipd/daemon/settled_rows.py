"""The rows of deployments that stay as they are while no host tells anything else: all their targets are complete.

What lives here: how long such a row holds. What does not: how one is made (``api.deployment_row``).

A cluster has a hundred complete models, and a thousand hosts of each; a page that is asked for each second need not be
made of all of them again. Nothing in such a row depends on the time: it has no ages, and nothing moves.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec import Struct

from gossipd.api.deployment_row import DeploymentFacts, TargetFacts
from gossipd.api.host_groups import grouped
from gossipd.api.schema import DeploymentRow
from gossipd.core.ids import DeploymentId

KEPT_MAX = 1_024  # a few kB each; the one that was made longest ago gives way


class _Settled(Struct, frozen=True):
    """What a row was made of, and the row."""

    facts: DeploymentFacts
    hosts: Sequence[TargetFacts]
    revision: int
    row: DeploymentRow


class SettledRows:
    """One per daemon."""

    def __init__(self) -> None:
        self._settled: dict[DeploymentId, _Settled] = {}
        self._hosts: Sequence[TargetFacts] = ()

    def same(self, hosts: Sequence[TargetFacts]) -> Sequence[TargetFacts]:
        """These hosts: the list of the last call where they are equal, so that rows need not compare them again."""
        if hosts != self._hosts:
            self._hosts = hosts
        return self._hosts

    def row(
        self, facts: DeploymentFacts, hosts: Sequence[TargetFacts], revision: int, make: Callable[[], DeploymentRow],
        *, hosts_max: int,
    ) -> DeploymentRow:  # fmt: skip
        """The row with its complete hosts left out, see ``grouped``. ``hosts``: as ``same`` gives them; ``revision``:
        of what all hosts have told of it. ``make`` makes the row of all hosts."""
        kept = self._settled.get(facts.id)
        if kept is not None and (kept.hosts is hosts and kept.revision == revision and kept.facts == facts):
            return kept.row
        row = grouped(make(), hosts_max)
        self._settled.pop(facts.id, None)
        if row.left_out and not (row.hosts or row.rate_in_bytes_per_s or row.rate_out_bytes_per_s):
            self._settled[facts.id] = _Settled(facts, hosts, revision, row)
            if len(self._settled) > KEPT_MAX:
                del self._settled[next(iter(self._settled))]
        return row
