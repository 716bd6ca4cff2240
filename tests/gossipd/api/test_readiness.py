"""Which version is complete where it matters, by values."""

from __future__ import annotations

import msgspec
import pytest

from gossipd.api.readiness import (
    DeploymentEndedError,
    HostsNeeded,
    NotReadyError,
    blamed,
    ended,
    lacking,
    newest,
    of_this_host,
    why_ended,
)
from gossipd.api.schema import DeploymentRow, HostRow
from gossipd.core.errors import ExitCode, NotFoundError, UsageError
from tests.gossipd.api.fake_daemon import toy_row


def host(name: str, state: str = "complete", reason: str = "") -> HostRow:
    chunks = 1024 if state == "complete" else 256
    return HostRow(name=name, rack="r", state=state, chunks_verified=chunks, age_s=0.1, reason=reason)


def row(version: int, *hosts: HostRow, state: str = "downloading") -> DeploymentRow:
    complete = sum(one.state == "complete" for one in hosts)
    return msgspec.structs.replace(
        toy_row(),
        version=version,
        version_label=str(version),
        state=state,
        hosts=list(hosts),
        hosts_total=len(hosts),
        hosts_complete=complete,
    )


def check_possible(told: DeploymentRow, needed: HostsNeeded, here: str) -> None:
    """As a wait does that has lasted."""
    if (error := why_ended(told, needed, here)) is not None:
        raise error


OLD = row(1, host("a"), host("b"), host("c"))
NEW = row(2, host("a"), host("b"), host("c", "downloading", "all_busy"))


def seen_on(here: str, told: DeploymentRow) -> DeploymentRow:
    """As the host of that name tells it."""
    hosts = [msgspec.structs.replace(one, here=one.name == here) for one in told.hosts]
    return msgspec.structs.replace(told, hosts=hosts)


def version(where: str, here: str = "a", *rows: DeploymentRow) -> int:
    return newest([seen_on(here, one) for one in rows or (OLD, NEW)], "org/toy", where, here).version


def test_latest_is_the_newest_that_is_complete_where_asked() -> None:
    assert version("here", "a") == 2
    assert version("here", "c") == 1
    assert version("anywhere", "c") == 2
    assert version("everywhere") == 1
    assert version("a,b", "c") == 2


@pytest.mark.parametrize("here", ["a", "b", "c"])
def test_every_host_gives_the_same_answer(here: str) -> None:
    assert version("everywhere", here) == 1
    assert version("a,b", here) == 2


def test_what_can_be_had_is_answered_before_any_host_has_it() -> None:
    early = msgspec.structs.replace(row(3, host("a", "downloading"), host("b", "downloading")), recoverable=True)
    lost = msgspec.structs.replace(early, version=4, version_label="4", recoverable=False)
    assert version("recoverable", "a", early, lost) == 3
    assert version("anywhere", "a", OLD, early, lost) == 1
    with pytest.raises(
        NotReadyError, match="no version of org/toy is complete or recoverable: org/toy@4 lacks a living"
    ):
        version("recoverable", "a", lost)


def test_a_version_that_does_not_load_is_left_out() -> None:
    assert newest((OLD, NEW), "org/toy", "anywhere", "a", before=2).version == 1


def test_a_run_whose_only_version_does_not_load_is_no_new_run() -> None:
    with pytest.raises(NotReadyError, match="no version of org/toy before 1 is known here; the oldest is org/toy@1"):
        newest((OLD, NEW), "org/toy", "anywhere", "a", before=1)
    with pytest.raises(NotFoundError):
        newest((), "org/toy", "anywhere", "a", before=1)


def test_a_part_that_is_wanted_is_told_as_a_share_of_it() -> None:
    part = msgspec.structs.replace(host("c", "downloading"), chunks_wanted=512, want="ep:3/16\nfiles:*.json\nfiles:x")
    done = msgspec.structs.replace(host("a"), chunks_wanted=256, want="ep:0/16")
    told = row(2, done, host("b"), part)
    with pytest.raises(NotReadyError, match=r"lacks c \(downloading 50 % of ep:3/16, files:\*.json and 1 more\)"):
        version("everywhere", "a", told)
    assert lacking(told, told.hosts).startswith("complete on 2 of 3 hosts (1 of them want a part); behind: c (")


def test_a_dead_host_does_not_count_unless_it_is_named() -> None:
    broken = row(2, host("a"), host("b"), host("c", "downloading", "dead"))
    assert version("everywhere", "a", OLD, broken) == 2
    with pytest.raises(NotReadyError, match=r"org/toy@2 lacks c \(complete 100 % dead\)"):
        version("a,b,c", "a", row(2, host("a"), host("b"), host("c", "complete", "dead")))


