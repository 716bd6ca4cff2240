"""Which hosts a page shows when there are more than fit: those with a problem, however many are well."""

from __future__ import annotations

from gossipd.cli.host_selection import PROBLEMS_MAX, SLOWEST, racks_worst_first, select, words_left_out
from gossipd.cli.layout import laid_out
from gossipd.cli.status import page_lines
from tests.gossipd.cli.large_clusters import deployment, host, page


def test_the_one_failed_host_of_two_hundred_is_shown_first() -> None:
    hosts = [host(number) for number in range(200)]
    hosts[150] = host(150, state="failed", chunks=10, reason="no_space")
    lines = laid_out(page_lines(page(deployment(hosts)), colour=False), None)
    assert any("n150" in line and "failed" in line and "no_space" in line for line in lines)
    assert "not shown: 199 complete (--all shows every host)" in "\n".join(lines)
    assert len(lines) < 30
    whole = laid_out(page_lines(page(deployment(hosts)), colour=False, is_whole=True), None)
    assert sum("gpu-h100" in line and "rack-" in line and "complete" in line for line in whole) == 199


def test_problems_come_by_how_pressing_they_are_then_the_slowest() -> None:
    hosts = [
        host(1, state="downloading", chunks=500),
        host(2, state="downloading", chunks=400, reason="dead"),
        host(3, state="downloading", chunks=300, reason="source_auth"),
        host(4, state="init", chunks=0, reason="refused_key"),
        host(5),
        *(host(number, state="downloading", chunks=900 - number, reason="all_busy") for number in range(6, 30)),
    ]
    selection = select(hosts)
    numbers = [int(each["name"][-3:]) for each in selection.shown]
    assert numbers == [4, 3, 2, 1, *range(29, 20, -1)]
    assert len(numbers) == 3 + SLOWEST
    assert words_left_out(selection) == "15 all_busy, 1 complete"


def test_a_thousand_dead_hosts_do_not_fill_a_thousand_lines() -> None:
    hosts = [host(number, state="downloading", chunks=0, reason="dead") for number in range(1000)]
    assert len(select(hosts).shown) == PROBLEMS_MAX
    assert len(laid_out(page_lines(page(deployment(hosts)), colour=False), None)) < 80


def test_a_host_that_wants_a_part_shows_its_share_and_what_it_wants() -> None:
    part = {"chunks_wanted": 10, "bytes_wanted": 3 << 20, "want": "ep:3/16"}
    rows = deployment([host(0, state="downloading", chunks=5) | part, host(1)])
    lines = laid_out(page_lines(page(rows), colour=False), None)
    assert any("50.0 %" in line and "3 MiB: ep:3/16" in line for line in lines), lines
    assert any(line.split()[-1:] == ["REASON"] and "WANTS" in line for line in lines)


def test_racks_with_problems_come_before_the_others() -> None:
    hosts = [host(number) for number in range(40)]
    hosts[2] = host(2, state="failed", chunks=0, reason="disk")
    first, *others = racks_worst_first({"hosts": hosts, "chunks_total": 100})
    assert (first.rack, first.hosts, first.complete, first.problems) == ("rack-2", 10, 9, 1)
    assert [one.complete for one in others] == [10, 10, 10]


def test_racks_are_counted_only_while_one_of_them_lacks_something() -> None:
    hosts = [host(number) for number in range(200)]
    done = laid_out(page_lines(page(deployment(hosts, state="complete")), colour=False), None)
    assert "not shown: 200 complete (--all shows every host)" in done[-1]
    hosts[7] = host(7, state="downloading", chunks=10)
    assert any("COMPLETE" in line for line in laid_out(page_lines(page(deployment(hosts)), colour=False), None))
