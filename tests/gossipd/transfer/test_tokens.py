"""Tokens open one connection, for the node they were given to, for a short time; all are bounded."""

from __future__ import annotations

import pytest

from gossipd.transfer.tokens import TOKENS_AHEAD, TOKENS_MAX, TOKENS_PER_NODE_MAX, IssuedTokens, ReceivedTokens
from membership.member import NodeId

A, B = NodeId(b"a" * 16), NodeId(b"b" * 16)


def test_a_token_is_redeemed_once_and_for_the_node_it_was_given_to() -> None:
    book = IssuedTokens()
    token = book.issue(A)
    assert book.redeem(token) == A
    assert book.redeem(token) is None


def test_a_token_nobody_issued_is_worth_nothing() -> None:
    book = IssuedTokens()
    book.issue(A)
    assert book.redeem(bytes(32)) is None
    assert book.redeem(b"") is None


def test_tokens_expire(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr("gossipd.transfer.tokens.time.monotonic", lambda: now)
    book = IssuedTokens(life_s=10)
    token = book.issue(A)
    now = 109.9
    fresh = book.issue(A)
    now = 110.0
    assert book.redeem(token) is None
    assert book.redeem(fresh) == A


def test_one_node_cannot_crowd_out_others() -> None:
    book = IssuedTokens()
    other = book.issue(B)
    tokens = [book.issue(A) for _ in range(TOKENS_PER_NODE_MAX + 1)]
    assert len(book) == TOKENS_PER_NODE_MAX + 1
    assert book.redeem(tokens[0]) is None
    assert book.redeem(tokens[-1]) == A
    assert book.redeem(other) == B


def test_the_book_is_bounded() -> None:
    book = IssuedTokens()
    for number in range(TOKENS_MAX + 10):
        book.issue(NodeId(number.to_bytes(16, "big")))
    assert len(book) == TOKENS_MAX


def test_tokens_given_ahead_take_the_place_of_those_before_and_of_none_that_was_asked_for() -> None:
    book = IssuedTokens()
    asked = book.issue(A)
    given = [book.issue_ahead(A) for _ in range(TOKENS_PER_NODE_MAX)]
    assert len(book) == 1 + TOKENS_AHEAD
    assert book.redeem(given[-2][0]) is None
    assert [book.redeem(token) for token in given[-1]] == [A] * TOKENS_AHEAD
    assert book.redeem(asked) == A
    assert len(book) == 0


def test_tokens_given_ahead_that_were_used_or_have_expired_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr("gossipd.transfer.tokens.time.monotonic", lambda: now)
    book = IssuedTokens(life_s=10)
    book.redeem(book.issue_ahead(A)[0])
    now += 10.0
    asked = book.issue(A)
    book.issue_ahead(A)
    assert len(book) == 1 + TOKENS_AHEAD
    assert book.redeem(asked) == A
    now += 10.0
    book.redeem(bytes(32))
    assert not book._ahead


def test_each_token_given_ahead_is_taken_once_and_those_given_last_count() -> None:
    received_tokens = ReceivedTokens()
    received_tokens.put(A, [b"old"], 10)
    received_tokens.put(A, [b"one", b"two"], 10)
    received_tokens.put(B, [b"other"], 10)
    assert {received_tokens.take(A), received_tokens.take(A)} == {b"one", b"two"}
    assert received_tokens.take(A) is None
    assert received_tokens.take(B) == b"other"


def test_a_token_given_ahead_is_used_in_the_first_half_of_its_life_only(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr("gossipd.transfer.tokens.time.monotonic", lambda: now)
    received_tokens = ReceivedTokens()
    received_tokens.put(A, [b"one", b"two"], 10)
    now = 104.9
    assert received_tokens.take(A) is not None
    now = 105.0
    assert received_tokens.take(A) is None


def test_tokens_of_a_node_that_takes_none_of_them_are_forgotten() -> None:
    received_tokens = ReceivedTokens()
    received_tokens.put(A, [b"one"], 10)
    received_tokens.forget(A)
    received_tokens.forget(B)
    assert received_tokens.take(A) is None


def test_received_tokens_are_bounded_and_the_oldest_make_room() -> None:
    received_tokens = ReceivedTokens()
    nodes = [NodeId(number.to_bytes(16, "big")) for number in range(TOKENS_MAX // TOKENS_PER_NODE_MAX + 1)]
    for node in nodes:
        received_tokens.put(node, [bytes(32)] * (TOKENS_PER_NODE_MAX + 1), 10)
    assert received_tokens.take(nodes[0]) is None
    assert (
        sum(received_tokens.take(nodes[1]) is not None for _ in range(TOKENS_PER_NODE_MAX + 1)) == TOKENS_PER_NODE_MAX
    )