def test_a_side_of_a_broken_network_gives_no_answer_of_its_own() -> None:
    west = row(1, host("a"), host("b", "complete", "dead"))
    east = row(1, host("a", "complete", "dead"), host("b"))
    for here, seen in (("a", west), ("b", east)):
        with pytest.raises(NotReadyError):
            version("a,b", here, seen)


@pytest.mark.parametrize("word", ["roll_back", "remove"])
def test_what_was_taken_back_is_not_the_latest_though_all_have_it(word: str) -> None:
    taken = msgspec.structs.replace(row(3, host("a"), host("b"), host("c"), state="complete"), word=word)
    assert version("everywhere", "a", OLD, taken) == 1


@pytest.mark.parametrize(
    ("word", "state", "how"),
    [
        ("remove", "complete", "removed everywhere"), ("roll_back", "complete", "rolled back everywhere"),
        ("cancel", "cancelled", "cancelled"),
    ],
)  # fmt: skip
def test_a_name_of_which_all_was_taken_back_is_told_as_that(word: str, state: str, how: str) -> None:
    taken = msgspec.structs.replace(row(3, host("a"), state=state), word=word)
    with pytest.raises(NotFoundError, match=f"to be used: org/toy@3, the newest known here, was {how}"):
        newest([taken], "org/toy", "here", "a")


def test_a_cancelled_version_is_not_the_latest() -> None:
    assert version("everywhere", "a", OLD, row(3, host("a"), host("b"), host("c"), state="cancelled")) == 1


def contents(here: str) -> list[DeploymentRow]:
    """Version 2 as the hosts a and b have it, and as host c has it, told by one of them."""
    refused = ("failed", "refused")
    pair = (
        row(2, host("a"), host("b"), host("c", *refused)),
        row(2, host("a", *refused), host("b", *refused), host("c")),
    )
    told = zip(pair, ("1" * 64, "2" * 64), strict=True)
    return [seen_on(here, msgspec.structs.replace(one, id=text, state="failed")) for one, text in told]


def test_of_two_contents_that_of_named_hosts_is_answered() -> None:
    for here, where, begins in (("a", "here", "1"), ("c", "here", "2"), ("c", "a,b", "1"), ("a", "c", "2")):
        assert newest(contents(here), "org/toy", where, here).id == begins * 64
        assert newest(contents(here)[::-1], "org/toy", where, here).id == begins * 64


@pytest.mark.parametrize("here", ["a", "c"])
def test_a_version_of_two_contents_is_none_that_any_host_may_load(here: str) -> None:
    assert newest([*contents(here), seen_on(here, OLD)], "org/toy", "anywhere", here).version == 1
    with pytest.raises(NotReadyError, match=r"@2 has two contents \(1{12} on 2 and 2{12} on 1 hosts\)") as no:
        newest(contents(here), "org/toy", "anywhere", here)
    assert (no.value.code, no.value.code_of_exit) == ("E_EQUIVOCATION", ExitCode.TRUST)
    nobodys = [msgspec.structs.replace(one, hosts_complete=0) if one.id[0] == "2" else one for one in contents(here)]
    assert newest(nobodys, "org/toy", "anywhere", here).id == "1" * 64


def test_a_wait_is_for_the_content_of_this_host_and_blames_the_other() -> None:
    rows = contents("c")
    own = of_this_host(rows)
    assert own is rows[1]
    assert of_this_host([*contents("a")[::-1], OLD]) == contents("a")[0]
    check_possible(own, HostsNeeded.parse("here"), "c")
    with pytest.raises(DeploymentEndedError) as caught:
        check_possible(own, HostsNeeded.parse("2"), "c")
    assert blamed(caught.value, own, rows).code == "E_EQUIVOCATION"
    assert blamed(caught.value, own, [own]) is caught.value
    assert of_this_host(()) is None


def test_no_answer_says_what_the_newest_version_lacks() -> None:
    with pytest.raises(
        NotReadyError, match=r"no version of org/toy is complete everywhere: .*@2 lacks c \(downloading"
    ):
        version("everywhere", "a", NEW)
    with pytest.raises(NotReadyError, match=r"lacks d \(not among its targets\)"):
        version("a,d")
    with pytest.raises(NotFoundError, match="no version of org/toy"):
        newest([], "org/toy", "here", "a")
    with pytest.raises(UsageError):
        version(",")


@pytest.mark.parametrize(("text", "met"), [("here", True), ("2", True), ("3", False), ("60%", True), ("100%", False)])
def test_hosts_needed_are_counted_as_said(text: str, met: bool) -> None:
    assert HostsNeeded.parse(text).met_by(seen_on("a", NEW), "a") is met


@pytest.mark.parametrize("text", ["", "0", "0%", "101%", "-1", "nan%", "some", "1.5", "²"])
def test_other_words_for_hosts_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="neither 'here'"):
        HostsNeeded.parse(text)


