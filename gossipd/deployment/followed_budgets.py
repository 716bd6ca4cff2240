"""Which budgets that other hosts tell of are followed here.

What lives here: judging them, when one is heard and when the right to give it may have changed. What does not: what is
told (``progress_table``), the orders that count (``ordered_budgets``), and whether a read fits (``source_budget``).

A host or client is followed that may cancel the deployment, because a budget of one byte does the same. What the
telling host has not ordered itself is signed by the one that has (``signed_budget``). That may be known only
later: after the manifest, after the statement that deployed it first, after a reload. What is followed once stays,
whatever becomes of that right, unless it comes out that another has deployed it.
"""

from __future__ import annotations

from gossipd.core.ids import DeploymentId
from gossipd.deployment.context import BrainContext
from gossipd.deployment.deployment_table import DeploymentTable
from gossipd.deployment.progress_record import Budget, progress_key
from gossipd.deployment.signed_budget import has_its_signature
from membership.member import NodeId


class FollowedBudgets:
    """One per brain."""

    def __init__(self, context: BrainContext, lifecycle: DeploymentTable) -> None:
        self._context = context
        self._lifecycle = lifecycle
        self._judged_revision = -1

    def heard(self, key: bytes) -> None:
        """A host has told a budget of the deployment with this key of progress records."""
        deployment = self._lifecycle.id_with_key(key)
        if deployment is None:
            return
        authors = self._context.statements.authors(deployment)
        for node, told in self._context.progress.budgets(key).items():
            signer = self._signer(node, told)
            if signer is None or not self._context.budgets.is_news(key, told):
                continue
            if not self._context.roster.may_cancel(signer, authors):
                continue
            if told.signer and not has_its_signature(told, deployment):
                self._context.progress.budget_refused(node, key)
                continue
            self._context.budgets.take(key, told, is_own=False)

    def _signer(self, node: NodeId, told: Budget) -> bytes | None:
        """Who ordered it, of those that may order anything: the host that tells it, or another member or a client."""
        if not told.signer:
            return self._context.roster.key_of(node)
        return told.signer if told.signer in self._context.roster.signers else None

    def deployer_changed(self, deployment: DeploymentId) -> None:
        """What was followed of one that may no longer cancel is followed no longer; the others' is judged again."""
        key, authors = progress_key(deployment), self._context.statements.authors(deployment)
        budgets = self._context.budgets
        known = budgets.latest.get(key)
        if known is None or key in budgets.own:
            return
        if not known.signer or not self._context.roster.may_cancel(known.signer, authors):
            budgets.drop(key)
            self.heard(key)

    def judge_again(self) -> None:
        """The operator has had the configuration read again."""
        for key in self._context.progress.keys_with_budgets():
            self.heard(key)

    def settle(self) -> None:
        """After each event: more may be known of who published or deployed."""
        revision = self._context.statements.revision
        if revision != self._judged_revision:
            self._judged_revision = revision
            self.judge_again()
