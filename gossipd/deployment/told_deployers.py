"""Who deployed what, as other hosts tell it with their progress, and what is undone when that comes late.

What lives here: taking in what is told, in any order with the words that it is about. What does not: what it changes
(``deployer``), and the record that tells it (``progress_record``).

A word that stops a deployment may come to a host before it hears that its signer has not deployed that, or not alone:
the host then deploys it again. Every member may say that at any time, so nobody gets a power by it. Only a model that
was accepted here within a day comes back so: evidence travels within minutes, and what was stopped long ago stays so.
"""

from __future__ import annotations

from gossipd.core.ids import DeploymentId, short
from gossipd.deployment.context import BrainContext
from gossipd.deployment.deployer import Deployer
from gossipd.deployment.deployment_table import DeploymentTable
from gossipd.deployment.dissemination import Dissemination
from gossipd.deployment.followed_budgets import FollowedBudgets
from gossipd.deployment.progress_record import progress_key
from gossipd.deployment.restored_versions import RestoredVersions
from gossipd.deployment.statement import Statement, Verb
from gossipd.manifest.errors import ManifestError
from membership.member import NodeId

UNDONE_WITHIN_S = 24 * 3600


class ToldDeployers:
    """One per brain."""

    def __init__(
        self,
        context: BrainContext,
        lifecycle: DeploymentTable,
        restored: RestoredVersions,
        dissemination: Dissemination,
        budgets: FollowedBudgets,
    ) -> None:
        self._context = context
        self._lifecycle = lifecycle
        self._restored = restored
        self._dissemination = dissemination
        self._budgets = budgets
        self._seen: dict[DeploymentId, Deployer] = dict(context.statements.state.deployers)
        self._seen_revision = context.statements.revision

    def heard(self, node: NodeId, key: bytes) -> None:
        """A host tells who deployed what has this key of progress records."""
        deployment = self._lifecycle.id_with_key(key) or self._restored.id_with_key(key)
        if deployment is not None:
            self._context.note_told_deployer(deployment, node)

    def settle(self, wall_s: float) -> None:
        """After each event: words were believed, or more is known of who said the first."""
        statements = self._context.statements
        if statements.revision == self._seen_revision:
            return
        for deployment in list(statements.state.deployers):
            if deployment not in self._seen:
                for node in self._context.progress.everybody(progress_key(deployment)):
                    self._context.note_told_deployer(deployment, node)
        before, self._seen = self._seen, dict(statements.state.deployers)
        self._seen_revision = statements.revision
        for deployment, deployer in self._seen.items():
            if before.get(deployment) != deployer:
                self._changed(deployment, deployer, wall_s)
                if deployment in before:
                    self._budgets.deployer_changed(deployment)

    def _changed(self, deployment: DeploymentId, deployer: Deployer, wall_s: float) -> None:
        record = self._lifecycle.get(deployment)
        if record is not None:
            record.changed = True
        if deployer.is_contested:
            label = "" if record is None else record.label
            self._context.audit("deployed by several", label=label, deployment=deployment.hex())
        last = self._context.statements.statement(deployment)
        if last is None or last.verb is not Verb.DEPLOY:
            self._context.judge_statements()  # a stop that its deployer has said counts now
        if last is not None and last.verb is not Verb.DEPLOY and self._is_undone(last, wall_s):
            try:
                self._dissemination.deploy_again(last, wall_s)
            except ManifestError as error:
                self._context.warning("a stop cannot be undone", deployment=short(deployment), code=error.code)

    def _is_undone(self, stop: Statement, wall_s: float) -> bool:
        """Whether its signer may not say it, by what is known now."""
        statements, deployment = self._context.statements, stop.deployment
        accepted = statements.accepted(deployment)
        if accepted is None:
            return False
        # Where nobody knows when it was accepted, the stop's own time says whether that was long ago.
        if abs(wall_s - (accepted.accepted_s or stop.issued_s)) > UNDONE_WITHIN_S:
            return False
        may_stop = self._context.roster.may_cancel(stop.signer, statements.authors(deployment))
        return not (may_stop or statements.is_superseded(deployment))
