"""How much of a deployment the cluster may read from external storage, in bytes and in money.

What lives here: the budget, what is spent of it, and whether a read still fits. What does not: reading
(``daemon.executor``, which asks before each read), and the counters (``progress_table``).

What is spent is the sum of what all hosts have told to have read, forgotten ones and earlier runs among them, and what
this host has read since it told. Another host's last seconds are not in it, so the budget may be passed by what is read
in them. Rejected: a share of the budget for each seed, which would strand the shares of seeds that die.
"""

from __future__ import annotations

from dataclasses import dataclass

from gossipd.core.units import show_bytes
from gossipd.deployment.deployment_record import DeploymentRecord
from gossipd.deployment.progress_record import progress_key
from gossipd.deployment.progress_table import ClusterProgress
from membership.member import NodeId

GB = 1_000_000_000  # what storage vendors charge by


@dataclass(frozen=True, slots=True)
class SourceBudget:
    """For each deployment. 0 is no limit; ``money`` is in the currency of ``money_per_gb``."""

    bytes_max: int = 0
    money: float = 0.0
    money_per_gb: float = 0.0

    @property
    def limit_bytes(self) -> int | None:
        """The lower of both, in bytes; None without either."""
        limits = [self.bytes_max] if self.bytes_max else []
        if self.money and self.money_per_gb:
            limits.append(int(self.money / self.money_per_gb * GB))
        return min(limits, default=None)


def spent_bytes(table: ClusterProgress, record: DeploymentRecord, own: NodeId) -> int:
    """What all hosts have read of it from storage, as far as this one knows."""
    key = progress_key(record.id)
    told = table.host(own, key)
    since = record.counters.source_bytes - (told.progress.source_bytes if told is not None else 0)
    return table.source_bytes(key) + max(0, since)


def why_held(budget: SourceBudget, spent: int, wanted: int) -> str | None:
    """Why ``wanted`` more bytes may not be read, in words; None when they may."""
    limit = budget.limit_bytes
    if limit is None or spent + wanted <= limit:
        return None
    words = f"{show_bytes(spent)} of {show_bytes(limit)} are read"
    if budget.money and budget.money_per_gb and limit != budget.bytes_max:
        words += f", {spent / GB * budget.money_per_gb:.2f} of {budget.money:.2f} in money"
    return f"the budget of this deployment is spent: {words}; raise it on every host, then reload"
