"""Before each read of external storage: whether the deployment's budget allows it.

What lives here: asking, with the settings and orders in force, the counters of the moment and the reads that are under
way here, and the error. What does not: the decision (``deployment.source_budget``), and which orders are in force
(``deployment.followed_budgets``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec import Struct, field
from msgspec.structs import replace

from gossipd.core.ids import ChunkIndex, DeploymentId
from gossipd.daemon import settings_mapping
from gossipd.daemon.live_settings import LiveSettings
from gossipd.deployment.deployment_record import DeploymentRecord
from gossipd.deployment.deployment_table import DeploymentTable
from gossipd.deployment.ordered_budgets import OrderedBudgets
from gossipd.deployment.progress_record import progress_key
from gossipd.deployment.progress_table import ClusterProgress
from gossipd.deployment.source_budget import SourceBudget, spent, why_held
from gossipd.sources.errors import SourceBudgetError
from membership.member import NodeId


class ReadVerdict(Struct, frozen=True):
    """Of a read: with ``refusal``, that is told instead; one that ``must_wait`` is asked about again soon."""

    refusal: SourceBudgetError | None = None
    must_wait: bool = False


_MAY_READ = ReadVerdict()


class BudgetCheck(Struct, frozen=True, kw_only=True):
    """One per daemon, on the trio loop. ``seeds``: those of all racks now."""

    live: LiveSettings
    table: ClusterProgress
    lifecycle: DeploymentTable
    own: NodeId
    ordered: OrderedBudgets
    seeds: Callable[[], frozenset[NodeId]]
    under_way: dict[DeploymentId, set[ChunkIndex]] = field(default_factory=dict)

    def reads_begun(self, deployment: DeploymentId, chunks: Sequence[ChunkIndex]) -> None:
        """These are paid from now on: the counters have them when they have come."""
        self.under_way.setdefault(deployment, set()).update(chunks)

    def reads_ended(self, deployment: DeploymentId, chunks: Sequence[ChunkIndex]) -> None:
        """They have come and are counted, or they do not come."""
        left = self.under_way.get(deployment, set()).difference(chunks)
        if left:
            self.under_way[deployment] = left
        else:
            self.under_way.pop(deployment, None)

    def judge(self, deployment: DeploymentId, chunks: Sequence[ChunkIndex]) -> ReadVerdict:
        """Whether these chunks may be read; of none, whether any may."""
        record = self.lifecycle.get(deployment)
        if record is None or record.manifest is None:
            return _MAY_READ
        budget = self.budget_of(record)
        if budget.limit_bytes is None:
            return _MAY_READ
        wanted = sum(map(record.manifest.chunk_length, chunks)) or 1
        under_way_bytes = sum(map(record.manifest.chunk_length, self.under_way.get(deployment, ())))
        known = spent(self.table, record, self.own, under_way_bytes)
        if (why := why_held(budget, known.total_bytes, wanted)) is not None:
            return ReadVerdict(SourceBudgetError(record.label, why))
        if not known.must_wait(budget.limit_bytes, wanted, len(self.seeds() | {self.own})):
            return _MAY_READ
        record.changed = record.changed or known.since_bytes > 0  # told at the next look, and then others go on
        return ReadVerdict(must_wait=bool(chunks))

    def budget_of(self, record: DeploymentRecord) -> SourceBudget:
        """What is in force for a deployment."""
        ordered_bytes = self.ordered.limit_bytes(progress_key(record.id))
        return replace(settings_mapping.source_budget(self.live.config), ordered_bytes=ordered_bytes)
