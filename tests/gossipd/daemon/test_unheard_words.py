"""Words of members that have not spoken yet: what is kept of them, and for how long."""

from __future__ import annotations

from gossipd.daemon.unheard_words import AUTHORS_MAX, WORDS_PER_AUTHOR_MAX, UnheardWords
from membership.events import PayloadHeard, PayloadKind
from membership.member import NodeId

A = NodeId(b"a" * 16)


def word(key: int, version: int = 1, author: NodeId = A) -> PayloadHeard:
    return PayloadHeard(author, author, PayloadKind.PROGRESS, key.to_bytes(4), version, b"")


def test_the_last_word_under_each_key_is_given_once() -> None:
    words = UnheardWords()
    for one in (word(1), word(2), word(1, version=2)):
        words.hold(A, one)
    assert words.take(A) == [word(2), word(1, version=2)]
    assert words.take(A) == []


def test_one_author_has_room_for_so_many_words() -> None:
    words = UnheardWords()
    for key in range(WORDS_PER_AUTHOR_MAX + 1):
        words.hold(A, word(key))
    assert [one.key for one in words.take(A)] == [word(key).key for key in range(1, WORDS_PER_AUTHOR_MAX + 1)]


def test_the_oldest_author_makes_room_for_new_ones() -> None:
    words = UnheardWords()
    authors = [NodeId(number.to_bytes(16)) for number in range(AUTHORS_MAX + 1)]
    for author in authors:
        words.hold(author, word(1, author=author))
    assert words.take(authors[0]) == []
    assert len(words.take(authors[1])) == len(words.take(authors[-1])) == 1
