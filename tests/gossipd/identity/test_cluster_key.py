"""The cluster key's text form and its rotation."""

from __future__ import annotations

import pytest

from gossipd.identity.cluster_key import (
    KEYS_MAX,
    ClusterKeyError,
    add_key,
    format_key_ring,
    keep_first,
    new_key_ring,
    parse_key_ring,
    send_with_newest,
)

RING = new_key_ring(bytes(range(48)))
TEXT = format_key_ring(RING)


def test_a_key_ring_reads_back_as_it_was_written() -> None:
    two = add_key(RING, b"n" * 32)
    assert parse_key_ring(TEXT) == RING
    assert parse_key_ring(format_key_ring(two)) == two


def test_the_text_is_the_documented_one() -> None:
    cluster, key = bytes(range(16)).hex(), bytes(range(16, 48)).hex()
    assert f"gossipd-cluster-key 1\ncluster {cluster}\nkey {key}\n" == TEXT


def test_comments_and_blank_lines_are_ignored() -> None:
    assert parse_key_ring("# made by us\n\n" + TEXT.replace("key ", "# old\nkey ", 1).replace("# old\n", "", 1)) == RING


def test_a_rotation_overlaps_and_keeps_the_cluster_id() -> None:
    old = RING.keys[0]
    accepted = add_key(RING, b"n" * 32)
    sends = send_with_newest(accepted)
    done = keep_first(sends)
    assert (accepted.keys, sends.keys, done.keys) == ((old, b"n" * 32), (b"n" * 32, old), (b"n" * 32,))
    assert {accepted.cluster_id, sends.cluster_id, done.cluster_id} == {RING.cluster_id}


def test_a_ring_holds_a_bounded_number_of_keys() -> None:
    ring = RING
    for number in range(KEYS_MAX - 1):
        ring = add_key(ring, bytes([number + 1]) * 32)
    with pytest.raises(ClusterKeyError, match="drop the oldest"):
        add_key(ring, b"z" * 32)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "first line"),
        ("gossipd-cluster-key 2\n" + TEXT.partition("\n")[2], "first line"),
        (TEXT.replace("cluster", "claster", 2), "first line"),
        (TEXT + "extra x\n", "unexpected line"),
        (TEXT.replace("cluster 00", "cluster zz"), "32 hex digits"),
        (TEXT.replace("key 10", "key 1"), "64 hex digits"),
        (TEXT.partition("\nkey ")[0], "1 to 4 'key' lines"),
        (TEXT + TEXT.splitlines()[2] + "\n", "twice"),
        (TEXT + TEXT.splitlines()[1] + "\n", "one 'cluster' line"),
        (TEXT + f"key {'00' * 32}\n", "zeros"),
        (TEXT + "".join(f"key {number:064x}\n" for number in range(1, 5)), "1 to 4 'key' lines"),
    ],
)
def test_what_is_not_a_cluster_key_is_refused(text: str, message: str) -> None:
    with pytest.raises(ClusterKeyError, match=message):
        parse_key_ring(text)


def test_no_error_and_no_repr_shows_a_key() -> None:
    secret = RING.keys[0].hex()
    with pytest.raises(ClusterKeyError) as caught:
        parse_key_ring(TEXT + f"keys {secret}\n")
    assert secret not in str(caught.value)
    assert secret not in repr(RING)
    assert repr(RING.keys[0]) not in repr(RING)
    assert [name for name, _ in RING.__rich_repr__()] == ["cluster_id"]
