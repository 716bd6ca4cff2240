"""Which heads of other hosts' audit chains count, and what the operator is told of them."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any, cast

import pytest
import trio
from trio.testing import MockClock

from gossipd.audit.witness import AuditHead, Witness
from gossipd.daemon.audit_gossip import (
    AHEAD_MS,
    CUTS_SHOWN_MAX,
    FIRST_S,
    STALE_MS,
    TELL_S,
    WITNESSES,
    AuditGossip,
    HeadRules,
)
from gossipd.daemon.member_directory import MemberDirectory
from gossipd.identity.keys import SecretKey
from membership.events import PayloadHeard, PayloadKind
from membership.member import NodeId
from tests.gossipd.daemon.test_state_dir import record

KEY, RECORD = SecretKey(bytes([1]) * 32), record(1)
NOW_MS = 1_800_000_000_000
STRANGER = NodeId(b"x" * 16)


def directory() -> MemberDirectory:
    made = MemberDirectory(record(9).node)
    made.begin(record(9), [RECORD])
    return made


def payload(issued_ms: int = NOW_MS, records: int = 5, key: SecretKey = KEY) -> bytes:
    return AuditHead(issued_ms, records, bytes(32)).signed(key)


@pytest.mark.parametrize(
    ("node", "version", "told", "counts"),
    [
        (RECORD.node, NOW_MS, payload(), True),
        (STRANGER, NOW_MS, payload(), False),
        (RECORD.node, NOW_MS + 1, payload(), False),
        (RECORD.node, NOW_MS, payload(key=SecretKey(b"x" * 32)), False),
        (RECORD.node, NOW_MS - STALE_MS - 1, payload(NOW_MS - STALE_MS - 1), False),
        (RECORD.node, NOW_MS + AHEAD_MS + 1, payload(NOW_MS + AHEAD_MS + 1), False),
        (RECORD.node, NOW_MS, b"", False),
    ],
)  # fmt: skip
def test_a_head_counts_when_its_host_signed_it_now(node: NodeId, version: int, told: bytes, counts: bool) -> None:
    rules = HeadRules(directory(), Witness(), wall_clock=lambda: NOW_MS / 1000)
    assert (rules.judge(node, version, told) is not None) is counts


def test_a_head_that_was_heard_does_not_count_again() -> None:
    witness = Witness()
    rules = HeadRules(directory(), witness, wall_clock=lambda: NOW_MS / 1000)
    witness.heard(RECORD.node, "node-1", AuditHead(NOW_MS, 5, bytes(32)))
    assert rules.judge(RECORD.node, NOW_MS, payload()) is None


class Parts:
    """The gossip of one host, what it told, and its alarms."""

    def __init__(self) -> None:
        self.position: tuple[int, str] | None = (3, "ab" * 32)
        self.told: list[tuple[int, bytes, int]] = []
        self.kept: list[bytes] = []
        self.rung: list[tuple[str, str]] = []
        self.witness = Witness()
        self.gossip = AuditGossip(
            cast(Any, self), self.witness, cast(Any, SimpleNamespace(tell_head=lambda *what: self.told.append(what))),
            directory(), cast(Any, SimpleNamespace(keep_witness=self.kept.append)),
            cast(Any, self),
            cast(Any, SimpleNamespace(keys=SimpleNamespace(node=KEY))),
        )  # fmt: skip

    def ring(self, code: str, sentence: str, *, of_others: bool) -> None:
        assert of_others
        self.rung.append((code, sentence))

    def cured(self, code: str) -> None:
        self.rung.clear()

    def hear(self, issued_ms: int, records: int) -> None:
        told = payload(issued_ms, records)
        event = PayloadHeard(RECORD.node, RECORD.node, PayloadKind.AUDIT, RECORD.node, issued_ms, told)
        self.gossip.heard(event)


async def run_for(parts: Parts, seconds: float, monkeypatch: pytest.MonkeyPatch) -> None:
    async def here(work: Any, *what: object) -> object:
        """In place of a thread, for which a clock that jumps does not wait."""
        return work(*what)

    monkeypatch.setattr("gossipd.daemon.audit_gossip.run_blocking", here)
    with trio.move_on_after(seconds):
        await parts.gossip.run()


async def test_the_head_is_told_to_three_hosts_each_minute_once_it_is_known(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = Parts()
    await run_for(parts, FIRST_S + 2.5 * TELL_S, monkeypatch)
    assert [count for _, _, count in parts.told] == [WITNESSES] * 3
    opened = AuditHead.opened(parts.told[0][1], KEY.public.ed25519)
    assert opened is not None
    assert (opened.records, opened.hash.hex()) == parts.position
    assert parts.told[0][0] == opened.issued_ms < parts.told[1][0]
    parts = Parts()
    parts.position = None
    await run_for(parts, FIRST_S + TELL_S, monkeypatch)
    assert parts.told == [], "what is on the disk is not known yet"


async def test_a_cut_is_an_alarm_and_what_was_heard_is_kept(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_ms = int(time.time() * 1000)
    parts = Parts()
    parts.hear(now_ms - 120_000, 9)
    assert parts.rung == []
    parts.hear(now_ms - 60_000, 4)
    ((code, sentence),) = parts.rung
    assert code == "E_AUDIT_CUT"
    assert "node-1" in sentence
    parts.witness.revision += 1
    await run_for(parts, FIRST_S + 1.5 * TELL_S, monkeypatch)
    assert len(parts.rung) == 1, "the same alarm"


def test_many_hosts_with_cut_logs_are_a_few_alarms_that_stay() -> None:
    now_ms, parts = int(time.time() * 1000), Parts()
    for number in range(3 * CUTS_SHOWN_MAX):
        for minute, records in ((3, 9), (2, 4)):
            head = AuditHead(now_ms - minute * 60_000, records, bytes(32))
            parts.witness.heard(bytes([number]) * 16, f"h{number}", head)
    parts.gossip.show()
    first = list(parts.rung)
    assert len(first) == CUTS_SHOWN_MAX
    parts.witness.heard(bytes(16), "h0", AuditHead(now_ms, 4, bytes(32)))  # it is the last of the table now
    parts.gossip.show()
    assert parts.rung == first
