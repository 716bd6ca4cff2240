"""A budget that is ordered with a deployment: whether this host may give it, and keeping it before anything is read.

What lives here: judging and keeping an order, given here or by ``gossipd trigger``. What does not: following that of
another host (``deployment.followed_budgets``), telling it (``progress_publisher``), and what its text means
(``deployment.source_budget``).
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from msgspec import Struct

from gossipd.audit.log import AuditLog
from gossipd.core.errors import UsageError
from gossipd.core.ids import DeploymentId, short
from gossipd.daemon.budget_check import BudgetCheck
from gossipd.daemon.cluster_roster import ClusterRoster
from gossipd.daemon.manifest_judging import judge_by_trust
from gossipd.daemon.state_dir import StateDirectory
from gossipd.deployment.cluster_clock import ClusterClock
from gossipd.deployment.progress_record import Budget, progress_key
from gossipd.deployment.source_budget import parse_budget
from gossipd.deployment.statement_store import StatementStore
from gossipd.identity.cancel_rights import Authors
from gossipd.identity.trust import key_id
from gossipd.manifest.errors import ManifestError
from gossipd.manifest.manifest import Manifest
from gossipd.runtime.worker_threads import run_blocking


class BudgetOrders(Struct, frozen=True):
    """One per daemon, on the trio loop."""

    check: BudgetCheck
    roster: ClusterRoster
    statements: StatementStore
    state: StateDirectory
    clock: ClusterClock
    audit: AuditLog
    tell: Callable[[], None]
    """The records that have changed, to the others, now."""

    def judged(self, manifest: Manifest, text: str) -> Budget:
        """A budget that may be given here; of 0 bytes it takes one away. Raises UsageError; ManifestError as
        ``judged_order``."""
        config = self.check.live.config
        try:
            limit = parse_budget(text, config.sources.money_per_gb)
        except ValueError as error:
            raise UsageError(f"--budget: {error}") from None
        self._check_right(manifest, self.check.live.keys.node.public.ed25519, "this host")
        return Budget(self.next_ms(manifest.id), limit)

    async def judged_order(self, deployment: DeploymentId, envelope: bytes | None, budget: Budget) -> Manifest:
        """What a member or client gives a budget to, whose signature is verified. ``envelope``: if it has sent one.
        Raises ManifestError ``E_MAY_NOT_CANCEL``, ``E_NOT_A_TARGET``: other hosts would not follow, or not hear of it;
        ``E_TRIGGER_FIELD``: its time; ``E_UNKNOWN_MANIFEST``, and what the manifest is refused for."""
        manifest = self.check.lifecycle.manifest_of(deployment)
        if envelope is not None:
            manifest = await judge_by_trust(envelope, self.check.live.trusted())
        if manifest is None:
            raise ManifestError("the manifest of this deployment is not here; send it first", code="E_UNKNOWN_MANIFEST")
        self._check_right(manifest, budget.signer, "this key")
        if not self._last_ms(manifest.id) < budget.ordered_ms <= self.next_ms(manifest.id):
            raise ManifestError("budget: not of the time that this host told; order it again", code="E_TRIGGER_FIELD")
        return manifest

    def next_ms(self, deployment: DeploymentId) -> int:
        """The time that an order has which is given now: later than the last one's."""
        return max(int(self.clock.true_s(time.time()) * 1000), self._last_ms(deployment) + 1)

    def _last_ms(self, deployment: DeploymentId) -> int:
        known = self.check.ordered.latest.get(progress_key(deployment))
        return 0 if known is None else known.ordered_ms

    def _check_right(self, manifest: Manifest, signer: bytes, who: str) -> None:
        config, deployer = self.check.live.config, self.statements.authors(manifest.id).deployer
        if self.statements.deployer(manifest.id) is None:
            deployer = signer
        if not self.roster.may_cancel(signer, Authors(manifest.signer, deployer)):
            raise ManifestError(
                f"{who} may not give it a budget: security.may_cancel allows none of its roles; deploy on the host "
                "that alone has deployed it",
                code="E_MAY_NOT_CANCEL",
            )
        if not manifest.is_target(config.node.name, config.node.rack):
            raise ManifestError("only a target can tell the others of a budget: deploy on one", code="E_NOT_A_TARGET")

    @asynccontextmanager
    async def with_deployment(self, manifest: Manifest, budget: Budget | None) -> AsyncIterator[None]:
        """The budget is in force, and on the disk, before the deployment begins; gone again when it is refused. None:
        nothing was ordered. Raises StateWriteError."""
        if budget is None:
            yield
            return
        ordered, key = self.check.ordered, progress_key(manifest.id)
        before = ordered.snapshot(key)
        ordered.take(key, budget, is_own=True)
        try:
            await run_blocking(self.state.keep_budgets, ordered.to_bytes())
            yield
        except BaseException:
            ordered.restore(key, before)
            raise
        self.audit.record(
            "budget ordered", label=manifest.label, name=manifest.name, version=manifest.version,
            bytes_max=budget.bytes_max, signer=short(key_id(budget.signer)) if budget.signer else "this host",
        )  # fmt: skip
        record = self.check.lifecycle.get(manifest.id)
        if record is not None:
            record.changed = True
            self.tell()  # before seeds, which wait for each other a second or more, begin to read
