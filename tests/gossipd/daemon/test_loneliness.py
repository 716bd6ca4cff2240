"""A host that hears nobody says so, with what it saw; a host that has nobody to hear says nothing."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any, cast

import pytest
import trio
import trio.testing

from gossipd.daemon.alarms import Alarms
from gossipd.daemon.loneliness import (
    ALONE_S,
    LOG_EACH_S,
    NEWCOMER_S,
    Hearing,
    Loneliness,
    LonelinessWatch,
    Newcomer,
    hearing,
)  # fmt: skip
from membership.member import MemberState


def seen(heard: int = 0, *, unsealed: int = 0, others: int = 0, contacts: tuple[str, ...] = ("h1:7946",)) -> Hearing:
    counts = {"datagrams_in": heard, "dropped_unsealed": unsealed}
    return hearing(counts, contacts=contacts, others=others)


class _Contacts:
    def without_address(self) -> list[str]:
        return []


def test_a_host_whose_contacts_have_no_address_says_so_and_blames_no_network() -> None:
    lonely = Loneliness(0.0)
    nowhere = hearing({}, contacts=("h1:7946",), others=0, nowhere=("h1:7946",))
    assert lonely.look(ALONE_S, nowhere) == (
        "this host hears no other; no address was found for h1:7946: is the name right, and does the resolver answer?"
    )
    half = lonely.look(ALONE_S, hearing({}, contacts=("h1:7946", "h2:7946"), others=0, nowhere=("h1:7946",)))
    assert half is not None and "no address was found for h1:7946" in half and "no answer from h2:7946/udp" in half


def test_a_host_that_can_join_nobody_says_whom_it_asked() -> None:
    lonely = Loneliness(0.0)
    assert lonely.look(1.0, seen()) is None
    assert lonely.look(ALONE_S - 0.1, seen()) is None
    sentence = lonely.look(ALONE_S, seen())
    assert sentence is not None
    assert "no answer from h1:7946/udp" in sentence
    assert lonely.look(20.0, seen(1)) is None, "somebody was heard"


def test_a_host_that_has_just_found_others_may_not_have_heard_everything() -> None:
    def words(now: float, *, join: bool = True, others: int = 1, starts: bool = False) -> str:
        members = [SimpleNamespace(state=MemberState.ALIVE)] * (1 + others)
        config = SimpleNamespace(net=SimpleNamespace(join=["h1:7946"] if join else []))
        swim, live = SimpleNamespace(members=lambda: members), SimpleNamespace(config=config)
        return (newcomer.settling if starts else newcomer.words)(now, cast(Any, swim), cast(Any, live))

    newcomer = Newcomer(10.0)
    assert words(11.0) == "this host is with others for 1 s only"
    assert words(11.0, join=False) == words(10.0 + NEWCOMER_S) == ""
    assert words(60.0, others=0) == "this host has found no other member yet"
    assert words(61.0) and not words(60.0 + NEWCOMER_S)
    newcomer = Newcomer(10.0)
    assert words(10.0 + ALONE_S - 0.1, others=0, starts=True), "its contacts may still answer"
    assert not words(10.0 + ALONE_S, others=0, starts=True), "an alarm says so by now"


def test_another_cluster_key_is_told_from_silence() -> None:
    lonely = Loneliness(0.0)
    lonely.look(1.0, seen(5, unsealed=2, others=3))
    sentence = lonely.look(30.0, seen(5, unsealed=9, others=3))
    assert sentence is not None
    assert "cluster key does not open" in sentence


def test_a_first_host_without_anybody_to_hear_is_not_alone() -> None:
    lonely = Loneliness(0.0)
    for now in range(60):
        assert lonely.look(float(now), seen(contacts=())) is None
    assert lonely.look(61.0, seen(contacts=(), others=1)) is None, "from now on it should hear somebody"
    assert lonely.look(61.0 + ALONE_S, seen(contacts=(), others=1)) is not None


def test_a_host_whose_clock_was_ahead_at_its_start_says_so() -> None:
    lonely = Loneliness(0.0)
    ahead = hearing({}, contacts=("h1:7946",), others=2, boot_ahead_s=3 * 86_400.0)
    assert lonely.look(1.0, ahead) is None
    assert "the number of its start is 72 h ahead of its clock" in (lonely.look(ALONE_S, ahead) or "")
    later = hearing({"datagrams_in": 1, "probes_answered": 1}, contacts=(), others=2, boot_ahead_s=9e4)
    assert lonely.look(20.0, later) is None, "the others know the number: the clock is wrong now"


async def test_the_next_start_of_a_lonely_host_begins_from_its_clock(mock_clock: trio.testing.MockClock) -> None:
    boot = int(time.time()) + 3 * 86_400

    class State:
        def __init__(self) -> None:
            self.kept: list[int | None] = []

        def keep_boot(self, boot: int | None) -> None:
            self.kept.append(boot)

    class AheadSwim(Swim):
        heard = 0

        def statistics(self) -> dict[str, int]:
            return {"members_known": 3, "members_left": 0, "datagrams_in": self.heard, "probes_answered": self.heard}

        def self_record(self) -> Any:
            return SimpleNamespace(boot=boot)

    mock_clock.autojump_threshold = 0.01
    live, state = SimpleNamespace(config=SimpleNamespace(net=SimpleNamespace(join=["h1:7946"]))), State()
    alarms = Alarms(cast(Any, Audit()))
    swim = AheadSwim()
    watch = LonelinessWatch(cast(Any, swim), cast(Any, live), alarms, cast(Any, state), cast(Any, _Contacts()))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(watch.run)
        await trio.sleep(3 * ALONE_S)
        assert (state.kept, [row.code for row in alarms.rows.values()]) == ([None], ["E_ALONE"])
        swim.heard = 1
        await trio.sleep(5.0)
        assert (state.kept, list(alarms.rows)) == ([None, boot], []), "the others know it"
        nursery.cancel_scope.cancel()


def test_what_failed_in_a_silence_says_nothing_of_what_is_heard_after_it() -> None:
    lonely = Loneliness(0.0)
    for now in range(40):
        counts = {"datagrams_in": 0, "probes_failed": now, "probes_answered": 0}
        lonely.look(float(now), hearing(counts, contacts=("h1:7946",), others=2))
    heard = hearing({"datagrams_in": 1, "probes_failed": 40}, contacts=("h1:7946",), others=2)
    assert lonely.look(40.0, heard) is None


def test_a_host_that_membership_calls_isolated_has_one_alarm() -> None:
    lonely = Loneliness(0.0)
    told = hearing({"isolated": 1}, contacts=("h1:7946",), others=9)
    assert lonely.look(0.0, told) is None
    assert lonely.look(99.0, told) is None


class Swim:
    """Membership of which only counters are asked."""

    def statistics(self) -> dict[str, int]:
        return {"joins_sent": 8}


class Audit:
    """Keeps what began."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def record(self, event: str, *, code: str, reason: str) -> None:
        self.told.append(reason)


