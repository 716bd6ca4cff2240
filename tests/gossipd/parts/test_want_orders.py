"""Wants by order and by configuration: both hold, and neither is lost on the disk."""

from __future__ import annotations

import pytest

from gossipd.parts.want import EVERYTHING, WANT_BYTES_MAX, WantError, parse_want
from gossipd.parts.want_orders import WantOrdersError, orders_from_bytes, orders_to_bytes, parse_order, unite

THREE, FIVE = parse_want(["ep:3/16"]), parse_want(["ep:5/16"])


def test_a_host_wants_what_either_names_and_everything_wins() -> None:
    configured = {"a": THREE, "b": THREE, "c": THREE}
    ordered = {"b": FIVE, "c": EVERYTHING, "d": FIVE}
    assert unite(configured, ordered) == {
        "a": THREE, "b": parse_want(["ep:3/16", "ep:5/16"]), "c": EVERYTHING, "d": FIVE,
    }  # fmt: skip


def test_both_together_too_long_is_everything_and_no_error() -> None:
    half = "files:" + "x" * (WANT_BYTES_MAX // 2)
    assert unite({"a": parse_want([half])}, {"a": parse_want([half + "y"])}) == {"a": EVERYTHING}


def test_an_order_of_all_is_everything_and_a_wrong_term_is_refused() -> None:
    assert parse_order(["ep:3/16", "all"]) == EVERYTHING
    with pytest.raises(WantError):
        parse_order(["everything"])


@pytest.mark.parametrize("ordered", [{}, {"acme/v3": THREE, "b": EVERYTHING}])
def test_orders_come_back_from_the_disk(ordered: dict[str, object]) -> None:
    assert orders_from_bytes(orders_to_bytes(ordered)) == ordered  # type: ignore[arg-type]


@pytest.mark.parametrize("kept", [b"", b"[]", b"\xff", b'{"a": 5}', b'{"a": "nonsense"}', b"[" * 100_000])
def test_a_damaged_file_is_refused_with_a_code(kept: bytes) -> None:
    with pytest.raises(WantOrdersError) as refused:
        orders_from_bytes(kept)
    assert refused.value.code == "E_WANT_ORDERS"
