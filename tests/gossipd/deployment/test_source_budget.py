"""What a budget allows, by values, and what counts as spent."""

from __future__ import annotations

import pytest

from gossipd.core.ids import DeploymentId
from gossipd.deployment.counters import Counters
from gossipd.deployment.deployment_record import DeploymentRecord
from gossipd.deployment.progress_record import HostState, Progress, progress_key
from gossipd.deployment.progress_table import ClusterProgress
from gossipd.deployment.source_budget import GB, SourceBudget, Spent, parse_budget, spent, why_held
from gossipd.deployment.statement import Statement, Verb
from membership.member import NodeId
from tests.gossipd.manifest.making import manifest

MODEL = DeploymentId(b"m" * 32)
OWN, OTHER = NodeId(b"a" * 16), NodeId(b"b" * 16)


@pytest.mark.parametrize(
    ("budget", "limit"),
    [
        (SourceBudget(), None),
        (SourceBudget(bytes_max=7), 7),
        (SourceBudget(money=5.0), None),
        (SourceBudget(money=5.0, money_per_gb=0.5), 10 * GB),
        (SourceBudget(3 * GB, 5.0, 0.5), 3 * GB),
        (SourceBudget(30 * GB, 5.0, 0.5), 10 * GB),
        (SourceBudget(30 * GB, 5.0, 0.5, ordered_bytes=GB), GB),
        (SourceBudget(ordered_bytes=GB), GB),
        (SourceBudget(7, ordered_bytes=GB), 7),
    ],
)
def test_the_lower_of_bytes_and_money_counts(budget: SourceBudget, limit: int | None) -> None:
    assert budget.limit_bytes == limit


def test_a_read_that_does_not_fit_is_held_and_says_what_is_spent() -> None:
    assert why_held(SourceBudget(), 10**15, 1) is None
    assert why_held(SourceBudget(bytes_max=100), 90, 10) is None
    assert "90 B of 100 B are read; raise it" in (why_held(SourceBudget(bytes_max=100), 90, 11) or "")
    assert "4.90 of 5.00 in money" in (why_held(SourceBudget(money=5.0, money_per_gb=0.5), 9_800_000_000, GB) or "")


def test_a_budget_that_came_with_a_deployment_is_raised_by_deploying_it() -> None:
    said = why_held(SourceBudget(money=5.0, money_per_gb=0.5, ordered_bytes=100), 90, 11) or ""
    assert "90 B of 100 B are read; deploy it again with a higher --budget" in said


@pytest.mark.parametrize(
    ("text", "price", "limit"),
    [
        ("600GB", 0.0, 600 * GB),
        ("1TiB", 0.1, 1 << 40),
        ("50", 0.5, 100 * GB),
        (" 12.50 ", 0.1, 125 * GB),
        ("none", 0.0, 0),
    ],
)
def test_a_budget_is_bytes_with_a_unit_and_money_without(text: str, price: float, limit: int) -> None:
    assert parse_budget(text, price) == limit


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("50", "no sources.money_per_gb"), ("much", "nor an amount of money such as 50, nor none"),
        ("0GB", "not between"), ("900TiB", "not between"),
        ("", "is not a size"), ("-5", "is not a size"), ("\u0665", "is not a size"),
    ],
)  # fmt: skip
def test_what_is_no_budget_is_refused_in_words(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        parse_budget(text, 0.0)


def test_all_hosts_and_what_this_one_read_since_it_told_are_spent() -> None:
    table = ClusterProgress()
    said = Statement(MODEL, 1, Verb.DEPLOY, 10, 0, b"s" * 32, b"")
    record = DeploymentRecord(MODEL, said, counters=Counters(source_bytes=50))
    assert spent(table, record, OWN).total_bytes == 50
    for node, bytes_read in ((OWN, 30), (OTHER, 400)):
        told = Progress(state=HostState.DOWNLOADING, source_bytes=bytes_read)
        table.record(node, progress_key(MODEL), 1, told, now=0.0)
    assert spent(table, record, OWN).total_bytes == 450
    table.forget(OTHER)
    assert spent(table, record, OWN).total_bytes == 450, "what a host has read that is gone is paid, too"
    record.counters.source_bytes = 10
    assert spent(table, record, OWN).total_bytes == 430, "counters of an earlier run"


def test_one_host_cannot_say_away_more_of_a_budget_than_a_copy() -> None:
    model, table = manifest(), ClusterProgress()
    size, key = model.bytes_total, progress_key(model.id)
    said = Statement(model.id, 1, Verb.DEPLOY, 10, 0, b"s" * 32, b"")
    record = DeploymentRecord(model.id, said, manifest=model, counters=Counters(source_bytes=3 * size))
    told = Progress(state=HostState.DOWNLOADING, source_bytes=1 << 50)
    table.record(OTHER, key, 1, told, now=0.0, is_signed=True)
    assert spent(table, record, OWN).total_bytes == 4 * size, "what this host has read counts in full"
    assert why_held(SourceBudget(bytes_max=5 * size), spent(table, record, OWN).total_bytes, size) is None
    table.record(OTHER, key, 2, Progress(state=HostState.DOWNLOADING, source_bytes=size // 2), now=1.0, is_signed=True)
    assert spent(table, record, OWN).total_bytes == 4 * size, "a counter never falls"
    table.record(OWN, key, 1, Progress(state=HostState.COMPLETE, source_bytes=3 * size), now=2.0)
    assert spent(table, record, OWN).total_bytes == pytest.approx(4 * size, rel=1e-6)


def test_a_read_waits_where_it_would_not_fit_if_others_had_read_as_much() -> None:
    burst = Spent(told_bytes=100, since_bytes=10, under_way_bytes=20)
    assert not burst.must_wait(limit_bytes=200, wanted_bytes=20, readers=2)
    assert burst.must_wait(limit_bytes=200, wanted_bytes=21, readers=2)
    assert not burst.must_wait(limit_bytes=200, wanted_bytes=70, readers=1), "there is nobody to wait for"
    assert not Spent(told_bytes=190, since_bytes=0).must_wait(limit_bytes=200, wanted_bytes=10, readers=9), (
        "all know what it has read"
    )


def test_members_who_all_say_that_they_are_seeds_slow_no_read_down() -> None:
    assert not Spent(0, 1, 0).must_wait(limit_bytes=64 * 11, wanted_bytes=10, readers=100_000)
