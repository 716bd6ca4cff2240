"""Which mirror a read goes to, and which request is slow, by values."""

from __future__ import annotations

from gossipd.sources.mirror_rates import LOOKED_S_MIN, Brought, MirrorRates


def measured(**rates: float) -> MirrorRates:
    """Mirrors that have brought so many bytes per second with one request under way."""
    mirrors = MirrorRates()
    for key, rate in rates.items():
        mirrors.came(key, int(rate), 1.0, 1, 0.0)
    return mirrors


def steady(length: int, received: int, waited_s: float) -> Brought:
    """A request that has brought its bytes evenly."""
    return Brought(length, received, waited_s, received, waited_s)


def assigned(mirrors: MirrorRates, places: dict[str, int], count: int, now: float = 1.0) -> list[str | None]:
    chosen: list[str | None] = []
    for _ in range(count):
        key = mirrors.choose(places, now)
        if key is not None:
            mirrors.assign(key)
        chosen.append(key)
    return chosen


def test_mirrors_of_unknown_rate_get_one_read_each_in_the_order_of_the_manifest() -> None:
    assert assigned(MirrorRates(), {"a": 8, "b": 8, "c": 8}, 4) == ["a", "b", "c", None]


def test_reads_are_spread_by_the_rates_of_the_mirrors() -> None:
    chosen = assigned(measured(a=9e6, b=3e6), {"a": 8, "b": 8}, 8)
    assert chosen.count("a") == 6
    assert chosen.count("b") == 2


def test_a_mirror_without_a_place_is_not_chosen() -> None:
    assert assigned(measured(a=9e6, b=3e6), {"a": 1, "b": 8}, 3) == ["a", "b", "b"]


def test_a_read_waits_rather_than_go_where_it_takes_far_longer() -> None:
    assert assigned(measured(a=9e6, b=1e5), {"a": 1, "b": 8}, 2) == ["a", None]


def test_a_mirror_that_failed_or_lied_is_left_alone_while_others_are_well() -> None:
    mirrors = measured(a=9e6, b=9e6, c=9e6)
    mirrors.failed("a", 1.0)
    mirrors.lied("b", 1.0)
    places = {"a": 8, "b": 8, "c": 8}
    assert mirrors.choose(places, 2.0) == "c"
    assert mirrors.choose({"a": 8, "b": 8}, 2.0) == "a", "no other is left"
    assert not mirrors.is_left_alone("a", 10.0)
    assert mirrors.is_left_alone("b", 10.0)


def test_a_failure_again_is_left_alone_for_twice_as_long() -> None:
    mirrors = measured(a=9e6)
    now, spans = 0.0, []
    for _ in range(3):
        mirrors.failed("a", now)
        began = now
        while mirrors.is_left_alone("a", now):
            now += 0.5
        spans.append(now - began)
    assert spans == [5.0, 10.0, 20.0]


def test_a_rate_is_found_out_again_after_a_while() -> None:
    mirrors = measured(a=9e6, slow=1e4)
    mirrors.came("a", int(9e6), 1.0, 1, 90.0)
    assert "slow" in assigned(mirrors, {"a": 8, "slow": 8}, 2, now=100.0)


def test_a_drip_is_slow_and_a_third_of_the_usual_is_not() -> None:
    mirrors = measured(a=1e6)
    length, waited_s = 1_000_000, 4.0
    assert mirrors.is_slow("a", steady(length, 800, waited_s), 1)
    assert not mirrors.is_slow("a", steady(length, int(1e6 * waited_s / 3), waited_s), 1)
    assert not mirrors.is_slow("a", steady(length, 0, LOOKED_S_MIN / 2), 1)


def test_a_request_that_moves_as_usual_of_late_is_not_slow() -> None:
    """It was answered late, and what is left of it comes sooner than another answer."""
    mirrors = measured(a=1e6)
    assert not mirrors.is_slow("a", Brought(1_000_000, 250_000, 4.0, 250_000, 0.25), 1)
    assert mirrors.is_slow("a", Brought(1_000_000, 250_000, 4.0, 10_000, 0.25), 1)


def test_what_many_requests_share_is_not_slow() -> None:
    mirrors = measured(a=8e6)
    assert not mirrors.is_slow("a", steady(1_000_000, 700_000, 1.0), 8)


def test_a_slow_down_of_all_is_soon_the_usual() -> None:
    mirrors = measured(a=1e6)
    given_up = 0
    while mirrors.is_slow("a", steady(1_000_000, 20_000, 10.0), 1):
        mirrors.given_up("a")
        given_up += 1
    assert given_up <= 30


def test_without_a_comparison_nothing_is_slow() -> None:
    assert not MirrorRates().is_slow("a", steady(1000, 0, 100.0), 1)


def test_a_first_request_is_compared_with_the_mirrors_beside_it() -> None:
    mirrors = measured(a=9e6)
    mirrors.assign("new", rivals=["new", "a"])
    assert mirrors.is_slow("new", steady(1_000_000, 1000, 3.0), 1)
    mirrors.assign("new")
    assert not mirrors.is_slow("new", steady(1_000_000, 1000, 3.0), 1), "there is no other for this read"


def test_a_mirror_that_is_left_alone_is_no_rival() -> None:
    mirrors = measured(a=1e6, b=1e6)
    mirrors.assign("a", rivals=["a"])
    assert not mirrors.has_rival("a", 1.0)
    mirrors.assign("a", rivals=["a", "b"])
    assert mirrors.has_rival("a", 1.0)
    mirrors.failed("b", 1.0)
    assert not mirrors.has_rival("a", 2.0)
