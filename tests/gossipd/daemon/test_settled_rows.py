"""How long the row of a deployment holds in which nothing moves, and that it is the row that would be made now."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from gossipd.api.deployment_row import DeploymentFacts, TargetFacts, deployment_row
from gossipd.api.host_groups import grouped
from gossipd.api.schema import DeploymentRow
from gossipd.core.ids import DeploymentId
from gossipd.core.reasons import HostReason
from gossipd.daemon.settled_rows import KEPT_MAX, SettledRows
from gossipd.deployment.progress_record import HostState, Progress, progress_key
from gossipd.deployment.progress_table import ClusterProgress
from tests.gossipd.api.fake_daemon import TOY, node

FACTS = DeploymentFacts(id=TOY, name="org/toy", version=3, bytes_total=1024, chunk_count=4)
KEY = progress_key(TOY)
COMPLETE = Progress(state=HostState.COMPLETE, chunks_verified=4)
WAITS = Progress(
    state=HostState.DOWNLOADING, chunks_verified=1, reason=HostReason.WAITS_FOR_READER, subject=node(7)[:8]
)


class Cluster:
    """Forty hosts, of which all but the given ones are complete, and the rows of one daemon."""

    def __init__(self, **others: Progress) -> None:
        self.table, self.rows, self.made = ClusterProgress(), SettledRows(), 0
        self.facts, self.state, self.version = FACTS, "alive", 1
        for number in range(40):
            self.tell(number, others.get(f"host_{number}", COMPLETE))

    def tell(self, number: int, progress: Progress, now: float = 100.0) -> None:
        self.version += 1
        self.table.record(node(number), KEY, self.version, progress, now=now)

    def targets(self) -> list[TargetFacts]:
        return [TargetFacts(node(n), f"node-{n}", "r1", self.state if n == 3 else "alive") for n in range(40)]

    def _is_target(self, name: str, rack: str) -> bool:
        self.made += name == "node-0"
        return name != "not-meant"

    def row(self, now: float, *, hosts_max: int = 24) -> DeploymentRow:
        """What a page shows, which must be what it would show if nothing were kept."""
        hosts = self.rows.same(self.targets())
        found = self.rows.row(self.facts, self.table, hosts, self._is_target, hosts_max=hosts_max, now=now)
        whole = deployment_row(self.facts, self.table, self.targets(), now=now)
        assert found == grouped(whole, hosts_max)
        return found

    def row_of(self, name: str, now: float) -> DeploymentRow | None:
        hosts = self.rows.same([*self.targets(), TargetFacts(node(40), "not-meant", "r1", "alive")])
        return self.rows.row_of(name, self.facts, self.table, hosts, self._is_target, now=now)


def test_a_row_is_made_once_while_nobody_tells_anything_else() -> None:
    cluster = Cluster()
    for now in (101.0, 102.0, 500.0):
        assert cluster.row(now).left_out
    assert cluster.made == 1
    cluster.row(501.0, hosts_max=0)
    assert cluster.made == 1, "as many hosts are left out"
    cluster.row(502.0, hosts_max=40)
    assert cluster.made == 2


def test_of_hosts_that_lack_something_the_ages_go_on() -> None:
    cluster = Cluster(host_5=WAITS, host_7=replace(WAITS, reason=HostReason.SOURCE_AUTH, subject=b""))
    ages = [[(host.name, host.reason, host.age_s) for host in cluster.row(now).hosts] for now in (101.0, 160.0)]
    assert ages[0] == [("node-5", "source_auth", 1.0), ("node-7", "source_auth", 1.0)]
    assert ages[1] == [("node-5", "source_auth", 60.0), ("node-7", "source_auth", 60.0)]
    assert cluster.made == 1


@pytest.mark.parametrize("changed", ["word", "facts", "member"])
def test_a_row_is_made_again_when_anything_has_changed(changed: str) -> None:
    cluster = Cluster()
    cluster.row(101.0)
    if changed == "word":
        cluster.tell(9, replace(COMPLETE, state=HostState.REMOVED))
    cluster.facts = replace(FACTS, stall="storage") if changed == "facts" else FACTS
    cluster.state = "dead" if changed == "member" else "alive"
    cluster.row(102.0)
    assert cluster.made == 2


def test_a_row_in_which_bytes_move_is_made_each_time() -> None:
    moves = replace(WAITS, reason=HostReason.NONE, subject=b"", rate_in_bytes_per_s=1 << 20)
    cluster = Cluster(host_5=moves)
    for now in (101.0, 102.0, 103.0):
        assert cluster.row(now).rate_in_bytes_per_s
    assert cluster.made == 3
    cluster.row(1000.0)  # its rate is over
    cluster.tell(5, moves, now=1001.0)
    assert cluster.row(1001.0).rate_in_bytes_per_s, "the same word, and it counts again"


def test_no_more_rows_are_kept_than_there_is_room_for() -> None:
    cluster, hosts = Cluster(), Cluster().targets()
    for number in range(KEPT_MAX + 10):
        facts = replace(FACTS, id=DeploymentId(number.to_bytes(32)))
        cluster.rows.row(facts, cluster.table, hosts[:2], lambda *_: True, hosts_max=1, now=101.0)
    assert len(cluster.rows._settled) == KEPT_MAX


def test_the_row_of_one_host_is_its_row_in_the_whole() -> None:
    cluster = Cluster(host_5=WAITS, host_7=replace(WAITS, reason=HostReason.SOURCE_AUTH, subject=b""))
    for number, now in ((5, 101.0), (9, 160.0), (7, 500.0)):
        whole = deployment_row(FACTS, cluster.table, cluster.targets(), now=now)
        assert cluster.row_of(f"node-{number}", now) == replace(whole, hosts=[whole.hosts[number]])
    assert cluster.made == 1, "of the rest only once"
    stranger = replace(WAITS, subject=node(40)[:8])  # waits for a host that is no target
    cluster.tell(5, stranger, now=501.0)
    whole = deployment_row(FACTS, cluster.table, cluster.targets(), now=501.0)
    assert whole.hosts[5].subject == node(40)[:8].hex()
    assert cluster.row_of("node-5", 501.0) == replace(whole, hosts=[whole.hosts[5]])
    assert cluster.row_of("node-99", 501.0) is None
    assert cluster.row_of("not-meant", 501.0) is None
