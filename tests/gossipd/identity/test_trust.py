"""Keys that must never be trusted, and why."""

from __future__ import annotations

import pytest

from gossipd.identity.keys import verify
from gossipd.identity.trust import is_degenerate, key_id, keys_by_id
from gossipd.manifest.manifest import ManifestError, open_manifest
from membership.member import node_id
from tests.gossipd.manifest.making import PUBLISHER, STRANGER, sealed_fields

P = 2**255 - 19
D = -121665 * pow(121666, P - 2, P) % P
SMALL_ORDINATES = (
    1,
    P - 1,
    0,
    2707385501144840649318225287225658788936804267575313519463743609750303402022,
    P - 2707385501144840649318225287225658788936804267575313519463743609750303402022,
)
Point = tuple[int, int]


def added(a: Point, b: Point) -> Point:
    """Addition on the twisted Edwards curve -x^2 + y^2 = 1 + d x^2 y^2."""
    product = D * a[0] * b[0] * a[1] * b[1] % P
    x = (a[0] * b[1] + b[0] * a[1]) * pow(1 + product, P - 2, P) % P
    y = (a[1] * b[1] + a[0] * b[0]) * pow(1 - product, P - 2, P) % P
    return x, y


def abscissa(y: int) -> int:
    """A point's x; (P + 3) / 8 is the exponent of a square root up to a factor."""
    square = (y * y - 1) * pow(D * y * y + 1, P - 2, P) % P
    root = pow(square, (P + 3) // 8, P)
    if root * root % P != square:
        root = root * pow(2, (P - 1) // 4, P) % P
    assert root * root % P == square
    return root


@pytest.mark.parametrize("ordinate", SMALL_ORDINATES)
def test_each_listed_point_times_eight_is_nothing(ordinate: int) -> None:
    point = (abscissa(ordinate), ordinate)
    for _ in range(3):
        point = added(point, point)
    assert point == (0, 1)
    for sign in (0, 1):
        assert is_degenerate((ordinate | sign << 255).to_bytes(32, "little"))


def test_the_list_matters_because_openssl_lets_anybody_sign_for_such_a_key() -> None:
    neutral = (1).to_bytes(32, "little")
    forged = neutral + bytes(32)  # R is the neutral element, S is zero: it holds for every message
    assert verify(neutral, forged, b"anything")
    assert verify(neutral, forged, b"anything else")


def test_a_manifest_forged_for_such_a_key_is_unknown_even_if_an_operator_listed_it() -> None:
    neutral = (1).to_bytes(32, "little")
    good = sealed_fields()
    own = key_id(PUBLISHER.public.ed25519)
    at = good.index(own)
    forged = good[:at] + key_id(neutral) + neutral + bytes(32) + good[at + 80 :]
    with pytest.raises(ManifestError) as caught:
        open_manifest(forged, [neutral])
    assert caught.value.code == "E_KEY_UNKNOWN"


@pytest.mark.parametrize("key", [b"", bytes(31), bytes(33), P.to_bytes(32, "little"), b"\xff" * 32])
def test_wrong_lengths_and_unreduced_ordinates_are_refused(key: bytes) -> None:
    assert is_degenerate(key)


def test_ordinary_keys_are_found_by_the_id_that_also_names_nodes() -> None:
    keys = [PUBLISHER.public.ed25519, STRANGER.public.ed25519]
    assert keys_by_id(keys) == {node_id(key): key for key in keys}
