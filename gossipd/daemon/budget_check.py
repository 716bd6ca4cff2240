"""Before each read of external storage: whether the deployment's budget allows it.

What lives here: asking, with the settings in force and the counters of the moment, and the error. What does not: the
decision (``deployment.source_budget``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gossipd.core.ids import ChunkIndex, DeploymentId
from gossipd.daemon import settings_mapping
from gossipd.daemon.live_settings import LiveSettings
from gossipd.deployment.deployment_table import DeploymentTable
from gossipd.deployment.progress_table import ClusterProgress
from gossipd.deployment.source_budget import spent_bytes, why_held
from gossipd.sources.errors import SourceBudgetError
from membership.member import NodeId


@dataclass(frozen=True, slots=True)
class BudgetCheck:
    """One per daemon, on the trio loop."""

    live: LiveSettings
    table: ClusterProgress
    lifecycle: DeploymentTable
    own: NodeId

    def refusal(self, deployment: DeploymentId, chunks: Sequence[ChunkIndex]) -> SourceBudgetError | None:
        """The error to tell instead of reading these chunks; of none, whether any may be read."""
        budget = settings_mapping.source_budget(self.live.config)
        record = self.lifecycle.get(deployment)
        if budget.limit_bytes is None or record is None or record.manifest is None:
            return None
        wanted = sum(record.manifest.chunk_length(chunk) for chunk in chunks) or 1
        why = why_held(budget, spent_bytes(self.table, record, self.own), wanted)
        return None if why is None else SourceBudgetError(record.label, why)
