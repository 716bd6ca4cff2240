"""What the control delegate records of unknown keys, and the tokens it gives to members and takes from them."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import trio
from trio.testing import MockClock

from gossipd.audit.chain_file import verify_audit
from gossipd.audit.log import SUBJECT_BURST, AuditLog
from gossipd.control.authenticator import Identity
from gossipd.core.ids import DeploymentId
from gossipd.daemon.control_delegate import DOUBTED_MAX, PROBE_S, PROBES, BulkTokens, ControlDelegate
from gossipd.transfer.tokens import TOKEN_LIFE_S, TOKENS_AHEAD, TOKENS_ASKED_BURST, IssuedTokens, ReceivedTokens
from gossipd.wire import control
from membership.member import NodeId
from tests.gossipd.daemon.test_state_dir import record

A, B = NodeId(b"a" * 16), NodeId(b"b" * 16)


@pytest.mark.parametrize("form", ["10.0.0.{host}", "tcp://10.0.0.{host}:{port}", "tcp://[fe80::{host}]:{port}"])
async def test_b29_a_stranger_that_knocks_for_ever_is_written_down_a_few_times(
    tmp_path: Path, autojump_clock: MockClock, form: str
) -> None:
    audit = AuditLog(tmp_path / "audit.jsonl", wall=lambda: 1_790_000_000.0)
    delegate = delegate_of(None, ReceivedTokens(), audit)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(audit.run)
        for port in range(1024, 6024):
            delegate.on_refused("handshake", form.format(host=7, port=port), b"")
        delegate.on_refused("handshake", form.format(host=8, port=9), b"")
        await trio.sleep(1.0)
        nursery.cancel_scope.cancel()
    assert verify_audit(tmp_path / "audit.jsonl").problem is None
    text = (tmp_path / "audit.jsonl").read_text()
    assert text.count('"stranger refused"') == SUBJECT_BURST + 1


def delegate_of(
    issued: IssuedTokens | None, received: ReceivedTokens, audit: AuditLog | None = None
) -> ControlDelegate:
    nothing: Any = None
    return ControlDelegate(
        directory=nothing, live=nothing, tokens=BulkTokens(issued, received), driver=nothing, trigger_server=nothing,
        audit=cast(AuditLog, audit), membership_host=nothing,
        self_checks=cast(Any, SimpleNamespace(explain=lambda address, key: False)), sketches=nothing,
    )  # fmt: skip


def test_tokens_that_go_with_holdings_open_connections_of_the_peer_that_has_them() -> None:
    book, received_tokens = IssuedTokens(), ReceivedTokens()
    given, valid_s = delegate_of(book, ReceivedTokens()).tokens_for(A)
    assert [book.redeem(token) for token in given] == [A] * TOKENS_AHEAD
    delegate_of(IssuedTokens(), received_tokens).on_tokens(B, given, valid_s)
    assert received_tokens.take(B) in given


def test_without_connections_in_clear_no_tokens_are_given_or_kept() -> None:
    received_tokens = ReceivedTokens()
    delegate = delegate_of(None, received_tokens)
    assert delegate.tokens_for(A) == ((), 0)
    delegate.on_tokens(B, (bytes(32),), 10)
    assert received_tokens.take(B) is None


def test_a_peer_cannot_have_its_tokens_kept_for_longer_than_any_is_good(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr("gossipd.transfer.tokens.time.monotonic", lambda: now)
    received_tokens = ReceivedTokens()
    delegate_of(IssuedTokens(), received_tokens).on_tokens(B, (bytes(32),), 65_535)
    now += TOKEN_LIFE_S
    assert received_tokens.take(B) is None


def test_tokens_without_end_are_refused_to_one_and_given_to_another() -> None:
    delegate, replies = delegate_of(IssuedTokens(), ReceivedTokens()), list[control.Message]()
    for _ in range(2 * TOKENS_ASKED_BURST):
        delegate.on_request(Identity(node=A), control.TokenWanted(), replies.append)
    assert TOKENS_ASKED_BURST <= sum(isinstance(one, control.Token) for one in replies) < 2 * TOKENS_ASKED_BURST
    assert replies[-1] == control.Refused("E_BUSY")
    delegate.on_request(Identity(node=B), control.TokenWanted(), replies.append)
    assert isinstance(replies[-1], control.Token)


async def test_a_members_question_for_a_sketch_is_answered_by_who_it_is() -> None:
    delegate, replies = delegate_of(None, ReceivedTokens()), list[control.Message]()
    delegate.sketches = cast(Any, SimpleNamespace(answer=lambda node, which, now: control.Sketch(node, len(which))))
    delegate.on_request(Identity(node=A), control.SketchWanted(DeploymentId(bytes(32))), replies.append)
    assert replies == [control.Sketch(A, 32)]


async def test_a_probe_that_only_looks_at_the_port_is_no_stranger(autojump_clock: MockClock) -> None:
    told: list[str] = []
    audit = SimpleNamespace(record=lambda event, *, subject, reason: told.append(subject))
    delegate = delegate_of(None, ReceivedTokens(), cast(Any, audit))
    for _ in range(20):  # a load balancer's
        delegate.on_refused("unfinished", "10.0.0.1", b"")
        await trio.sleep(PROBE_S)
    for host in range(100):  # each host's doctor
        delegate.on_refused("unfinished", f"10.0.1.{host}", b"")
        delegate.on_refused("unfinished", "", b"")
    assert told == []
    for _ in range(10):  # a socket without encryption, which dials again and again
        delegate.on_refused("unfinished", "10.0.0.1", b"")
        await trio.sleep(0.1)
    assert told == ["10.0.0.1"] * (10 - PROBES)
    delegate.on_refused("handshake", "10.0.0.2", b"")
    assert told[-1] == "10.0.0.2", "it has spoken, and nothing of ours"


def test_where_a_member_is_says_in_which_life_it_is() -> None:
    delegate = delegate_of(None, ReceivedTokens(), cast(Any, None))
    known = record(1)
    delegate.directory = cast(Any, SimpleNamespace(record={known.node: known}.get))
    found = delegate.endpoint_of(known.node)
    assert found is not None
    assert (found.host, found.port, found.boot) == (known.host, known.port, known.boot)
    assert delegate.endpoint_of(A) is None


async def test_a_joiner_whose_record_was_on_its_way_is_no_stranger(autojump_clock: MockClock) -> None:
    told: list[str] = []
    members: dict[bytes, NodeId] = {}
    audit = SimpleNamespace(record=lambda event, *, subject, reason: told.append(subject))
    delegate = delegate_of(None, ReceivedTokens(), cast(Any, audit))
    delegate.directory = cast(Any, SimpleNamespace(member_of=lambda key, address: members.get(key)))
    delegate.live = cast(Any, SimpleNamespace(clients=()))
    delegate.on_refused("unknown_key", "10.0.0.1", b"j" * 32)
    delegate.on_refused("unknown_key", "10.0.0.2", b"s" * 32)
    await trio.sleep(9.0)
    members[b"j" * 32] = A
    delegate.record_refusals()
    assert told == []
    await trio.sleep(2.0)
    delegate.record_refusals()
    assert told == ["10.0.0.2"]
    for _ in range(DOUBTED_MAX + 1):
        delegate.on_refused("unknown_key", "10.0.0.3", b"s" * 32)
    assert told == ["10.0.0.2", "10.0.0.3"], "what is doubted is bounded"
