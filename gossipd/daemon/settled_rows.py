"""Rows of deployments that stay as they are, but for ages, while no host tells anything else: in none does a byte move.

What lives here: how long such a row holds. What does not: how one is made (``api.deployment_row``).

A cluster has a hundred complete models, and a thousand hosts of each; a page that is asked for each second need not be
made of all of them again. Of a row that holds only the hosts that are not complete are looked at, for their ages: some
host is always down.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from gossipd.api.deployment_row import DeploymentFacts, TargetFacts, deployment_row, host_rows
from gossipd.api.host_groups import grouped
from gossipd.api.schema import DeploymentRow
from gossipd.core.ids import DeploymentId
from gossipd.deployment.progress_record import HostState, progress_key
from gossipd.deployment.progress_table import ClusterProgress

KEPT_MAX = 1_024  # some 10 kB each in 50 racks; the one that was made longest ago gives way


class _Settled(Struct, frozen=True):
    """What a row was made of, and the row, without hosts. ``facts``: without files, which follow from the id and may be
    100,000. ``shown``: the targets that it has rows of."""

    facts: DeploymentFacts
    hosts: Sequence[TargetFacts]
    revision: int
    targets: Sequence[TargetFacts]
    shown: Sequence[TargetFacts]
    row: DeploymentRow

    def holds(self, facts: DeploymentFacts, hosts: Sequence[TargetFacts], revision: int, hosts_max: int) -> bool:
        """Whether the row would be made of the same again, and as many hosts left out."""
        is_same = self.hosts is hosts and self.revision == revision and self.facts == facts
        return is_same and len(self.targets) > hosts_max


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
        self, facts: DeploymentFacts, table: ClusterProgress, hosts: Sequence[TargetFacts],
        is_target: Callable[[str, str], bool], *, hosts_max: int, now: float,
    ) -> DeploymentRow:  # fmt: skip
        """The row with its complete hosts left out, see ``grouped``. ``hosts``: all, as ``same`` gives them;
        ``is_target``: of a host's name and rack."""
        revision = table.revision_of(progress_key(facts.id))
        kept, key = self._settled.get(facts.id), replace(facts, files=())
        if kept is not None and kept.holds(key, hosts, revision, hosts_max):
            return replace(kept.row, hosts=host_rows(facts, table, kept.targets, kept.shown, now=now))
        targets = [host for host in hosts if is_target(host.name, host.rack)]
        whole = deployment_row(facts, table, targets, now=now)
        row = grouped(whole, hosts_max)
        self._settled.pop(facts.id, None)
        if len(targets) > hosts_max and not (row.rate_in_bytes_per_s or row.rate_out_bytes_per_s):
            pairs = zip(targets, whole.hosts, strict=True)
            shown = [target for target, host in pairs if host.state != HostState.COMPLETE.value]
            of = hosts if len(targets) == len(hosts) else targets
            self._settled[facts.id] = _Settled(key, hosts, revision, of, shown, replace(row, hosts=[]))
            if len(self._settled) > KEPT_MAX:
                del self._settled[next(iter(self._settled))]
        return row

    def row_of(
        self, name: str, facts: DeploymentFacts, table: ClusterProgress, hosts: Sequence[TargetFacts],
        is_target: Callable[[str, str], bool], *, now: float,
    ) -> DeploymentRow | None:  # fmt: skip
        """The row with the host of this name alone; None where it is no target."""
        alone = [host for host in hosts if host.name == name and is_target(host.name, host.rack)]
        if not alone:
            return None
        row = self.row(facts, table, hosts, is_target, hosts_max=0, now=now)
        kept = self._settled.get(facts.id)  # a reader that is no target is told by its id, as in the whole row
        targets = kept.targets if kept else [host for host in hosts if is_target(host.name, host.rack)]
        return replace(row, hosts=host_rows(facts, table, targets, alone, now=now), left_out=[])
