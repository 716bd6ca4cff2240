"""What ``gossipd trigger`` asks of this node and orders it to do: the body of ``control.trigger_server.TriggerHost``.

What lives here: the last statement as a reply, and an order passed on. What does not: the conversation (the trigger
server), and what an order does (``deployment.orders``). A statement is believed for its signature; the server has
checked that it is its sender's own.
"""

from __future__ import annotations

from msgspec import Struct

from gossipd.control.authenticator import Identity
from gossipd.core.ids import DeploymentId
from gossipd.daemon.budget_orders import BudgetOrders
from gossipd.daemon.deployment_driver import DeploymentDriver
from gossipd.deployment.deployment_table import DeploymentTable
from gossipd.deployment.progress_record import Budget
from gossipd.deployment.statement import Statement
from gossipd.deployment.statement_store import StatementStore
from gossipd.wire import control


class Triggers(Struct, kw_only=True, eq=False):
    """The body of ``TriggerHost``, which says what each method does."""

    statements: StatementStore
    lifecycle: DeploymentTable
    driver: DeploymentDriver
    budgets: BudgetOrders

    def trigger_state(self, deployment: DeploymentId | None, model: str) -> control.TriggerState:
        if deployment is None:
            name, _, version = model.rpartition("@")
            found = self.lifecycle.find(name, int(version)) if version.isdecimal() else []
            if not found:
                return control.TriggerState(b"", 0, "", 0, "E_NOT_FOUND", f"no deployment {model} is known here")
            deployment = found[0].id
        last = self.statements.statement(deployment)
        manifest = self.lifecycle.manifest_of(deployment)
        epoch, verb = (last.epoch, last.verb.name.lower()) if last is not None else (0, "")
        return control.TriggerState(
            deployment, epoch, verb, len(manifest.envelope) if manifest is not None else 0,
            budget_ms=self.budgets.next_ms(deployment),
        )  # fmt: skip

    async def trigger_order(
        self, identity: Identity, statement: Statement, envelope: bytes | None, budget: Budget | None
    ) -> tuple[str, bool]:  # fmt: skip
        if budget is None:
            answer = await self.driver.trigger(statement, envelope)
            return answer.sentence, not answer.is_changed
        manifest = await self.budgets.judged_order(statement.deployment, envelope, budget)
        async with self.budgets.with_deployment(manifest, budget):
            answer = await self.driver.trigger(statement, envelope)
        return f"{answer.sentence}, with this budget", False
