"""What is passed on to a daemon, and how often: over a real unix socket."""

from __future__ import annotations

import json
import threading
from base64 import b64encode
from dataclasses import asdict
from pathlib import Path

import pytest

from gossipd.diagnosis.fluid_bound import fluid_bound
from gossipd.diagnosis.report import GB
from gossipd.web.forwarding import BOUND_LASTS, KEPT_MAX, KEPT_S, Forwarder, is_question
from tests.gossipd.diagnosis.test_report import report
from tests.gossipd.web.unix_daemon import answers_about, status_of, unix_daemon, without_complete


@pytest.mark.parametrize(
    "target",
    [
        "/v1/status", "/v1/members", "/v1/peers", "/v1/models", "/v1/models?name=org/toy", "/page/status",
        "/page/status?name=org/toy&version=3", "/page/status?host=gpu-1.dc",
        "/v1/status?name=org/toy&version=3", "/v1/deployments/org/toy/3", "/v1/deployments/toy/0",
        "/page/report?name=org/toy&version=3",
        "/page/bound?name=org/toy&version=3",
        "/page/bound?name=org/toy&version=3&host=gpu-1.dc",
        "/v1/sketch?name=org/toy&version=3",
        "/v1/sketch?name=org/toy&version=3&host=gpu-1.dc",
        "/v1/sketch?name=org/toy&version=3&host=gpu-1.dc&bins=256",
    ],
)  # fmt: skip
def test_questions_of_the_page_are_passed_on(target: str) -> None:
    assert is_question(target)


@pytest.mark.parametrize(
    "target",
    [
        "/v1/cancel", "/v1/verify", "/v1/rm?name=a", "/metrics", "/healthz", "/v1/status/", "//v1/status", "/V1/status",
        "/v1/status?other=1", "/v1/status?name=a&name=b", "/v1/status?name=a%0d", "/v1/status#x",
        "/v1/deployments/../1", "/page/report", "/page/report?name=a", "/page/report?name=../a&version=1",
        "/v1/deployments/a/../../rm/1", "/v1/deployments/a/b/c/1", "/v1/deployments/a/1?x", "/v1/status\r\nX: y",
        "/v1/sketch?name=a", "/v1/sketch?name=a&version=1&host=b/c", "/v1/sketch?name=a&host=b",
        "/page/status?name=a", "/page/status?host=b/c", "/page/status?host=a&name=b", "/page/status?hosts_max=0",
        "/v1/sketch?name=a&version=1&bins=256", "/v1/sketch?name=a&version=1&host=b&bins=9",
        "http://other/v1/status", "/v1/deployments/%2e%2e/1", "/v1/members\n", "/v1/deployments/a/\u0661",
    ],
)  # fmt: skip
def test_nothing_else_is_passed_on(target: str) -> None:
    assert not is_question(target)


