"""Causes come in order, with their evidence, from the page that any host answers."""

from __future__ import annotations

import time
from typing import Any

import pytest

from gossipd.cli.why import as_object, lines_of
from gossipd.core.errors import ExitCode
from gossipd.core.reasons import CuredBy, HostReason
from gossipd.diagnosis.causes import diagnose, diagnose_refused
from tests.gossipd.cli.large_clusters import deployment, host, page


def found(hosts: list[Any], of: str | None = None, **more: Any) -> Any:
    return diagnose(page(members=len(hosts), **more), deployment(hosts), of)


def test_a_complete_deployment_has_no_cause_and_exits_with_0() -> None:
    diagnosis = diagnose(page(), deployment([host(0), host(1)], state="complete"))
    assert (diagnosis.causes, diagnosis.exit_code) == ((), ExitCode.DONE)
    assert "nothing is wrong" in lines_of(diagnosis)


@pytest.mark.parametrize(("told", "shown"), [("300.2", "qwen@300.2"), (None, "qwen@1")])
def test_a_step_of_a_run_is_called_as_status_calls_it(told: str | None, shown: str) -> None:
    row = deployment([host(0)], version_label=told)
    assert diagnose(page(row), row).label == shown


def test_hosts_that_only_wait_are_9_and_say_so() -> None:
    diagnosis = found(
        [host(0), host(1, state="downloading", chunks=5, reason="all_busy"), host(2, state="downloading")]
    )
    assert [cause.code for cause in diagnosis.causes] == ["all_busy", "under_way"]
    assert all(cause.waits for cause in diagnosis.causes)
    assert diagnosis.exit_code == ExitCode.PARTIAL


def test_all_that_wait_for_one_reader_are_one_cause_that_names_it() -> None:
    reader = host(3, state="downloading", chunks=7, reason="source_auth")
    others = [
        host(n, state="downloading", chunks=7, reason="source_auth", subject=reader["name"]) for n in range(10, 40)
    ]
    diagnosis = found([*others, reader])
    [cause] = diagnosis.causes
    assert cause.hosts[0] == reader["name"]
    assert len(cause.hosts) == 31
    assert "30 of them wait for the host that reads storage" in cause.evidence
    assert "31 of 31 hosts hold 7 of 1024 chunks" in cause.evidence
    assert (cause.cured_by, diagnosis.exit_code) == ("the storage", ExitCode.SOURCE_AUTH)


def test_a_refusal_comes_before_a_stall_and_the_dead_after_both() -> None:
    dead = host(1, state="downloading", reason="dead")
    hosts = [
        dead, host(2, state="downloading", reason="no_space"),
        host(3, state="failed", chunks=0, reason="refused_key", subject="ab" * 8), host(4),
    ]  # fmt: skip
    what = page(members=5)
    what["members"][1] |= {"state": "dead", "since_s": 720.0}
    diagnosis = diagnose(what, deployment(hosts))
    assert [cause.code for cause in diagnosis.causes] == ["refused_key", "no_space", "dead"]
    assert "key abababababab" in diagnosis.causes[0].sentence
    assert diagnosis.causes[2].since_s == 720.0
    assert diagnosis.exit_code == ExitCode.TRUST
    assert any("for 12m 0s" in line for line in lines_of(diagnosis))


def test_one_host_has_its_own_causes_only() -> None:
    hosts = [host(1, state="downloading", reason="no_space"), host(2, state="downloading", reason="holder_silent")]
    diagnosis = found(hosts, hosts[1]["name"])
    assert [cause.code for cause in diagnosis.causes] == ["holder_silent"]


def test_the_silent_peers_that_most_hosts_have_asked_are_named_with_their_addresses() -> None:
    names = [host(number)["name"] for number in range(12)]
    asked = [5, 5, 5, 7, 7, 6, 4]
    hosts = [host(n, state="downloading", reason="holder_silent", subject=names[peer]) for n, peer in enumerate(asked)]
    [cause] = found([*hosts, *(host(n) for n in range(7, 12))]).causes
    first = ", ".join(f"{names[peer]} (10.0.0.{peer}:7946)" for peer in (5, 7, 4))
    assert cause.next == f"another holder is asked at once; if it stays, look at {first} and 1 more"
    assert "key" not in cause.sentence
    [stranger] = found([host(1, state="downloading", reason="holder_silent", subject="ab" * 8)]).causes
    assert stranger.next.endswith(f"look at {'ab' * 8}")
    [untold] = found([host(1, state="downloading", reason="holder_silent")]).causes
    assert untold.next == "another holder is asked at once"


def test_nobody_who_reads_storage_is_a_cause_of_its_own() -> None:
    what = page(members=4)
    for member in what["members"]:
        member["seed"] = False
    diagnosis = diagnose(
        what, deployment([host(n, state="downloading", chunks=0, reason="no_holder") for n in range(4)])
    )
    assert "nobody reads storage" in " ".join(cause.sentence for cause in diagnosis.causes)
    assert diagnosis.exit_code == ExitCode.SOURCE_UNREACHABLE or diagnosis.causes[0].code == "no_holder"


