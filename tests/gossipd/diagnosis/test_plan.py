"""Who would take a deployment, by values."""

from __future__ import annotations

from typing import Any

from gossipd.diagnosis.plan import PlannedHost, planned_hosts

GIB = 1 << 30
MANIFEST = {"racks": [], "names": [], "bytes_total": 100 * GIB}


def member(number: int, **more: Any) -> dict[str, Any]:
    row = {"name": f"n{number}", "rack": f"r{number % 2}", "state": "alive", "free_bytes": 500 * GIB}
    return {**row, "prints": {"trust": "aa"}, **more}


def planned(*members: dict[str, Any], **held: int) -> list[PlannedHost]:
    return planned_hosts(MANIFEST, members, "n0", held)


def test_hosts_with_room_and_the_same_keys_take_it() -> None:
    assert planned(member(0), member(1)) == [PlannedHost("n0", "r0", (), ()), PlannedHost("n1", "r1", (), ())]


def test_those_that_lack_something_come_first_and_say_what() -> None:
    found = planned(member(0), member(1, free_bytes=GIB), member(2, state="dead"), member(3, prints={"trust": "bb"}))
    assert [(one.name, one.lacks, one.unsure) for one in found[:3]] == [
        ("n1", ("space: 100 GiB needed, 1 GiB free",), ()),
        ("n2", ("is dead",), ()),
        ("n3", (), ("trusts other keys than this host",)),
    ]


def test_what_a_host_holds_already_needs_no_room() -> None:
    assert planned(member(0), member(1, free_bytes=GIB), n1=99 * GIB)[1].lacks == ()


def test_a_host_that_tells_nothing_is_unsure_and_not_refused() -> None:
    old = {"name": "n1", "rack": "r1", "state": "suspect"}
    [found] = [one for one in planned(member(0), old) if one.name == "n1"]
    assert (found.lacks, found.unsure) == ((), ("does not answer", "does not tell which keys it trusts"))


def test_only_targets_are_asked() -> None:
    found = planned_hosts({**MANIFEST, "racks": ["r1"]}, [member(0), member(1), member(2)], "n0", {})
    assert [one.name for one in found] == ["n1"]
