"""Tokens open one connection, for the node they were given to, for a short time; the book is bounded."""

from __future__ import annotations

import pytest

from gossipd.transfer.tokens import TOKENS_MAX, TOKENS_PER_NODE_MAX, TokenBook
from membership.member import NodeId

A, B = NodeId(b"a" * 16), NodeId(b"b" * 16)


def test_a_token_is_redeemed_once_by_whoever_holds_it_for_the_node_it_was_given_to() -> None:
    book = TokenBook()
    token = book.issue(A)
    assert book.redeem(token) == A
    assert book.redeem(token) is None


def test_a_token_nobody_issued_is_worth_nothing() -> None:
    book = TokenBook()
    book.issue(A)
    assert book.redeem(bytes(32)) is None
    assert book.redeem(b"") is None


def test_tokens_expire(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr("gossipd.transfer.tokens.time.monotonic", lambda: now)
    book = TokenBook(life_s=10)
    token = book.issue(A)
    now = 109.9
    fresh = book.issue(A)
    now = 110.0
    assert book.redeem(token) is None
    assert book.redeem(fresh) == A


def test_one_node_cannot_crowd_out_others() -> None:
    book = TokenBook()
    other = book.issue(B)
    tokens = [book.issue(A) for _ in range(TOKENS_PER_NODE_MAX + 1)]
    assert len(book) == TOKENS_PER_NODE_MAX + 1
    assert book.redeem(tokens[0]) is None
    assert book.redeem(tokens[-1]) == A
    assert book.redeem(other) == B


def test_the_book_is_bounded() -> None:
    book = TokenBook()
    for number in range(TOKENS_MAX + 10):
        book.issue(NodeId(number.to_bytes(16, "big")))
    assert len(book) == TOKENS_MAX
