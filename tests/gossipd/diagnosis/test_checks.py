"""Every check has readings with which it is well and others with which it is not."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from gossipd.diagnosis.checks import CHECKS, CheckVerdict, HostReadings, PeerReading, SourceReading, examine
from tests.gossipd.cli.large_clusters import deployment, host, page


def status(**more: Any) -> Any:
    return page(deployment([host(0, state="downloading")]), members=4) | more


def of_members(**more: Any) -> Any:
    told = status()
    for number, member in enumerate(told["members"]):
        member.update({key: value(number) for key, value in more.items()})
    return told


def alarm(code: str) -> Any:
    return status(alarms=[{"code": code, "sentence": "so it is", "since": "now"}])


def own_row(**more: Any) -> Any:
    return status(deployments=[deployment([host(0, state="failed", **more)], stall="no_space")])


def in_trouble(words: str) -> Any:
    return status(inbox={"accepted": 1, "refused": 0, "waiting": 2, "trouble": words})


OWN_RACK = status()["node"]["rack"]


def racks_away(near_s: float, far_s: float) -> tuple[PeerReading, ...]:
    return (PeerReading(name="b", rack=OWN_RACK, rtt_s=near_s), PeerReading(name="c", rack="elsewhere", rtt_s=far_s))


def with_credential(ends_in_s: float | None, *, is_renewed: bool = False) -> dict[str, Any]:
    return {
        "sources": (
            SourceReading(
                source="az://m", model="m@1", credential="the token", ends_in_s=ends_in_s, is_renewed=is_renewed
            ),
        )
    }


WELL = HostReadings(
    config_problem="", keys_problem="", answers_problem="", places_problem="", unwritable=(), unreadable_for="",
    free_bytes=1 << 40, disk_bytes=2 << 40, free_inodes=10**6, sync_s=0.001, descriptors_max=65536, threads_max=4096,
    clock_is_kept=True, publishers=1, contacts_unresolved=(), advertises="10.0.0.1", mtu=1500,
    daemon_problem="", status=of_members(clock_ahead_s=lambda n: 0.1 * n, prints=lambda n: {"trust": "aa"}),
    peers=(
        PeerReading(name="b", udp="", udp_large="", control="", bulk="", rack=OWN_RACK, rtt_s=0.0001),
        PeerReading(name="c", udp="", udp_large="", control="", bulk="", rack="elsewhere", rtt_s=0.0004),
    ),
    prints={"trust": "aa"}, foreign_units=(), refused={"control_zap_refused": 3},
    sources=(SourceReading(source="s3://models", model="m@1", credential="AWS_ACCESS_KEY_ID"),),
)  # fmt: skip
DENIED = SourceReading(source="s3://models", model="m@1", code="E_SOURCE_TOKEN_EXPIRED", sentence="it has expired")

SICK: dict[str, dict[str, Any]] = {
    "config": {"config_problem": "net.port is 0"},
    "keys": {"keys_problem": "cluster.key has mode 0644"},
    "answers": {"answers_problem": "the directories of this host have not answered for 10 s"},
    "places": {"places_problem": "models is on tmpfs"},
    "writable": {"unwritable": ("/srv/models",)},
    "free_space": {"free_bytes": 1000},
    "inodes": {"free_inodes": 0},
    "sync": {"sync_s": 3.0},
    "descriptors": {"descriptors_max": 256},
    "threads": {"threads_max": 64},
    "clock_kept": {"clock_is_kept": False},
    "clock": {"status": of_members(clock_ahead_s=lambda n: -90.0)},
    "publishers": {"publishers": 0},
    "trust": {"status": status(refused=[{"id": "ab" * 32, "reason": "refused_key", "subject": "abcdef0123456789"}])},
    "contacts": {"contacts_unresolved": ("nowhere:7946: Name or service not known",)},
    "address": {"advertises": "0.0.0.0"},
    "mtu": {"mtu": 1200},
    "daemon": {"daemon_problem": "no daemon answers"},
    "running": {"prints": {"trust": "cc"}},
    "store": {"status": status(store={**status()["store"], "condition": "full", "detail": "no space"})},
    "inbox": {"status": in_trouble("E_WATCH_DISK: the inbox /srv/inbox: No space left on device")},
    "alone": {"status": alarm("E_ALONE")},
    "storage": {"sources": (DENIED,)},
    "unit": {"foreign_units": ("/etc/systemd/system/gossipd.service",)},
    "members": {"status": of_members(state=lambda n: "dead" if n else "alive")},
    "name": {"status": of_members(name=lambda n: "gpu-h100-dc1-r0-n000")},
    "versions": {"status": of_members(version=lambda n: f"0.{n}")},
    "agreement": {"status": of_members(prints=lambda n: {"trust": "aa" if n else "bb"})},
    "seeds": {
        "status": of_members(seed=lambda n: False)
        | {"deployments": [deployment([host(0, state="downloading")], state="downloading")]}
    },
    "credentials": with_credential(-5.0),
    "handshakes": {"refused": {"control_zap_refused": 500, "E_HANDSHAKE": 3, "dropped_own": 10**6}},
    "rack": {"peers": racks_away(0.002, 0.0003)},
    "alarms": {"status": alarm("E_THREADS")},
    "stalls": {"status": own_row(reason="no_space")},
    "scrub": {"status": status(store={**status()["store"], "oldest_unchecked_s": 1e8})},
    "loop": {"status": status(loop_lag_p99_s=1.0)},
    "job_reads": {"unreadable_for": "models has mode 0750"},
    "udp": {"peers": (PeerReading(name="b", udp="no answer"),)},
    "udp_large": {"peers": (PeerReading(name="b", udp="", udp_large="no answer"),)},
    "control": {"peers": (PeerReading(name="b", control="port 7946/tcp does not answer"),)},
    "bulk": {"peers": (PeerReading(name="b", bulk="port 7947/tcp does not answer"),)},
}


def verdicts(readings: HostReadings) -> dict[str, CheckVerdict]:
    return {check.code: finding.verdict for check, finding in examine(readings)}


def test_a_host_on_which_all_is_well_passes_every_check() -> None:
    found = verdicts(WELL)
    assert {code: verdict for code, verdict in found.items() if verdict is not CheckVerdict.OK} == {}
    assert len(found) >= 20
    assert list(found) == [check.code for check in CHECKS if check.code in found]
    assert found.keys() | {"scrub"} == {check.code for check in CHECKS}


def test_every_check_has_readings_with_which_it_fails() -> None:
    assert SICK.keys() == {check.code for check in CHECKS}


@pytest.mark.parametrize("code", SICK)
def test_a_check_that_is_not_well_says_so_with_evidence(code: str) -> None:
    found = {check.code: (check, finding) for check, finding in examine(replace(WELL, **SICK[code]))}
    check, finding = found[code]
    assert finding.verdict is not CheckVerdict.OK
    assert finding.evidence or code == "clock_kept"
    assert check.cure and check.sentence


def test_a_model_that_waits_for_the_disk_is_told_though_others_are_taken() -> None:
    waits = "qwen@3 waits for the disk: a file of the model is larger than this daemon may write: raise its limit"
    told = status(store={**status()["store"], "detail": waits})
    [finding] = [one for check, one in examine(replace(WELL, status=told)) if check.code == "store"]
    assert (finding.verdict, finding.evidence) == (CheckVerdict.FAIL, waits)


def test_trouble_of_the_inbox_is_told_with_what_waits() -> None:
    told = in_trouble("E_WATCH_DISK: the inbox /srv/inbox: No space left on device")
    [finding] = [one for check, one in examine(replace(WELL, status=told)) if check.code == "inbox"]
    assert finding.verdict is CheckVerdict.FAIL
    assert finding.evidence == "E_WATCH_DISK: the inbox /srv/inbox: No space left on device; 2 files in it"


def test_nothing_to_judge_by_is_no_verdict() -> None:
    assert verdicts(HostReadings()) == {}


def test_credentials_that_cannot_be_read_fail_and_say_why() -> None:
    lost = SourceReading(source="s3://m", model="m@1", credential="the file", credential_trouble="no such file")
    [finding] = [one for check, one in examine(replace(WELL, sources=(lost,))) if check.code == "credentials"]
    assert (finding.verdict, finding.evidence) == (CheckVerdict.FAIL, "the file: no such file")


def test_one_peer_of_three_that_does_not_answer_is_a_warning() -> None:
    peers = tuple(PeerReading(name=f"n{n}", udp="" if n else "no answer") for n in range(3))
    assert verdicts(replace(WELL, peers=peers))["udp"] is CheckVerdict.WARN


def test_one_wrong_clock_among_others_is_named() -> None:
    told = of_members(clock_ahead_s=lambda n: 90.0 if n == 3 else 0.2)
    [finding] = [finding for check, finding in examine(replace(WELL, status=told)) if check.code == "clock"]
    assert finding.verdict is CheckVerdict.WARN
    assert told["members"][3]["name"] in finding.evidence


def test_storage_is_judged_by_model_and_by_how_sure_it_is() -> None:
    mirror = SourceReading(source="https://m", model="m@1")
    absent = SourceReading(source="s3://b", model="", code="E_SOURCE_AUTH", sentence="refused")
    no_ranges = SourceReading(source="https://m", model="m@1", code="E_SOURCE_WHOLE_ONLY", sentence="whole")
    for sources, verdict in (
        ((DENIED,), CheckVerdict.FAIL),
        ((DENIED, mirror), CheckVerdict.WARN),
        ((DENIED, replace(mirror, model="n@1")), CheckVerdict.FAIL),
        ((no_ranges,), CheckVerdict.WARN),
        ((absent,), CheckVerdict.WARN),
        ((replace(absent, code="E_SOURCE_NOT_FOUND"),), CheckVerdict.OK),
        ((replace(absent, code="E_SOURCE_NO_BUCKET"),), CheckVerdict.FAIL),
    ):
        assert verdicts(replace(WELL, sources=sources))["storage"] is verdict, sources
    [finding] = [finding for check, finding in examine(replace(WELL, sources=(DENIED,))) if check.code == "storage"]
    assert "source_token_expired" in finding.evidence and "renew them on the seeds" in finding.evidence
    [finding] = [one for check, one in examine(replace(WELL, reads_as_daemon=False)) if check.code == "storage"]
    assert finding.evidence == "1 of 1 sources are read, with this command's credentials and not the daemon's"
    assert "storage" not in verdicts(replace(WELL, sources=())), "nothing to ask"


@pytest.mark.parametrize(
    ("given", "verdict"),
    [
        (with_credential(None), CheckVerdict.OK),
        (with_credential(600.0), CheckVerdict.WARN),
        (with_credential(600.0, is_renewed=True), CheckVerdict.OK),
        (with_credential(-1.0, is_renewed=True), CheckVerdict.FAIL),
        (with_credential(86400.0), CheckVerdict.OK),
    ],
)
def test_credentials_are_judged_by_their_end_and_by_who_renews_them(
    given: dict[str, Any], verdict: CheckVerdict
) -> None:
    assert verdicts(replace(WELL, **given))["credentials"] is verdict


def test_a_rack_is_odd_only_where_another_is_much_nearer() -> None:
    for near_s, far_s, verdict in (
        (0.0002, 0.0001, CheckVerdict.OK), (0.002, 0.001, CheckVerdict.OK), (0.002, 0.0003, CheckVerdict.WARN),
    ):  # fmt: skip
        assert verdicts(replace(WELL, peers=racks_away(near_s, far_s)))["rack"] is verdict
    assert "rack" not in verdicts(replace(WELL, peers=racks_away(0.002, 0.0003)[1:])), "none of its own rack was tried"


def test_few_refused_handshakes_or_old_ones_are_no_warning() -> None:
    status = WELL.status | {"node": WELL.status["node"] | {"uptime_s": 86400.0}}  # type: ignore[operator,index]
    for count, told, verdict in ((9, WELL.status, CheckVerdict.OK), (50, status, CheckVerdict.OK)):
        found = verdicts(replace(WELL, status=told, refused={"dropped_unsealed": count}))
        assert found["handshakes"] is verdict


def test_figures_have_the_units_that_people_read() -> None:
    told = {check.code: finding.evidence for check, finding in examine(WELL)}
    assert told["free_space"] == "1 TiB free, 50.0 %"
    assert told["inodes"] == "1,000,000 inodes free"


def test_seeds_that_gave_up_are_told_with_their_reasons() -> None:
    hosts = [host(n, state="downloading", reason="source_forbidden") for n in range(2)]
    told = of_members(seed=lambda n: False) | {"deployments": [deployment(hosts, state="downloading")]}
    [finding] = [one for check, one in examine(replace(WELL, status=told)) if check.code == "seeds"]
    assert finding.evidence.endswith("; those that could read say source_forbidden")
