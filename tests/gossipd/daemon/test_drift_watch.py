"""A difference between hosts becomes an alarm when it lasts longer than a rotation or an upgrade takes."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

from gossipd.api.schema import MemberRow
from gossipd.daemon.alarms import Alarms
from gossipd.daemon.drift_watch import LASTS_S, VERSION_LASTS_S, DriftWatch

ALL = ("version", "trust", "clients", "cluster_key", "encryption", "settings")


class Silent:
    def record(self, kind: str, **fields: object) -> None:
        """See AuditLog."""


def member(name: str, *, state: str = "alive", version: str = "0.2.0", **prints: str) -> MemberRow:
    told = dict.fromkeys(("trust", "clients", "cluster_key", "encryption", "settings"), "aaaa") | prints
    return MemberRow(name=name, rack="r", address="a:1", state=state, seed=False, version=version, prints=told)


@dataclass
class Cluster:
    """Its hosts, and the watch of one."""

    hosts: list[MemberRow]
    wanted: tuple[str, ...] = ALL
    alarms: Alarms = field(default_factory=lambda: Alarms(cast(Any, Silent())))

    def __post_init__(self) -> None:
        live = SimpleNamespace(config=SimpleNamespace(status=SimpleNamespace(drift_alarm=self.wanted)))
        self.watch = DriftWatch(self, cast(Any, live), self.alarms)

    def members(self) -> list[MemberRow]:
        return self.hosts

    def told(self, now: float) -> list[str]:
        self.watch.look(now)
        return [row.sentence for row in self.alarms.rows.values()]


def test_made_up_members_are_no_difference_however_long_they_are_there() -> None:
    made_up = [member(f"nobody-{n}", trust="bbbb", state="unheard") for n in range(9)]
    cluster = Cluster([member("h1"), *made_up])
    assert cluster.told(0.0) == cluster.told(VERSION_LASTS_S) == []


def test_a_difference_that_lasts_names_the_smaller_group() -> None:
    cluster = Cluster([member(f"h{n}") for n in range(5)] + [member("odd", trust="bbbb")])
    assert cluster.told(0.0) == []
    assert cluster.told(LASTS_S - 1) == []
    [sentence] = cluster.told(LASTS_S)
    assert "trust: odd has bbbb (publishers' keys, security.trust and trust_names)" in sentence
    assert cluster.told(LASTS_S + 60) == [sentence], "one alarm, however often it is seen"


def test_it_ends_when_the_hosts_agree_and_begins_to_count_again() -> None:
    cluster = Cluster([member("a"), member("b"), member("odd", clients="bbbb")])
    cluster.told(0.0)
    assert cluster.told(LASTS_S)
    cluster.hosts[2] = member("odd")
    assert cluster.told(LASTS_S + 60) == []
    cluster.hosts[2] = member("odd", clients="cccc")
    assert cluster.told(LASTS_S + 120) == []
    assert cluster.told(2 * LASTS_S + 120)


def test_an_upgrade_has_a_day() -> None:
    cluster = Cluster([member("a"), member("b"), member("old", version="0.1.0")])
    cluster.told(0.0)
    assert cluster.told(VERSION_LASTS_S - 1) == []
    assert "version: old has 0.1.0" in cluster.told(VERSION_LASTS_S)[0]


def test_dead_hosts_and_those_that_tell_nothing_do_not_differ() -> None:
    silent = MemberRow(name="first", rack="r", address="a:1", state="alive", seed=False, version="0.2.0")
    cluster = Cluster([member("a"), member("b"), member("gone", state="dead", trust="bbbb"), silent])
    cluster.told(0.0)
    assert cluster.told(1e9) == []


def test_only_what_the_settings_name_raises_it() -> None:
    cluster = Cluster([member("a"), member("b"), member("odd", settings="bbbb", trust="cccc")], wanted=("settings",))
    cluster.told(0.0)
    [sentence] = cluster.told(LASTS_S)
    assert "settings: odd" in sentence
    assert "trust" not in sentence
    quiet = Cluster([member("a"), member("odd", settings="bbbb")], wanted=())
    quiet.told(0.0)
    assert quiet.told(LASTS_S) == []


def test_of_many_hosts_some_are_named_and_the_rest_counted() -> None:
    hosts = [member(f"h{n:02d}") for n in range(20)] + [member(f"x{n}", encryption="bbbb") for n in range(8)]
    cluster = Cluster(hosts)
    cluster.told(0.0)
    assert "x0, x1, x2, x3, x4 and 3 more have bbbb" in cluster.told(LASTS_S)[0]
