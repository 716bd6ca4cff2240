"""A budget that is ordered with a deployment: whether this host may give it, and keeping it before anything is read.

What lives here: judging and keeping an order. What does not: following that of another host
(``deployment.followed_budgets``), telling it (``progress_publisher``), and what its text means
(``deployment.source_budget``).
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from gossipd.audit.log import AuditLog
from gossipd.core.errors import UsageError
from gossipd.daemon.budget_check import BudgetCheck
from gossipd.daemon.roster import ClusterRoster
from gossipd.daemon.state_dir import StateDirectory
from gossipd.deployment.cluster_clock import ClusterClock
from gossipd.deployment.progress_record import Budget, progress_key
from gossipd.deployment.source_budget import parse_budget
from gossipd.deployment.statement_store import StatementStore
from gossipd.identity.cancel_rights import Authors
from gossipd.manifest.errors import ManifestError
from gossipd.manifest.manifest import Manifest
from gossipd.runtime.worker_threads import run_blocking


@dataclass(frozen=True, slots=True)
class BudgetOrders:
    """One per daemon, on the trio loop."""

    check: BudgetCheck
    roster: ClusterRoster
    statements: StatementStore
    state: StateDirectory
    clock: ClusterClock
    audit: AuditLog

    def judged(self, manifest: Manifest, text: str) -> int:
        """The bytes of a budget that may be given here; 0 takes it away. Raises UsageError; ManifestError
        ``E_MAY_NOT_CANCEL``, ``E_NOT_A_TARGET``: other hosts would not follow, or not hear of it."""
        config = self.check.live.config
        try:
            limit = parse_budget(text, config.sources.money_per_gb)
        except ValueError as error:
            raise UsageError(f"--budget: {error}") from None
        own_key = self.check.live.keys.node.public.ed25519
        authors = self.statements.authors(manifest.id)
        if not self.roster.may_cancel(own_key, Authors(manifest.signer, authors.deployer or own_key)):
            raise ManifestError(
                "this host may not give it a budget: security.may_cancel allows none of its roles; deploy on the host "
                "that deployed it first",
                code="E_MAY_NOT_CANCEL",
            )
        if not manifest.is_target(config.node.name, config.node.rack):
            raise ManifestError("only a target can tell the others of a budget: deploy on one", code="E_NOT_A_TARGET")
        return limit

    @asynccontextmanager
    async def with_deployment(self, manifest: Manifest, limit: int | None) -> AsyncIterator[None]:
        """The budget is in force, and on the disk, before the deployment begins; gone again when it is refused. None:
        nothing was ordered. Raises StateWriteError."""
        if limit is None:
            yield
            return
        ordered, key = self.check.ordered, progress_key(manifest.id)
        before = ordered.snapshot(key)
        known = ordered.latest.get(key)
        now_ms = int(self.clock.true_s(time.time()) * 1000)
        ordered.take(key, Budget(max(now_ms, known.ordered_ms + 1 if known else 1), limit), is_own=True)
        try:
            await run_blocking(self.state.keep_budgets, ordered.to_bytes())
            yield
        except BaseException:
            ordered.restore(key, before)
            raise
        self.audit.record("budget ordered", name=manifest.name, version=manifest.version, bytes_max=limit)
        record = self.check.lifecycle.get(manifest.id)
        if record is not None:
            record.changed = True  # the others hear of it with the next record, which is told at once
