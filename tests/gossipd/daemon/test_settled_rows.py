"""How long the row of a deployment holds that is complete everywhere."""

from __future__ import annotations

import msgspec
import pytest
from msgspec.structs import replace

from gossipd.api.deployment_row import DeploymentFacts, TargetFacts
from gossipd.api.schema import DeploymentRow
from gossipd.core.ids import DeploymentId
from gossipd.daemon.settled_rows import KEPT_MAX, SettledRows
from tests.gossipd.api.fake_daemon import TOY, node
from tests.gossipd.cli.large_clusters import deployment, host

FACTS = DeploymentFacts(id=TOY, name="org/toy", version=3, bytes_total=1024, chunk_count=4)


class Made:
    """Rows that are counted."""

    def __init__(self, *hosts: object, rate: int = 0) -> None:
        whole = list(hosts) or [host(number) for number in range(40)]
        self.count, self._row = 0, msgspec.convert(deployment(whole, rate_in_bytes_per_s=rate), DeploymentRow)

    def __call__(self) -> DeploymentRow:
        self.count += 1
        return self._row


def targets(state: str = "alive") -> list[TargetFacts]:
    return [TargetFacts(node(number), f"node-{number}", "r1", state) for number in range(40)]


def test_a_row_is_made_once_while_nobody_tells_anything_else() -> None:
    rows, made = SettledRows(), Made()
    for _ in range(3):
        hosts = rows.same(targets())
        assert rows.row(FACTS, hosts, 7, made, hosts_max=24).left_out
    assert made.count == 1


@pytest.mark.parametrize("changed", ["revision", "facts", "hosts"])
def test_a_row_is_made_again_when_anything_has_changed(changed: str) -> None:
    rows, made = SettledRows(), Made()
    rows.row(FACTS, rows.same(targets()), 7, made, hosts_max=24)
    facts = replace(FACTS, stall="storage") if changed == "facts" else FACTS
    hosts = rows.same(targets("dead" if changed == "hosts" else "alive"))
    rows.row(facts, hosts, 8 if changed == "revision" else 7, made, hosts_max=24)
    assert made.count == 2


@pytest.mark.parametrize(
    "made", [Made(*(host(number, state="downloading" if number == 5 else "complete") for number in range(40))),
             Made(rate=1 << 20), Made(host(1))],
)  # fmt: skip
def test_a_row_that_time_changes_is_made_each_time(made: Made) -> None:
    rows = SettledRows()
    hosts = rows.same(targets())
    for _ in range(3):
        rows.row(FACTS, hosts, 7, made, hosts_max=24)
    assert made.count == 3


def test_no_more_rows_are_kept_than_there_is_room_for() -> None:
    rows, hosts = SettledRows(), targets()
    for number in range(KEPT_MAX + 10):
        rows.row(replace(FACTS, id=DeploymentId(number.to_bytes(32))), hosts, 7, Made(), hosts_max=24)
    assert len(rows._settled) == KEPT_MAX
