"""Rounds of waiting: what is hopeless ends them when it has been so for some seconds, over several rounds."""

from __future__ import annotations

from types import SimpleNamespace

import msgspec
import pytest
import trio

from gossipd.api.long_poll import BETWEEN_ROUNDS_S, FILLING_S, HOPELESS_MAX, HOPELESS_S, LongPoll
from gossipd.api.readiness import DeploymentEndedError, HostsNeeded
from gossipd.core.errors import ExitCode
from tests.gossipd.api.fake_daemon import FakeDaemon, toy_row

ALL = HostsNeeded.parse("100%")


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr("gossipd.api.long_poll.time", SimpleNamespace(monotonic=made.monotonic))
    return made


def refused_by_one() -> FakeDaemon:
    row = toy_row(2)
    hosts = [*row.hosts[:3], msgspec.structs.replace(row.hosts[3], state="failed", reason="refused_key")]
    return FakeDaemon(rows=[msgspec.structs.replace(row, hosts=hosts)])


async def test_what_is_hopeless_ends_the_wait_after_some_seconds_of_rounds(clock: Clock) -> None:
    polls = LongPoll(refused_by_one())
    for _ in range(3):
        assert not (await polls.wait("org/toy", 3, ALL, 0.0)).ready
        clock.now += HOPELESS_S / 3 + 0.01
    with pytest.raises(DeploymentEndedError, match=r"has ended on 1: node-4 failed refused_key") as caught:
        await polls.wait("org/toy", 3, ALL, 0.0)
    assert caught.value.code_of_exit is ExitCode.PARTIAL


async def test_what_is_gone_from_others_ends_a_wait_for_its_being_current(clock: Clock) -> None:
    polls, needed = LongPoll(refused_by_one()), HostsNeeded.parse("100%", "current")
    await polls.wait("org/toy", 3, needed, 0.0)
    clock.now += HOPELESS_S / 2
    await polls.wait("org/toy", 3, needed, 0.0)
    clock.now += HOPELESS_S / 2 + 0.01
    with pytest.raises(DeploymentEndedError, match=r"has ended on 1: node-4 failed refused_key"):
        await polls.wait("org/toy", 3, needed, 0.0)


