"""Courses of hosts, made of events; by values."""

from __future__ import annotations

from typing import Any

import pytest

from gossipd.diagnosis import host_courses as module
from gossipd.diagnosis.host_courses import PHASES_MAX, HostCourse, HostCourses


def event(second: int, state: str, reason: str = "", *, host: str = "a", deployment: str = "toy@1") -> dict[str, Any]:
    body = {"type": "host-state", "host": host, "deployment": deployment, "state": state, "reason": reason}
    return {"at": f"1970-01-01T00:{second // 60:02}:{second % 60:02}Z", "body": body}


def ended(*told: dict[str, Any]) -> list[HostCourse]:
    found = HostCourses()
    return [one for one in map(found.heard, told) if one is not None]


def test_a_delivery_has_the_time_of_each_state_and_what_hindered_it() -> None:
    [one] = ended(
        event(1, "init"), event(2, "downloading"), event(4, "downloading", "no_space"), event(9, "verifying"),
        event(10, "complete"), event(11, "complete"),
    )  # fmt: skip
    assert (one.host, one.deployment, one.state, one.reason) == ("a", "toy@1", "complete", "")
    assert one.phases == (
        ("init", "", 1.0, 2.0), ("downloading", "", 2.0, 4.0), ("downloading", "no_space", 4.0, 9.0),
        ("verifying", "", 9.0, 10.0),
    )  # fmt: skip


def test_hosts_and_deployments_are_apart_and_other_events_are_no_part_of_any() -> None:
    member = {"at": "1970-01-01T00:00:03Z", "body": {"type": "member", "name": "a", "state": "down"}}
    told = ended(
        event(1, "init"), event(1, "init", host="b"), event(2, "init", deployment="toy@2"), member,
        event(4, "failed", "refused_key", host="b"), event(5, "complete"),
    )  # fmt: skip
    assert [(one.host, one.deployment, one.state, one.reason) for one in told] == [
        ("b", "toy@1", "failed", "refused_key"), ("a", "toy@1", "complete", ""),
    ]  # fmt: skip


def test_a_gap_forgets_what_is_open_and_a_clock_set_back_ends_nothing_early() -> None:
    assert ended(event(1, "init"), {"at": "", "body": {"type": "gap", "after": "1:2"}}, event(9, "complete")) == []
    [one] = ended(event(9, "init"), event(3, "complete"))
    assert one.phases == (("init", "", 9.0, 9.0),)


def test_what_is_kept_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    flapping = [event(at, "downloading", "no_space" if at % 2 else "") for at in range(2 * PHASES_MAX)]
    [one] = ended(*flapping, event(2 * PHASES_MAX, "complete"))
    assert len(one.phases) == PHASES_MAX
    assert one.phases[-1][3] == 2 * PHASES_MAX
    monkeypatch.setattr(module, "OPEN_MAX", 2)
    hosts = [event(1, "init", host=name) for name in "abc"]
    assert [one.host for one in ended(*hosts, *(event(2, "complete", host=name) for name in "abc"))] == ["b", "c"]
