"""Before each read of external storage: whether the deployment's budget allows it.

What lives here: asking, with the settings and orders in force, the counters of the moment and the reads that are under
way here, and the error. What does not: the decision (``deployment.source_budget``), and which orders are in force
(``deployment.followed_budgets``).
"""

from __future__ import annotations

from collections.abc import Sequence

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
from gossipd.deployment.source_budget import SourceBudget, spent_bytes, why_held
from gossipd.sources.errors import SourceBudgetError
from membership.member import NodeId


class BudgetCheck(Struct, frozen=True, kw_only=True):
    """One per daemon, on the trio loop."""

    live: LiveSettings
    table: ClusterProgress
    lifecycle: DeploymentTable
    own: NodeId
    ordered: OrderedBudgets
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

    def refusal(self, deployment: DeploymentId, chunks: Sequence[ChunkIndex]) -> SourceBudgetError | None:
        """The error to tell instead of reading these chunks; of none, whether any may be read."""
        record = self.lifecycle.get(deployment)
        if record is None or record.manifest is None:
            return None
        budget = self.budget_of(record)
        if budget.limit_bytes is None:
            return None
        wanted = sum(map(record.manifest.chunk_length, chunks)) or 1
        paid = sum(map(record.manifest.chunk_length, self.under_way.get(deployment, ())))
        why = why_held(budget, spent_bytes(self.table, record, self.own) + paid, wanted)
        return None if why is None else SourceBudgetError(record.label, why)

    def budget_of(self, record: DeploymentRecord) -> SourceBudget:
        """What is in force for a deployment."""
        ordered_bytes = self.ordered.limit_bytes(progress_key(record.id))
        return replace(settings_mapping.source_budget(self.live.config), ordered_bytes=ordered_bytes)
