"""Which budget is in force for reads, and what the error says when it is spent."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from gossipd.daemon.budget_check import BudgetCheck, ReadVerdict
from gossipd.deployment.deployment_record import DeploymentRecord
from gossipd.deployment.ordered_budgets import OrderedBudgets
from gossipd.deployment.progress_record import Budget, HostState, Progress, progress_key
from gossipd.deployment.progress_table import ClusterProgress
from membership.member import NodeId
from tests.gossipd.deployment.scripted_host import ONE, said

OWN, DEPLOYER = NodeId(b"o" * 16), NodeId(b"d" * 16)
KEY = progress_key(ONE.id)


class Host:
    """The check of one host; another has read 100 bytes."""

    def __init__(self, *, configured: int = 0) -> None:
        table, self.ordered = ClusterProgress(), OrderedBudgets()
        self.seeds = frozenset[NodeId]()
        table.record(DEPLOYER, KEY, 1_000, Progress(state=HostState.DOWNLOADING, source_bytes=100), now=0.0)
        self.record = DeploymentRecord(ONE.id, said(), ONE, state=HostState.DOWNLOADING)
        sources = SimpleNamespace(budget_bytes=configured, budget_money=0.0, money_per_gb=0.0)
        self.check = BudgetCheck(
            live=cast(Any, SimpleNamespace(config=SimpleNamespace(sources=sources))), table=table,
            lifecycle=cast(Any, {ONE.id: self.record}), own=OWN, ordered=self.ordered, seeds=lambda: self.seeds,
        )  # fmt: skip


def test_a_budget_that_is_followed_holds_reads_and_says_how_to_raise_it() -> None:
    host = Host()
    assert host.check.judge(ONE.id, [0]) == ReadVerdict()
    host.ordered.take(KEY, Budget(1_000, 100), is_own=False)
    refusal = host.check.judge(ONE.id, [0]).refusal
    assert refusal is not None
    assert "deploy it again with a higher --budget" in refusal.sentence


def test_a_budget_of_the_configuration_is_not_passed_by_an_order() -> None:
    host = Host(configured=50)
    host.ordered.take(KEY, Budget(1_000, 100), is_own=False)
    assert host.check.budget_of(host.record).limit_bytes == 50


def test_reads_that_are_under_way_are_spent_until_they_have_ended() -> None:
    chunk_bytes = ONE.chunk_length(0)
    host = Host(configured=100 + 3 * chunk_bytes)
    host.check.reads_begun(ONE.id, (0, 1))
    assert host.check.judge(ONE.id, [2]) == ReadVerdict()
    host.check.reads_begun(ONE.id, (2,))
    refusal = host.check.judge(ONE.id, [3]).refusal
    assert refusal is not None, "none of them has come, and all are paid"
    host.record.counters.source_bytes += chunk_bytes
    host.check.reads_ended(ONE.id, (1,))
    assert host.check.judge(ONE.id, [3]).refusal is not None, "one has come and is counted"
    host.check.reads_ended(ONE.id, (0,))
    assert host.check.judge(ONE.id, [3]) == ReadVerdict(), "one has failed"
    host.check.reads_ended(ONE.id, (2,))
    assert not host.check.under_way, "nothing is kept of what has ended"


def test_a_read_waits_for_the_words_of_another_seed_and_has_this_host_tell() -> None:
    host = Host(configured=100 + 4 * ONE.chunk_length(0))
    host.seeds = frozenset({OWN, DEPLOYER})
    host.check.reads_begun(ONE.id, (0, 1))
    host.record.changed = False
    assert host.check.judge(ONE.id, [2]) == ReadVerdict(must_wait=True)
    told_at_once = [host.record.changed]  # there is nothing that it could tell yet
    host.record.counters.source_bytes += ONE.chunk_length(0)
    host.check.reads_ended(ONE.id, (0,))
    assert host.check.judge(ONE.id, [2]) == ReadVerdict(must_wait=True)
    assert [*told_at_once, host.record.changed] == [False, True]
    assert host.check.judge(ONE.id, []) == ReadVerdict(), "a probe reads nothing"
    host.seeds = frozenset()
    assert host.check.judge(ONE.id, [2]) == ReadVerdict(), "the other is gone"