@pytest.mark.parametrize("failed", ["probes_failed", "probes_saved_by_control"])
def test_probes_that_all_fail_are_told_though_datagrams_come(failed: str) -> None:
    lonely = Loneliness(0.0)
    told = []
    for now in range(14):
        counts = {"datagrams_in": now, failed: now, "probes_answered": 7}
        told.append(lonely.look(float(now), hearing(counts, contacts=(), others=2)))
    assert told[:10] == [None] * 10
    assert "all its probes fail" in (told[-1] or "")
    counts = {"datagrams_in": 20, "probes_failed": 20, "probes_answered": 8}
    assert lonely.look(14.0, hearing(counts, contacts=(), others=2)) is None


def test_the_alarm_follows_what_is_seen_and_the_log_has_a_line_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    audit = Audit()
    alarms = Alarms(cast(Any, audit))
    watch = LonelinessWatch(cast(Any, Swim()), cast(Any, None), alarms, cast(Any, None), cast(Any, _Contacts()))
    with caplog.at_level("WARNING"):
        for now in range(int(LOG_EACH_S) + 1):
            watch.tell("hears no other", float(now))
        watch.tell("hears no other; another key", 70.0)
    assert len(caplog.records) == 2
    assert [row.sentence for row in alarms.rows.values()] == ["hears no other; another key"]
    assert audit.told == ["hears no other", "hears no other; another key"]
    watch.tell(None, 71.0)
    assert not alarms.rows