def test_where_no_host_may_read_storage_that_is_said() -> None:
    what = page(members=2)
    for member in what["members"]:
        member["seed"] = False
    diagnosis = diagnose(what, deployment([host(n, state="downloading", chunks=0, reason="storage") for n in range(2)]))
    assert "no living host is a seed" in " ".join(cause.sentence for cause in diagnosis.causes)


def test_targets_that_no_known_host_is_among_are_a_cause() -> None:
    diagnosis = diagnose(page(members=2), deployment([], state="init"))
    (cause,) = diagnosis.causes
    assert (cause.code, cause.sentence) == ("not_target", "no known host is among its targets")
    assert cause.exit_code is ExitCode.PARTIAL
    assert not diagnose(page(members=2), deployment([], state="complete")).causes


@pytest.mark.parametrize("reason", ["source_forbidden", "source_gone", "source_auth"])
def test_seeds_that_gave_up_are_no_cause_beside_their_own(reason: str) -> None:
    what = page(members=2)
    for member in what["members"]:
        member["seed"] = False
    diagnosis = diagnose(what, deployment([host(n, state="init", chunks=0, reason=reason) for n in range(2)]))
    assert [cause.code for cause in diagnosis.causes] == [reason]


def test_what_has_ended_is_read_by_nobody_and_that_is_no_cause() -> None:
    what = page(members=1)
    what["members"][0]["seed"] = False
    diagnosis = diagnose(what, deployment([host(0, state="removed", chunks=0, reason="removed")]))
    assert [cause.code for cause in diagnosis.causes] == ["removed"]


@pytest.mark.parametrize(("word", "told"), [("cancel", "cancelled"), ("roll_back", "rolled back everywhere")])
def test_a_cancelled_deployment_says_so_and_exits_as_wait_does(word: str, told: str) -> None:
    row = deployment([host(0, state="cancelled", chunks=5)], state="cancelled", word=word)
    diagnosis = diagnose(page(), row)
    assert [cause.sentence for cause in diagnosis.causes] == [f"it was {told}"]
    assert (diagnosis.exit_code, diagnosis.causes[0].cure) == (ExitCode.OTHER, "deploy it again, if it shall go on")


def test_a_host_that_is_asked_for_by_name_answers_for_itself() -> None:
    cancelled = deployment([host(0), host(1, state="cancelled", chunks=5)], state="cancelled", word="cancel")
    names = [each["name"] for each in cancelled["hosts"]]
    assert not diagnose(page(), cancelled, names[0]).causes
    assert [one.code for one in diagnose(page(), cancelled, names[1]).causes] == ["cancelled"]
    removed = deployment([host(0), host(1, state="removed", reason="removed", chunks=0)], state="complete")
    assert not diagnose(page(), removed).causes
    assert [one.code for one in diagnose(page(), removed, names[1]).causes] == ["removed"]


def test_an_answering_host_that_is_alone_says_first_that_it_is_a_poor_witness() -> None:
    alarms = [{"code": "E_ALONE", "sentence": "this host hears no other", "since": "now"}]
    diagnosis = found([host(0, state="downloading", reason="not_heard")], alarms=alarms)
    assert diagnosis.causes[0].code == "E_ALONE"


@pytest.mark.parametrize("reason", [one for one in HostReason if one.value], ids=lambda one: one.value)
def test_every_reason_has_a_cure_and_says_what_is_tried_next(reason: HostReason) -> None:
    diagnosis = found([host(0, state="downloading", reason=reason.value)])
    cause = next(each for each in diagnosis.causes if each.code == reason.value)
    assert cause.sentence and cause.cure and cause.next
    assert cause.waits == (reason.cured_by is CuredBy.NOBODY)
    told = as_object(diagnosis)
    assert told["causes"][0]["exit_code"] == int(cause.exit_code)


def test_a_thousand_hosts_take_a_fraction_of_a_second() -> None:
    words = [one.value for one in HostReason]
    hosts = [host(n, state="downloading", chunks=n, reason=words[n % len(words)]) for n in range(1000)]
    what, row = page(members=1000), deployment(hosts)
    began = time.process_time()
    diagnose(what, row)
    assert time.process_time() - began < 0.3


def test_a_host_that_refused_a_deployment_says_so_without_its_name() -> None:
    what = page(members=2) | {
        "refused": [{"id": "ab" * 32, "reason": "refused_key", "subject": "cd" * 8, "sentence": ""}]
    }
    diagnosis = diagnose_refused(what, "toy@1")
    assert diagnosis.exit_code == ExitCode.TRUST
    assert "key cdcdcdcdcdcd" in diagnosis.causes[0].sentence
    assert diagnose_refused(page(), "toy@1").causes == ()
