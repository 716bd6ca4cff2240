"""Wants by order and by configuration: both hold, and neither is lost on the disk."""

from __future__ import annotations

import pytest

from gossipd.parts.want import EVERYTHING, WANT_BYTES_MAX, WantError, parse_want
from gossipd.parts.want_orders import (
    ORDERS_MAX,
    WantOrdersError,
    changed_orders,
    orders_from_bytes,
    orders_to_bytes,
    parse_order,
    processes_of,
    unite,
    without_process,
)

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


def test_a_holder_takes_its_own_order_away_and_an_order_without_one_takes_all() -> None:
    ordered = changed_orders({"b": FIVE}, "a", THREE, clear=False, holder="")
    for holder in ("rank-0", "rank-1"):
        ordered = changed_orders(ordered, "a", FIVE, clear=False, holder=holder)
    assert unite({}, orders_from_bytes(orders_to_bytes(ordered))) == {
        "a": parse_want(["ep:3/16", "ep:5/16"]),
        "b": FIVE,
    }
    left = changed_orders(ordered, "a", None, clear=True, holder="rank-0")
    assert left == {name: want for name, want in ordered.items() if name != "a rank-0"}
    assert changed_orders(left, "a", None, clear=True, holder="") == {"b": FIVE}
    assert unite({}, changed_orders({"a rank-1": THREE}, "a", FIVE, clear=True, holder="rank-1")) == {"a": FIVE}


def test_an_order_of_a_holder_ends_with_its_process_and_others_stay() -> None:
    ordered = {"a": THREE}
    for holder, process in (("r0", "77.ab12"), ("r1", "78.ab12"), ("", "77.ab12"), ("r2", "")):
        ordered = changed_orders(ordered, "b", FIVE, clear=False, holder=holder, process=process)
    kept = orders_from_bytes(orders_to_bytes(ordered))
    assert processes_of(kept) == {"77.ab12", "78.ab12"}
    left = without_process(kept, "77.ab12")
    assert left.keys() == {"a", "b", "b r1 78.ab12", "b r2"}
    again = changed_orders(left, "b", THREE, clear=True, holder="r1", process="99.ab12")
    assert again.keys() == {"a", "b", "b r1 99.ab12", "b r2"}, "a holder that starts again has one order"
    assert changed_orders(again, "b", None, clear=True, holder="") == {"a": THREE}


def test_orders_and_the_names_of_holders_have_bounds() -> None:
    full = {f"m{number}": THREE for number in range(ORDERS_MAX)}
    with pytest.raises(WantError, match="512 orders"):
        changed_orders(full, "m1", THREE, clear=False, holder="r")
    for holder in ("a b", "A", "x" * 33):
        with pytest.raises(WantError, match="holder"):
            changed_orders({}, "a", THREE, clear=False, holder=holder)


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