def test_many_who_ask_within_a_second_cost_the_daemon_one_question(tmp_path: Path) -> None:
    with unix_daemon(tmp_path / "s", {"/v1/status": {"members": []}}) as daemon:
        forwarder = Forwarder(tmp_path / "s", kept_s=60)
        threads = [threading.Thread(target=forwarder.ask, args=("/v1/status",)) for _ in range(10)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert daemon.asked == ["/v1/status"]


def test_kept_answers_are_bounded(tmp_path: Path) -> None:
    with unix_daemon(tmp_path / "s", {}) as daemon:
        forwarder = Forwarder(tmp_path / "s", kept_s=60)
        for number in range(KEPT_MAX + 1):
            forwarder.ask(f"/v1/deployments/a/{number}")
        forwarder.ask("/v1/deployments/a/0")
        assert daemon.asked.count("/v1/deployments/a/0") == 2


def test_a_refusal_of_the_daemon_is_passed_on_as_it_is(tmp_path: Path) -> None:
    with unix_daemon(tmp_path / "s", {}):
        found = Forwarder(tmp_path / "s").ask("/v1/deployments/a/1")
        assert found.status == 404
        assert json.loads(found.body)["error"]["code"] == "E_NOT_FOUND"


def test_without_a_daemon_the_answer_says_so(tmp_path: Path) -> None:
    found = Forwarder(tmp_path / "s").ask("/page/status")
    assert found.status == 502
    assert json.loads(found.body)["error"]["code"] == "E_DAEMON_UNREACHABLE"


@pytest.mark.parametrize("said", [[], {"members": 3}, {"members": [3]}, {}])
def test_what_is_no_status_is_refused_with_a_sentence(tmp_path: Path, said: object) -> None:
    with unix_daemon(tmp_path / "s", {"/v1/status?hosts_max=0": said}):
        found = Forwarder(tmp_path / "s").ask("/page/status")
        assert (found.status, json.loads(found.body)["error"]["code"]) == (502, "E_DAEMON_UNREACHABLE")


def test_the_status_of_a_thousand_hosts_is_under_40_kb(tmp_path: Path) -> None:
    whole = status_of(1000, 20)
    name, version = whole["deployments"][0]["name"], whole["deployments"][0]["version"]
    with unix_daemon(tmp_path / "s", answers_about(whole)):
        found = Forwarder(tmp_path / "s").ask(f"/page/status?name={name}&version={version}")
        print(f"{len(found.packed)} bytes compressed, {len(found.body)} plain")
        assert len(found.packed) < 40_000
        assert len(json.loads(found.body)["members"]) == 1000
        assert json.loads(found.body)["deployments"] == whole["deployments"]


def test_only_the_deployment_that_is_looked_at_has_its_hosts(tmp_path: Path) -> None:
    [first] = (whole := status_of(4, 2))["deployments"]
    second = first | {"id": "cd" * 32, "name": "other"}
    few = [without_complete(first), without_complete(second)]
    with unix_daemon(tmp_path / "s", answers_about(whole | {"deployments": [first, second]})) as daemon:
        forwarder = Forwarder(tmp_path / "s", kept_s=60)
        assert json.loads(forwarder.ask("/page/status").body)["deployments"] == few
        told = json.loads(forwarder.ask("/page/status?name=other&version=3").body)["deployments"]
        assert told == [few[0], second]
        gone = json.loads(forwarder.ask("/page/status?name=gone&version=1").body)["deployments"]
        assert gone == few, "a page of what is not known shows the others"
        assert daemon.asked.count("/v1/status?hosts_max=0") == 1, "pages share what all of them show"


def test_the_page_of_a_host_has_its_rows_beside_those_of_hosts_that_lack_something(tmp_path: Path) -> None:
    [whole] = (status := status_of(4, 2))["deployments"]
    whole["hosts"][1]["state"] = "complete"
    with unix_daemon(tmp_path / "s", answers_about(status)) as daemon:
        [row] = json.loads(Forwarder(tmp_path / "s").ask("/page/status?host=gpu-0001").body)["deployments"]
        assert [host["name"] for host in row["hosts"] if host["state"] == "complete"] == ["gpu-0001"]
        assert row == whole | {"hosts": row["hosts"], "left_out": row["left_out"]}
        assert daemon.asked == ["/v1/status?hosts_max=0", "/v1/status?host=gpu-0001"]


@pytest.mark.parametrize("narrowed", ["name=org/llama&version=3", "host=gpu-0001"])
def test_a_question_that_is_refused_leaves_no_page_with_hosts_missing(tmp_path: Path, narrowed: str) -> None:
    with unix_daemon(tmp_path / "s", answers_about(status_of(4, 2))) as daemon:
        daemon.refused.add(f"/v1/status?{narrowed}")
        assert Forwarder(tmp_path / "s").ask(f"/page/status?{narrowed}").status == 503


def test_a_report_is_passed_on_with_its_summary(tmp_path: Path) -> None:
    told = report([{"name": "a", "source_bytes": 7}])
    with unix_daemon(tmp_path / "s", {"/v1/report?name=org/m&version=1": {"report": told}}):
        found = Forwarder(tmp_path / "s").ask("/page/report?name=org/m&version=1")
        assert json.loads(found.body)["summary"]["readers"] == ["a"]
        assert json.loads(found.body)["report"] == told


def test_the_reasons_of_one_host_are_told_without_those_of_others(tmp_path: Path) -> None:
    reasons = {"a": [[1.0, "no_space"]], "b": [[2.0, "all_busy"]]}
    timeline = {"moved": [[GB, 0, 0]], "shares": {}, "step_s": 1.0, "reasons": reasons}
    told = report([{"name": "a", "source_bytes": 7}], timeline=timeline)
    with unix_daemon(tmp_path / "s", {"/v1/report?name=org/m&version=1": {"report": told}}):
        forwarder = Forwarder(tmp_path / "s")
        for host in ("a", "c"):
            found = json.loads(forwarder.ask(f"/page/bound?name=org/m&version=1&host={host}").body)
            assert found["reasons"] == reasons.get(host, [])
        assert "reasons" not in json.loads(forwarder.ask("/page/bound?name=org/m&version=1").body)


def test_what_limits_a_deployment_is_as_in_its_report_and_asked_more_rarely(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, target = 100.0, "/page/bound?name=org/m&version=1"
    monkeypatch.setattr("gossipd.web.forwarding.time.monotonic", lambda: now)
    shares = {"a": b64encode(bytes([0, 254])).decode()}
    told = report(
        [{"name": "a", "source_bytes": 2 * GB}], timeline={"moved": [[GB, 0, 0]] * 2, "shares": shares, "step_s": 1.0}
    )
    with unix_daemon(tmp_path / "s", {"/v1/report?name=org/m&version=1": {"report": told}}) as daemon:
        forwarder, bound = Forwarder(tmp_path / "s"), fluid_bound(told)
        assert bound is not None
        assert json.loads(forwarder.ask(target).body)["bound"] == asdict(bound)
        now += KEPT_S * BOUND_LASTS - 0.1
        forwarder.ask(target)
        assert len(daemon.asked) == 1
        now += 0.2
        daemon.answers.clear()
        assert [forwarder.ask(target).status for _ in range(2)] == [404, 404]
        now += KEPT_S
        forwarder.ask(target)
        assert len(daemon.asked) == 3, "a refusal is asked again as soon as any other question"


@pytest.mark.parametrize("said", [[], {}, {"report": 3}, {"report": {"deployment": {}}}])
def test_what_is_no_report_is_refused_with_a_sentence(tmp_path: Path, said: object) -> None:
    with unix_daemon(tmp_path / "s", {"/v1/report?name=m&version=1": said}):
        for page in ("report", "bound"):
            found = Forwarder(tmp_path / "s").ask(f"/page/{page}?name=m&version=1")
            assert (found.status, json.loads(found.body)["error"]["code"]) == (502, "E_DAEMON_UNREACHABLE")
