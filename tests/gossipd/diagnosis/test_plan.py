"""Who would take a deployment, by values."""

from __future__ import annotations

from typing import Any

from gossipd.diagnosis.plan import Plan, PlannedHost, plan, planned_hosts

GIB = 1 << 30
MANIFEST = {"racks": [], "names": [], "bytes_total": 100 * GIB}


def member(number: int, **more: Any) -> dict[str, Any]:
    row = {"name": f"n{number}", "rack": f"r{number % 2}", "state": "alive", "free_bytes": 500 * GIB}
    return {**row, "prints": {"trust": "aa"}, **more}


COSTS = {"distinct_bytes": 80 * GIB, "reused_bytes": 30 * GIB, "reused": {"n1": 30 * GIB}}


def planned(*members: dict[str, Any], **held: int) -> list[PlannedHost]:
    return planned_hosts(MANIFEST, {**COSTS, "reused": {}}, members, "n0", held)


def test_hosts_with_room_and_the_same_keys_take_it() -> None:
    [one, two] = planned(member(0), member(1))
    assert one == PlannedHost("n0", "r0", (), (), fetched_bytes=80 * GIB, room_bytes=100 * GIB)
    assert (two.name, two.lacks, two.unsure) == ("n1", (), ())


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
    found = planned_hosts({**MANIFEST, "racks": ["r1"]}, COSTS, [member(0), member(1), member(2)], "n0", {})
    assert [one.name for one in found] == ["n1"]


def made(*members: dict[str, Any], known: list[dict[str, Any]] | None = None, costs: dict[str, Any] = COSTS) -> Plan:
    row = {**MANIFEST, "id": "aa", "chunk_bytes": GIB}
    page = {"node": {"name": "n0"}, "members": members, "deployments": known or []}
    return plan({"manifest": row, "costs": costs}, page, link=GIB, external=GIB / 2)


def told(chunks: int, complete: int = 0) -> dict[str, Any]:
    return {"id": "aa", "hosts_complete": complete, "hosts": [{"name": "n0", "chunks_verified": chunks}]}


def test_equal_chunks_and_those_of_other_models_are_neither_read_nor_fetched() -> None:
    found = made(member(0), member(1))
    assert [host.fetched_bytes // GIB for host in found.hosts] == [80, 50]
    assert [host.room_bytes // GIB for host in found.hosts] == [100, 100]
    assert (found.external_bytes, found.seconds_least) == (50 * GIB, 100.0)
    assert found.limiting_resource == "storage"


def test_what_a_host_has_of_it_is_not_read_again_and_nothing_is_once_one_is_complete() -> None:
    assert made(member(0), member(1), known=[told(60)]).external_bytes == 20 * GIB
    found = made(member(0), member(1), known=[told(100, 1)])
    assert (found.external_bytes, found.seconds_least, found.limiting_resource) == (0, 50.0, "a host's downlink")


def test_a_plan_in_which_nothing_is_fetched_has_no_time() -> None:
    everything = {**COSTS, "reused": {"n0": 80 * GIB}}
    for found in (made(member(0), costs=everything), made(member(0, state="dead")), made()):
        assert (found.external_bytes, found.seconds_least, found.limiting_resource) == (0, None, None)


def test_a_daemon_from_before_an_upgrade_tells_no_costs_and_all_bytes_count() -> None:
    row = {**MANIFEST, "id": "aa", "chunk_bytes": GIB}
    page = {"node": {"name": "n0"}, "members": [member(0), member(1)], "deployments": []}
    assert plan({"manifest": row}, page, link=GIB, external=GIB).external_bytes == 100 * GIB