@pytest.mark.parametrize(
    ("told", "text", "code"),
    [
        (row(1, host("a"), state="cancelled"), "here", "E_CANCELLED"),
        (row(1, host("a", "failed", "removed"), host("b")), "here", "E_GONE"),
        (row(1, host("a", "removed", "superseded"), host("b")), "here", "E_GONE"),
        (row(1, host("a", "failed", "refused"), host("b")), "here", "E_PARTIAL"),
        (row(1, host("b")), "here", "E_PARTIAL"),
        (row(1, host("a", "failed", "refused"), state="failed"), "100%", "E_PARTIAL"),
        (row(1, host("a", "init", "source_forbidden"), host("b", "init", "source_forbidden")), "1", "E_PARTIAL"),
    ],
)
def test_what_cannot_come_ends_the_wait(told: DeploymentRow, text: str, code: str) -> None:
    with pytest.raises(DeploymentEndedError) as caught:
        check_possible(seen_on("a", told), HostsNeeded.parse(text), "a")
    assert caught.value.code == code


@pytest.mark.parametrize("text", ["here", "1", "100%"])
def test_the_end_for_want_of_a_source_names_it_and_exits_as_why_does(text: str) -> None:
    forbidden = row(1, host("a", "init", "source_forbidden"), host("b", "init", "source_forbidden"))
    words = r"somebody acts: a init source_forbidden, b init .*sources\.allow"
    with pytest.raises(DeploymentEndedError, match=words) as caught:
        check_possible(seen_on("a", forbidden), HostsNeeded.parse(text), "a")
    assert caught.value.code_of_exit == ExitCode.SOURCE_UNREACHABLE


@pytest.mark.parametrize(
    ("word", "how"),
    [("cancel", "cancelled"), ("pause", "cancelled"), ("roll_back", "rolled back"), ("remove", "removed everywhere")],
)
def test_the_end_by_a_word_names_the_word(word: str, how: str) -> None:
    stopped = msgspec.structs.replace(row(1, host("a"), host("b", "cancelled"), state="cancelled"), word=word)
    with pytest.raises(DeploymentEndedError, match=f"@1 was {how}; it is complete on 1 of 2 hosts$"):
        check_possible(stopped, HostsNeeded.parse("100%"), "b")


def test_hosts_that_go_on_have_not_ended() -> None:
    some = row(1, host("a"), host("b", "failed", "refused_key"), host("c", "downloading"))
    assert "complete on 1 of 3 hosts and has ended on 1: b failed" in str(ended(some))
    both = row(1, host("a"), host("b", "failed", "refused_key"), host("c", "failed", "refused_key"))
    assert "complete on 1 of 3 hosts and has ended: b failed" in str(ended(both))


def test_a_state_that_is_its_own_reason_is_told_once() -> None:
    with pytest.raises(DeploymentEndedError, match="ended: a removed;"):
        check_possible(row(1, host("a", "removed", "removed"), state="failed"), HostsNeeded.parse("100%"), "b")


HERE_BEHIND = msgspec.structs.replace(host("a", "downloading", "all_busy"), here=True)


@pytest.mark.parametrize("namesake_first", [True, False])
def test_a_host_that_takes_this_hosts_name_does_not_speak_for_it(namesake_first: bool) -> None:
    def told(number: int, own: HostRow, namesake: HostRow) -> DeploymentRow:
        return row(number, *((namesake, own) if namesake_first else (own, namesake)), host("b"))

    needed = HostsNeeded.parse("here")
    false_complete = told(1, HERE_BEHIND, host("a"))
    assert not needed.met_by(false_complete, "a")
    assert "behind: a (downloading 25 % all_busy)" in needed.so_far(false_complete, "a")
    for where in ("here", "a,b"):
        with pytest.raises(NotReadyError, match="lacks a \\(downloading"):
            newest([false_complete], "org/toy", where, "a")
    false_failure = told(2, msgspec.structs.replace(host("a"), here=True), host("a", "failed", "refused"))
    assert needed.met_by(false_failure, "a")
    check_possible(false_failure, needed, "a")
    assert [newest([false_failure], "org/toy", where, "a").version for where in ("here", "a,b")] == [2, 2]


def test_a_host_with_this_hosts_name_makes_it_no_target() -> None:
    told = row(1, host("a"), host("b"))  # from a host that is none
    assert not HostsNeeded.parse("here").met_by(told, "a")
    with pytest.raises(DeploymentEndedError, match="a is not among the targets"):
        check_possible(told, HostsNeeded.parse("here"), "a")
    with pytest.raises(NotReadyError, match=r"lacks a \(not among its targets\)"):
        newest([told], "org/toy", "here", "a")


def test_what_can_still_come_is_waited_for() -> None:
    check_possible(NEW, HostsNeeded.parse("100%"), "c")
    check_possible(row(1, host("a", "init", "source_forbidden"), host("b", "downloading")), HostsNeeded.parse("2"), "b")
