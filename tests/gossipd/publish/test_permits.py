"""Which user may publish which names, and with which key, by values."""

from __future__ import annotations

import pytest

from gossipd.identity.keys import SecretKey
from gossipd.publish.permits import MayNotPublishError, check_permit, signing_key

PERMITS = (("alice", ("train/*", "run-?")), ("1002", ("eval/*",)), ("nobody-here", ("*",)))
NUMBERS = {"alice": 1001}


def check(user: int, name: str) -> None:
    check_permit(user, name, own_user=500, permits=PERMITS, number_of=NUMBERS.get)


@pytest.mark.parametrize(
    ("user", "name"), [(0, "prod/x"), (500, "prod/x"), (1001, "train/a"), (1001, "run-7"), (1002, "eval/b")]
)
def test_users_publish_their_own_names(user: int, name: str) -> None:
    check(user, name)


@pytest.mark.parametrize(
    ("user", "name", "words"),
    [
        (1001, "prod/x", "allows it train/"),
        (1001, "run-77", "allows it"),
        (1002, "train/a", "allows it eval"),
        (1003, "train/a", "does not name it"),
        (-1, "train/a", "does not name it"),
    ],
)
def test_others_are_refused_and_told_what_they_may(user: int, name: str, words: str) -> None:
    with pytest.raises(MayNotPublishError, match=f"user {user} may not publish {name} .*{words}"):
        check(user, name)


def test_the_first_key_that_this_host_trusts_for_the_name_signs() -> None:
    stranger, training, all_names = (SecretKey(bytes([number]) * 32) for number in (1, 2, 3))
    trusted = {training.public.ed25519: ("train/*",), all_names.public.ed25519: ("*",)}
    keys = (stranger, training, all_names)
    assert signing_key(keys, trusted, "train/a") is training
    assert signing_key(keys, trusted, "prod/a") is all_names
    with pytest.raises(MayNotPublishError, match=r"no key that may sign prod/a; name a key in publish.keys") as caught:
        signing_key((stranger, training), trusted, "prod/a")
    assert caught.value.code == "E_NO_SIGNING_KEY"
