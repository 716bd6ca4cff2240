"""Links are shared max-min fair, and nothing moves faster than they allow."""

from __future__ import annotations

from random import Random

import pytest

from gossipd.sim.fabric import Fabric, FabricLink, Flow


def shared(fabric: Fabric, *paths: tuple[FabricLink, ...], length: float = 1e9) -> list[float]:
    flows = [Flow(path, path, length, 0.0) for path in paths]
    for flow in flows:
        fabric.begin(flow)
    fabric.recompute(0.0, 1e-9)
    return [flow.rate for flow in flows]


def test_flows_of_one_link_share_it_equally() -> None:
    fabric = Fabric()
    link = fabric.add_link(9.0)
    assert shared(fabric, (link,), (link,), (link,)) == [3.0, 3.0, 3.0]


def test_what_one_flow_cannot_use_the_others_get() -> None:
    fabric = Fabric()
    wide, narrow = fabric.add_link(10.0), fabric.add_link(2.0)
    assert shared(fabric, (wide, narrow), (wide,)) == [2.0, 8.0]


def test_the_classical_line_of_links() -> None:
    fabric = Fabric()
    first, second = fabric.add_link(10.0), fabric.add_link(4.0)
    assert shared(fabric, (first,), (first, second), (second,)) == [8.0, 2.0, 2.0]


def test_a_flow_that_ends_leaves_its_rate_to_the_next_before_all_is_recomputed() -> None:
    fabric = Fabric()
    link = fabric.add_link(10.0)
    one, other = Flow("one", (link,), 100.0, 0.0), Flow("other", (link,), 100.0, 0.0)
    for flow in (one, other):
        fabric.begin(flow)
    fabric.recompute(0.0, 1.0)
    fabric.end(one)
    third = Flow("third", (link,), 100.0, 1.0)
    fabric.begin(third)
    assert third.rate == pytest.approx(5.0)
    assert link.busy() == pytest.approx(1.0)


def test_the_time_of_an_end_is_exact_and_the_link_is_free_then() -> None:
    fabric = Fabric()
    link = fabric.add_link(10.0)
    flow = Flow("it", (link,), 25.0, 0.0)
    fabric.begin(flow)
    assert fabric.recompute(0.0, 3.0) == ([(2.5, flow)], [])
    fabric.end(flow)
    assert link.busy() == 0.0


def test_where_nothing_began_or_ended_a_flow_goes_on_at_its_rate_to_the_same_end() -> None:
    fabric = Fabric()
    link = fabric.add_link(10.0)
    flow = Flow("it", (link,), 25.0, 0.0)
    fabric.begin(flow)
    assert fabric.recompute(0.0, 1.0) == fabric.recompute(1.0, 2.0) == ([], [])
    assert fabric.recompute(2.0, 3.0) == ([(2.5, flow)], [])


def test_what_a_flow_that_ends_in_between_leaves_goes_to_the_others_at_once() -> None:
    fabric = Fabric()
    link = fabric.add_link(10.0)
    one, other = Flow("one", (link,), 2.0, 0.0), Flow("other", (link,), 1e9, 0.0)
    for flow in (one, other):
        fabric.begin(flow)
    fabric.recompute(0.0, 0.1)
    assert [one.rate, other.rate] == [5.0, 5.0]
    fabric.begin(Flow("third", (fabric.add_link(1.0),), 1e9, 0.1))  # something has changed
    assert [flow for _, flow in fabric.recompute(0.1, 1.1)[0]] == [one]
    assert one.rate == pytest.approx(1.5), "it ends just before the next time"
    assert other.rate == pytest.approx(8.5)


def test_a_flow_that_is_slowed_ends_at_the_next_time_and_never_after_it() -> None:
    fabric, rng = Fabric(), Random(5)
    link = fabric.add_link(10.0)
    now = 0.0
    for step in range(200):
        for _ in range(2):
            fabric.begin(Flow(step, (link,), rng.uniform(0.01, 3.0), now))
        until = now + 0.1
        for end, flow in fabric.recompute(now, until)[0]:
            assert now <= end <= until
            fabric.end(flow)
        assert sum(flow.rate for flow in link.flows) <= 10.0 * (1 + 1e-6)
        assert all(flow.rate >= 0.0 for flow in link.flows)
        now = until


def test_who_wants_to_know_how_far_a_flow_is_hears_it_once_and_before_the_end() -> None:
    fabric = Fabric()
    link = fabric.add_link(10.0)
    flow = Flow("it", (link,), 50.0, 0.0, told_at=40.0)
    fabric.begin(flow)
    assert fabric.recompute(0.0, 0.5) == ([], [])
    assert fabric.recompute(0.5, 1.5) == ([], [flow])
    assert fabric.recompute(1.5, 2.5) == ([], [])
