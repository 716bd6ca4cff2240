"""What an operator must act on is shown until it is cured, and told once as an event."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import trio
import trio.testing
from msgspec.structs import replace
from trio.testing import MockClock

from gossipd.audit.log import SUBJECT_BURST, AuditLog
from gossipd.audit.witness import Witness
from gossipd.core.events import Event, IsolationChanged
from gossipd.core.targets import Targets
from gossipd.daemon.alarms import ALARMS_MAX, Alarms, WordRefusals
from gossipd.daemon.member_directory import MemberDirectory
from gossipd.daemon.state_dir import StateDirectory, StateWriteError
from gossipd.daemon.state_saver import KEEP_BYTES_PER_S, LOOK_S, REFRESHED_KEEP_S, StateSaver
from gossipd.deployment.statement_store import StatementStore
from gossipd.manifest.errors import ManifestError
from membership import events as membership_events
from membership.events import DownReason
from membership.member import Member, MemberState, NodeId, Record
from tests.gossipd.daemon.listeners import QuietListener
from tests.gossipd.daemon.test_state_dir import record
from tests.gossipd.manifest.making import manifest

OTHER = NodeId(b"o" * 16)


class Told:
    """Alarms, and what the audit log is told of them."""

    def __init__(self) -> None:
        self.events: list[tuple[str, str]] = []
        self.alarms = Alarms(cast(Any, self))

    def record(self, event: str, *, subject: str | None = None, code: str, reason: str) -> None:
        assert event == "alarm"
        self.events.append((code, reason))

    @property
    def codes(self) -> list[str]:
        return [row.code for row in self.alarms.rows.values()]


@pytest.fixture
def told() -> Told:
    return Told()


def test_a_sentence_with_anybody_s_names_is_printable_and_still_one_alarm(told: Told) -> None:
    for _ in range(2):
        told.alarms.ring_as("E_STEPS", "not published: step\udcff\x1b[2J")
        told.alarms.ring("E_STEPS", "not published: step\udcff\x1b[2J")
    assert [row.sentence for row in told.alarms.rows.values()] == [r"not published: step\udcff\x1b[2J"]
    assert told.events == [("E_STEPS", r"not published: step\udcff\x1b[2J")]


def test_an_alarm_in_other_words_goes_on_and_another_of_its_code_begins(told: Told) -> None:
    told.alarms.ring_as("E_STEPS", "a")
    told.alarms.ring_as("E_STEPS", "b")
    assert list(told.alarms.numbers.values()) == [1], "it goes on"
    told.alarms.cured("E_STEPS")
    told.alarms.ring("E_NAME_CONFLICT", "a")
    told.alarms.ring("E_NAME_CONFLICT", "b")
    told.alarms._end([told.alarms.rows["E_NAME_CONFLICT", "a"]])
    told.alarms.ring("E_NAME_CONFLICT", "c")
    assert len(set(told.alarms.numbers.values())) == 2
    assert told.alarms.numbers["E_NAME_CONFLICT", "c"] == max(told.alarms.numbers.values()), "none of those before"
    assert told.alarms.numbers.keys() == told.alarms.rows.keys()


def test_an_alarm_is_one_row_and_one_event_however_often_it_rings_until_it_is_cured(told: Told) -> None:
    for _ in range(3):
        told.alarms.ring("E_STATE_WRITE", "state/register cannot be written: disk full")
    told.alarms.ring("E_NAME_CONFLICT", "another live host has the name a; rename one of the two")
    assert told.codes == ["E_STATE_WRITE", "E_NAME_CONFLICT"]
    assert len(told.events) == 2
    told.alarms.cured("E_STATE_WRITE")
    assert told.codes == ["E_NAME_CONFLICT"]
    told.alarms.ring("E_STATE_WRITE", "state/register cannot be written: disk full")
    assert len(told.events) == 3, "it came back, which is news"


def test_alarms_are_bounded(told: Told) -> None:
    for number in range(ALARMS_MAX + 10):
        told.alarms.ring("E_NAME_CONFLICT", str(number))
    assert len(told.alarms.rows) == ALARMS_MAX


def test_alarms_of_one_code_push_out_only_each_other(told: Told) -> None:
    told.alarms.ring("E_STATE_WRITE", "state/register cannot be written: disk full")
    for number in range(2 * ALARMS_MAX):
        told.alarms.ring("E_AUDIT_CUT", str(number), of_others=True)
    assert ("E_STATE_WRITE", "state/register cannot be written: disk full") in told.alarms.rows
    assert ("E_AUDIT_CUT", str(2 * ALARMS_MAX - 1)) in told.alarms.rows


def test_refused_words_of_a_member_that_changes_its_name_are_counted_together(tmp_path: Path) -> None:
    audit, directory, member = AuditLog(tmp_path / "audit.jsonl"), MemberDirectory(OTHER), record(2)
    refusals = WordRefusals(audit, directory)
    for number in range(100):
        directory._put(replace(member, name=f"node-{number}"))
        refusals.word_refused(member.public_key, "E_MAY_NOT_CANCEL")
    told = [one["subject"] for one in audit._waiting]
    assert told == [f"node-{number}" for number in range(SUBJECT_BURST)]
    refusals.word_refused(record(3).public_key, "E_MAY_NOT_CANCEL")
    assert audit._waiting[-1]["subject"] == "no member", "others are not concerned"


def test_alarms_that_others_bring_about_do_not_fill_the_audit_log(tmp_path: Path) -> None:
    audit = AuditLog(tmp_path / "audit.jsonl")
    alarms = Alarms(audit)
    for number in range(100):
        alarms.ring("E_AUDIT_CUT", f"the log of h had {number} records", of_others=True)
        alarms.cured("E_AUDIT_CUT")
    alarms.ring("E_IDENTITY_TWICE", "two hosts", of_others=True)
    alarms.ring("E_STATE_WRITE", "disk full")
    codes = [one["code"] for one in audit._waiting]
    assert codes == ["E_AUDIT_CUT"] * SUBJECT_BURST + ["E_IDENTITY_TWICE", "E_STATE_WRITE"]


# ---- what membership says ----


class Heard(QuietListener):
    """A directory of members whose listener tells alarms and a list of events."""

    def __init__(self, told: Told) -> None:
        self.posted: list[Event] = []
        super().__init__(self.posted.append)
        self._told = told
        self._directory = MemberDirectory(NodeId(b"n" * 16))

    def hear(self, event: membership_events.Event) -> None:
        self._directory.hear(event, self)

    def alarm(self, code: str, sentence: str) -> None:
        self._told.alarms.ring(code, sentence)

    def cured(self, code: str) -> None:
        self._told.alarms.cured(code)


def test_b26_not_being_let_in_is_an_alarm_until_we_see_another_host(told: Told) -> None:
    heard = Heard(told)
    heard.hear(membership_events.JoinRefused("the name node-1 belongs to a living member at 10.0.0.9:7946"))
    assert told.codes == ["E_JOIN_REFUSED"]
    assert "10.0.0.9:7946" in told.events[0][1]
    heard.hear(membership_events.MemberUp(Member(record(2), MemberState.ALIVE, 0, 0.0)))
    assert told.codes == [], "we were let in"


def test_being_cut_off_is_an_alarm_until_it_is_over(told: Told) -> None:
    heard = Heard(told)
    heard.hear(membership_events.Isolated(True))
    assert told.codes == ["E_ISOLATED"]
    heard.hear(membership_events.Isolated(False))
    assert told.codes == []
    assert heard.posted == [IsolationChanged(True), IsolationChanged(False)]


# ---- what is kept on disk ----


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StateDirectory]:
    async def here(work: Callable[..., object], *what: object) -> object:
        """In place of a thread, for which a clock that jumps does not wait."""
        return work(*what)

    monkeypatch.setattr("gossipd.daemon.state_saver.run_blocking", here)
    made = StateDirectory(tmp_path / "state")
    yield made
    made.close()


class Table:
    """Stands for membership and the table of progress: nothing of theirs changes."""

    revision = 0

    def to_bytes(self) -> bytes:
        return b""

    def roster_records(self) -> list[object]:
        return []

    def tombstones(self) -> list[object]:
        return []


def state_saver(state: StateDirectory, register: StatementStore, told: Told) -> StateSaver:
    nothing = cast(Any, Table())
    return StateSaver(
        state=state,
        register=register,
        lifecycle=cast(Any, SimpleNamespace(label=lambda name, version: f"{name}@step-{version}")),
        swim=nothing,
        table=nothing,
        alarms=told.alarms,
        witness=Witness(),
    )


async def test_b18_two_contents_of_one_version_are_an_alarm_with_both_names_also_after_a_restart(
    state: StateDirectory, told: Told, autojump_clock: MockClock
) -> None:
    register = StatementStore()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(state_saver(state, register, told).run)
        await trio.testing.wait_all_tasks_blocked()
        first, second = manifest(version=3), manifest(version=3, created_s=1_790_000_001)
        register.accept(first, 1_790_000_100.0)
        with pytest.raises(ManifestError, match="publish changed content") as caught:
            register.accept(second, 1_790_000_100.0)
        assert caught.value.code == "E_EQUIVOCATION"
        await trio.sleep(3 * LOOK_S)
        nursery.cancel_scope.cancel()
    assert told.codes == ["E_EQUIVOCATION"]
    assert told.events[0][1].startswith("org/model@step-3 has two contents"), "as the lifecycle writes it"
    assert first.id.hex()[:12] in told.events[0][1]
    assert second.id.hex()[:12] in told.events[0][1]
    later = Told()
    with trio.move_on_after(0.5 * LOOK_S):
        await state_saver(state, state.register(), later).run()
    assert later.events == told.events


async def test_a_state_that_cannot_be_written_is_an_alarm_until_it_can(
    state: StateDirectory, told: Told, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    register = StatementStore()

    def refuse(*_: object) -> None:
        raise StateWriteError("state/register cannot be written: No space left on device")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(state_saver(state, register, told).run)
        await trio.testing.wait_all_tasks_blocked()
        with monkeypatch.context() as patch:
            patch.setattr(state, "keep_register", refuse)
            register.accept(manifest(), 1_790_000_100.0)
            await trio.sleep(3 * LOOK_S)
            assert told.codes == ["E_STATE_WRITE"]
        await trio.sleep(3 * LOOK_S)
        assert told.codes == []
        nursery.cancel_scope.cancel()
    assert state.register().state.versions["org/model"]


async def test_a_progress_table_that_could_not_be_written_is_written_at_the_next_look(
    state: StateDirectory, told: Told, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: list[bytes] = []

    def refuse_once(table: bytes) -> None:
        kept.append(table)
        if len(kept) == 1:
            raise StateWriteError("state/progress cannot be written: Input/output error")

    monkeypatch.setattr(Table, "to_bytes", lambda _: b"progress")
    monkeypatch.setattr(state, "keep_progress", refuse_once)
    with trio.move_on_after(5.5 * LOOK_S):
        await state_saver(state, StatementStore(), told).run()
    assert kept == [b"progress"] * 2, "refused, then written, then nothing new"


async def test_a_large_progress_table_is_written_so_much_more_rarely_that_its_rate_is_bounded(
    state: StateDirectory, told: Told, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: list[int] = []
    saver = state_saver(state, StatementStore(), told)

    def changes(table: Table) -> bytes:
        table.revision += 1
        return bytes(20 * KEEP_BYTES_PER_S)

    monkeypatch.setattr(Table, "to_bytes", changes)
    monkeypatch.setattr(state, "keep_progress", lambda table: kept.append(len(table)))
    with trio.move_on_after(100.5 * LOOK_S):
        await saver.run()
    assert sum(kept) <= 120 * KEEP_BYTES_PER_S
    assert len(kept) >= 4


def test_an_address_is_a_members_until_the_last_record_that_names_it_moves() -> None:
    directory = MemberDirectory(OTHER)
    directory.begin(record(1), [record(2)])
    assert directory.is_member_address("127.0.0.1")
    directory.begin(replace(record(1), host="10.0.0.1"), [])
    assert directory.is_member_address("127.0.0.1")
    directory.begin(replace(record(2), host="10.0.0.2"), [])
    assert not directory.is_member_address("127.0.0.1")
    assert directory.is_member_address("10.0.0.2")


def test_a_member_has_answered_until_it_is_elsewhere_or_lost_or_forgotten() -> None:
    directory, listener = MemberDirectory(OTHER), QuietListener(lambda event: None)
    one, two = record(1), record(2)
    directory.begin(record(9), [one])
    for each in (one, two):
        directory.hear(membership_events.MemberUp(Member(each, MemberState.ALIVE, 0, 0.0)), listener)
    assert directory.live() == {one.node, two.node}
    assert directory.answered() == {one.node}, "in an earlier run"
    directory.hear(membership_events.MemberAnswered(two.node), listener)
    assert directory.answered() == {one.node, two.node}
    moved = replace(two, host="10.0.0.2")
    directory.hear(membership_events.MemberChanged(Member(moved, MemberState.ALIVE, 0, 0.0)), listener)
    assert directory.answered() == {one.node}
    directory.hear(membership_events.MemberDown(Member(one, MemberState.DEAD, 0, 0.0), DownReason.FORGOTTEN), listener)
    assert directory.answered() == set()


def test_a_key_that_another_member_names_stays_its_owners() -> None:
    own, victim = record(9), replace(record(1), host="10.0.0.1")
    directory, listener = MemberDirectory(own.node), QuietListener(lambda event: None)
    liar = replace(record(2), host="10.0.0.2", transport_key=victim.transport_key)
    key = victim.transport_key

    def up(*records: Record) -> None:
        for one in records:
            directory.hear(membership_events.MemberUp(Member(one, MemberState.ALIVE, 0, 0.0)), listener)

    directory.begin(own, [])
    up(liar, victim)  # the liar was first on this host
    assert directory.member_of(key, "10.0.0.1") == victim.node
    assert directory.member_of(key, "10.0.0.2") == liar.node
    assert directory.member_of(key, "10.0.0.77") == liar.node, "from elsewhere: nothing tells them apart"
    up(replace(liar, host="10.0.0.1"))  # and names the victim's address, too
    directory.hear(membership_events.MemberAnswered(victim.node), listener)
    assert directory.member_of(key, "10.0.0.1") == victim.node
    up(replace(liar, transport_key=own.transport_key))
    assert directory.member_of(own.transport_key, liar.host) == own.node
    assert directory.member_of(key, "") == victim.node
    up(replace(liar, transport_key=b"t" * 32))
    assert directory.member_of(key, "10.0.0.1") == victim.node
    assert directory.member_of(own.transport_key, "127.0.0.1") == own.node


def test_a_target_is_who_its_own_record_says() -> None:
    directory = MemberDirectory(OTHER)
    directory.begin(replace(record(1), name="gpu-1", rack="r1"), [])
    node = record(1).node
    assert directory.is_target(node, Targets(racks=("r1",), names=("gpu-*",)))
    assert not directory.is_target(node, Targets(racks=("r2",)))
    assert not directory.is_target(OTHER, Targets()), "it is no member"


async def test_progress_that_says_something_new_is_kept_at_once_and_repetitions_once_a_minute(
    state: StateDirectory, told: Told, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept_s: list[float] = []
    monkeypatch.setattr(state, "keep_progress", lambda _: kept_s.append(trio.current_time()))
    saver = state_saver(state, StatementStore(), told)
    with trio.move_on_after(100.0):
        await saver.run()
    assert len(kept_s) == 2
    assert kept_s[1] - kept_s[0] == pytest.approx(REFRESHED_KEEP_S, abs=LOOK_S)
    kept_s.clear()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(saver.run)
        await trio.sleep(8 * LOOK_S)
        monkeypatch.setattr(Table, "revision", 1)
        await trio.sleep(2 * LOOK_S)
        nursery.cancel_scope.cancel()
    assert len(kept_s) == 2