async def test_an_object_that_is_too_short_ends_a_wait_some_time_later(clock: Clock) -> None:
    daemon = refused_by_one()
    row = daemon.rows[0]
    short = msgspec.structs.replace(row.hosts[3], state="downloading", reason="object_short")
    daemon.rows = [msgspec.structs.replace(row, hosts=[*row.hosts[:3], short])]
    polls = LongPoll(daemon)
    for _ in range(int(FILLING_S) // 4):
        assert not (await polls.wait("org/toy", 3, ALL, 0.0)).ready, "its upload may be under way"
        clock.now += 4.0
    with pytest.raises(DeploymentEndedError, match=r"goes on when somebody acts: node-4 downloading object_short"):
        await polls.wait("org/toy", 3, ALL, 0.0)


async def test_a_later_wait_has_its_own_patience(clock: Clock) -> None:
    polls = LongPoll(refused_by_one())
    await polls.wait("org/toy", 3, ALL, 0.0)
    clock.now += BETWEEN_ROUNDS_S + HOPELESS_S
    assert not (await polls.wait("org/toy", 3, ALL, 0.0)).ready


async def test_fewer_hosts_are_not_hopeless_and_hope_that_returns_counts(clock: Clock) -> None:
    daemon = refused_by_one()
    polls = LongPoll(daemon)
    for rows in (daemon.rows, [toy_row(2)], daemon.rows):
        daemon.rows = rows
        assert not (await polls.wait("org/toy", 3, ALL, 0.0)).ready
        clock.now += HOPELESS_S - 1
        assert not (await polls.wait("org/toy", 3, HostsNeeded.parse("3"), 0.0)).ready
    assert (await polls.wait("org/toy", 3, HostsNeeded.parse("2"), 0.0)).ready


async def test_a_share_of_the_hosts_that_a_start_has_found_so_far_is_not_enough(clock: Clock) -> None:
    daemon = FakeDaemon(settling_words="this host has found no other member yet")
    polls = LongPoll(daemon)
    row = daemon.rows[0]
    done = [msgspec.structs.replace(host, state="complete") for host in row.hosts]
    daemon.rows = [msgspec.structs.replace(row, hosts=done, hosts_complete=len(done))]
    answer = await polls.wait("org/toy", 3, ALL, 0.0)
    assert not answer.ready
    assert answer.sentence.endswith("; this host has found no other member yet, and may not have heard of all hosts")
    for enough in ("here", str(len(done))):
        assert (await polls.wait("org/toy", 3, HostsNeeded.parse(enough), 0.0)).ready
    daemon.settling_words = ""
    assert (await polls.wait("org/toy", 3, ALL, 0.0)).ready


async def test_a_start_that_has_found_few_hosts_yet_calls_no_wait_hopeless(clock: Clock) -> None:
    daemon = refused_by_one()
    daemon.settling_words = "this host is with others for 1 s only"
    polls = LongPoll(daemon)
    for _ in range(3):
        assert not (await polls.wait("org/toy", 3, ALL, 0.0)).ready
        clock.now += HOPELESS_S


@pytest.mark.parametrize(
    ("goal", "words"), [("current", "current on 0 of 4 hosts; not on: node-1"), ("removed", "removed from 0 of 4")]
)
async def test_other_goals_are_counted_and_named(clock: Clock, goal: str, words: str) -> None:
    polls = LongPoll(refused_by_one())
    answer = await polls.wait("org/toy", 3, HostsNeeded.parse("100%", goal), 0.0)
    assert not answer.ready
    assert words in answer.sentence


@pytest.mark.parametrize(("state", "reason"), [("cancelled", ""), ("removed", "removed"), ("failed", "refused_key")])
async def test_the_end_of_an_earlier_life_ends_no_wait(clock: Clock, state: str, reason: str) -> None:
    row = toy_row(2)
    hosts = [msgspec.structs.replace(host, state=state, reason=reason) for host in row.hosts]
    over = msgspec.structs.replace(
        row, hosts=hosts, state="cancelled" if state == "cancelled" else "failed", word="deploy"
    )
    daemon = FakeDaemon(rows=[over])
    polls = LongPoll(daemon)
    assert not (await polls.wait("org/toy", 3, ALL, 0.0)).ready, "it was deployed again a moment ago"
    clock.now += HOPELESS_S - 1
    daemon.rows = [row]
    assert not (await polls.wait("org/toy", 3, ALL, 0.0)).ready
    clock.now += 2
    daemon.rows = [over]
    assert not (await polls.wait("org/toy", 3, ALL, 0.0)).ready
    clock.now += HOPELESS_S
    with pytest.raises(DeploymentEndedError):
        await polls.wait("org/toy", 3, ALL, 0.0)


async def test_a_word_that_stops_it_ends_the_wait_at_once(clock: Clock) -> None:
    stopped = msgspec.structs.replace(toy_row(2), state="cancelled", word="cancel")
    with pytest.raises(DeploymentEndedError, match="was cancelled"):
        await LongPoll(FakeDaemon(rows=[stopped])).wait("org/toy", 3, ALL, 0.0)


async def test_an_end_is_waited_for_no_longer_while_an_object_is_too_short(clock: Clock) -> None:
    row = toy_row(2)
    hosts = [msgspec.structs.replace(host, state="failed", reason="refused_key") for host in row.hosts]
    hosts[1] = msgspec.structs.replace(hosts[1], reason="object_short")
    polls = LongPoll(FakeDaemon(rows=[msgspec.structs.replace(row, hosts=hosts, state="failed")]))
    assert not (await polls.wait("org/toy", 3, ALL, 0.0)).ready
    clock.now += HOPELESS_S
    with pytest.raises(DeploymentEndedError):
        await polls.wait("org/toy", 3, ALL, 0.0)


async def test_questions_of_others_keep_no_end_from_a_wait(clock: Clock) -> None:
    row = msgspec.structs.replace(toy_row(2), state="failed")
    polls = LongPoll(FakeDaemon(rows=[row]))
    for turn in range(2 * HOPELESS_MAX):
        await polls.wait("org/toy", 3, HostsNeeded(share=90.0 + turn / 100), 0.0)
    assert not (await polls.wait("org/toy", 3, ALL, 0.0)).ready
    clock.now += HOPELESS_S
    with pytest.raises(DeploymentEndedError):
        await polls.wait("org/toy", 3, ALL, 0.0)


async def test_a_caller_with_less_time_hears_of_an_end_that_was_so_all_along() -> None:
    row = msgspec.structs.replace(toy_row(2), state="failed")
    with pytest.raises(DeploymentEndedError):
        await LongPoll(FakeDaemon(rows=[row])).wait("org/toy", 3, ALL, 0.2)
    daemon = FakeDaemon(rows=[row])
    polls = LongPoll(daemon)

    async def begin_again() -> None:
        await trio.sleep(0.1)
        daemon.rows = [toy_row(2)]

    async with trio.open_nursery() as nursery:
        nursery.start_soon(begin_again)
        assert not (await polls.wait("org/toy", 3, ALL, 0.3)).ready
