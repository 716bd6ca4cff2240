"""In what hosts differ, by values."""

from __future__ import annotations

from typing import Any

from gossipd.cli.layout import laid_out
from gossipd.cli.members import drift_lines
from gossipd.diagnosis.drift import ASPECTS, HostGroup, compare, hosts_apart


def member(number: int, **more: Any) -> dict[str, Any]:
    prints = {"trust": "aa", "clients": "bb", "cluster_key": "cc", "encryption": "dd", "settings": "ee"}
    row = {"name": f"n{number}", "state": "alive", "version": "0.2", "clock_ahead_s": 0.3, "prints": prints}
    return row | more


def with_print(number: int, name: str, value: str) -> dict[str, Any]:
    return member(number, prints={**member(number)["prints"], name: value})


def apart(*members: dict[str, Any]) -> list[str]:
    return [one.name for one in compare(members) if one.differs]


def test_hosts_that_say_the_same_differ_in_nothing() -> None:
    found = compare([member(n) for n in range(3)])
    assert [one.name for one in found] == list(ASPECTS)
    assert not any(one.differs for one in found)


def test_what_differs_comes_first_and_the_largest_group_of_it() -> None:
    found = compare([member(0), with_print(1, "cluster_key", "c2"), with_print(2, "cluster_key", "c2")])
    assert found[0].name == "cluster_key"
    assert found[0].groups == (HostGroup("c2", ("n1", "n2")), HostGroup("cc", ("n0",)))


def test_every_aspect_is_noticed() -> None:
    for name in member(0)["prints"]:
        assert apart(member(0), with_print(1, name, "ff")) == [name]
    assert apart(member(0), member(1, version="0.3")) == ["version"]
    assert apart(member(0, clock_ahead_s=None), member(1, clock_ahead_s=-91.0)) == ["clock"]


def test_a_clock_that_is_some_seconds_off_is_not_called_apart() -> None:
    assert apart(member(0, clock_ahead_s=4.0), member(1, clock_ahead_s=-6.0)) == []


def test_hosts_that_are_gone_or_tell_nothing_are_no_difference() -> None:
    old = {"name": "old", "state": "alive", "version": "0.2"}
    gone = member(3, state="dead", version="0.0")
    assert apart(member(0), old, gone, member(4, version="0.0", state="unheard")) == []
    lines = drift_lines(compare([member(0), old, gone]))
    assert compare([member(0), old])[1].fewest.hosts == ("n0",)
    assert lines == [f"the same on all hosts: {', '.join(ASPECTS)}", "not told by old"]


def test_the_page_names_some_hosts_of_each_group() -> None:
    members = [member(n) for n in range(9)] + [with_print(10, "trust", "a2")]
    assert laid_out(drift_lines(compare(members)), None)[:4] == [
        "trust: publishers' keys, `security.trust` and `trust_names`",
        "  VALUE  HOSTS  WHICH",
        "  aa     9      n0, n1, n2, n3, n4 and 4 more",
        "  a2     1      n10",
    ]


def test_hosts_apart_have_other_keys_or_settings_than_the_most() -> None:
    others = [with_print(1, "trust", "a2"), with_print(2, "settings", "e2"), member(3, version="0.1"), member(4)]
    silent, gone = member(5, prints={}), with_print(6, "trust", "a3") | {"state": "dead"}
    assert hosts_apart(compare([member(0), *others, silent, gone])) == {"n1", "n2"}
