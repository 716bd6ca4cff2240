"""Whose budget a host follows, and what then is in force."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from gossipd.daemon.budget_check import BudgetCheck
from gossipd.deployment.deployment_record import DeploymentRecord
from gossipd.deployment.ordered_budgets import OrderedBudgets
from gossipd.deployment.progress_record import Budget, HostState, Progress, progress_key
from gossipd.deployment.progress_table import ClusterProgress
from gossipd.identity.cancel_rights import Authors, may_cancel
from membership.member import NodeId
from tests.gossipd.deployment.scripted_host import ONE, said

OWN, DEPLOYER, OTHER, GONE = (NodeId(letter * 16) for letter in (b"o", b"d", b"x", b"g"))
KEY = progress_key(ONE.id)


class Host:
    """The check of one host, of whose cluster node ``DEPLOYER`` has deployed the model first."""

    def __init__(self, *, configured: int = 0) -> None:
        self.table, self.ordered = ClusterProgress(), OrderedBudgets()
        self.record = DeploymentRecord(ONE.id, said(), ONE, state=HostState.DOWNLOADING)
        sources = SimpleNamespace(budget_bytes=configured, budget_money=0.0, money_per_gb=0.0)
        directory = SimpleNamespace(
            own=OWN, record=lambda node: None if node == GONE else SimpleNamespace(public_key=bytes(node) * 2)
        )
        rights = SimpleNamespace(
            may_cancel=lambda key, authors: may_cancel(key, authors, roles=("deployer",), is_client=False)
        )
        self.check = BudgetCheck(
            live=cast(Any, SimpleNamespace(config=SimpleNamespace(sources=sources))), table=self.table,
            lifecycle=cast(Any, {ONE.id: self.record}), directory=cast(Any, directory), roster=cast(Any, rights),
            statements=cast(Any, SimpleNamespace(authors=lambda _: Authors(b"", bytes(DEPLOYER) * 2))),
            ordered=self.ordered,
        )  # fmt: skip

    def hear(self, node: NodeId, budget: Budget, *, version: int = 1000) -> None:
        told = Progress(state=HostState.DOWNLOADING, source_bytes=100, budget=budget)
        self.table.record(node, KEY, version, told, now=0.0, is_signed=True)

    @property
    def limit_bytes(self) -> int | None:
        return self.check.budget_of(self.record).limit_bytes


def test_the_budget_of_the_host_that_deployed_it_holds_reads() -> None:
    host = Host()
    assert host.check.refusal(ONE.id, [0]) is None
    host.hear(DEPLOYER, Budget(1000, 100))
    refusal = host.check.refusal(ONE.id, [0])
    assert refusal is not None
    assert "deploy it again with a higher --budget" in refusal.sentence


@pytest.mark.parametrize("node", [OTHER, GONE, OWN])
def test_no_other_host_may_hold_or_free_the_reads_of_all(node: NodeId) -> None:
    host = Host()
    host.hear(node, Budget(1000, 1))
    assert host.limit_bytes is None
    host.hear(DEPLOYER, Budget(900, 100))
    assert host.limit_bytes == 100


def test_a_budget_stays_when_nobody_tells_it_any_more() -> None:
    host = Host()
    host.hear(DEPLOYER, Budget(1000, 100))
    assert host.limit_bytes == 100
    host.table.drop(KEY)
    assert host.limit_bytes == 100
    host.hear(DEPLOYER, Budget(1001, 0), version=1001)
    assert host.limit_bytes is None


def test_a_budget_of_the_configuration_is_not_passed_by_an_order() -> None:
    host = Host(configured=50)
    host.hear(DEPLOYER, Budget(1000, 100))
    assert host.limit_bytes == 50
