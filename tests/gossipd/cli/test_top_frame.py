"""What ``gossipd top`` shows, by values, within a terminal."""

from __future__ import annotations

from typing import Any

import pytest

from gossipd.cli.top_frame import SORTS, Look, by_rack, frame_lines, look, ordered, rates
from tests.gossipd.cli.large_clusters import deployment, host, page

MIB = 1 << 20
METRICS = """# HELP gossipd_received_bytes_total Verified
gossipd_received_bytes_total{deployment="m@1",source="origin"} 1048576.0
gossipd_received_bytes_total{deployment="n@1",source="origin"} 1.048576e+06
gossipd_received_bytes_total{deployment="m@1",source="peer_far"} 0.0
gossipd_uploads_busy 14.0
gossipd_uploads_max 24.0
gossipd_buffers_busy_bytes 6.7108864e+07
gossipd_buffers_max_bytes 1.34217728e+08
"""


def traffic(count: int, scale: int = 1) -> dict[str, Any]:
    return {
        f"{n:032x}": {"bytes_in": scale * n * MIB, "bytes_out": scale * MIB, "busy_in": scale, "busy_out": 0}
        for n in range(1, count + 1)
    }


def looked(at_s: float, count: int = 3, scale: int = 1, **node: Any) -> Look:
    return look(page(members=count + 1, **node), traffic(count, scale), METRICS, at_s)


def test_rates_are_what_came_between_two_looks_a_second() -> None:
    now = rates(looked(10.0), looked(12.0, scale=3))
    peers = list(now.peers.values())
    assert [(one.bytes_in, one.bytes_out, one.busy) for one in peers] == [(n * MIB, MIB, 1.0) for n in (1, 2, 3)]
    assert peers[0].name == "gpu-h100-dc1-r1-n001"
    assert looked(0.0).received == {"storage": 2 * MIB, "other racks": 0.0}
    assert now.gauges["uploads_busy"] == 14


def test_a_daemon_that_was_started_again_has_no_negative_and_no_huge_rates() -> None:
    before, after = looked(10.0, scale=9, uptime_s=900.0), looked(11.0, scale=1, uptime_s=2.0)
    assert {one.bytes_in for one in rates(before, after).peers.values()} == {0.0}


def test_racks_are_sums_and_peers_are_in_the_order_that_is_asked_for() -> None:
    now = rates(looked(0.0, 8, scale=0), looked(1.0, 8))
    assert by_rack(now.peers.values())[0] == ("rack-0", 12 * MIB, 2 * MIB, 2)
    assert [one.name[-1] for one in ordered(now.peers.values(), "in")][:3] == ["8", "7", "6"]
    assert [one.name[-1] for one in ordered(now.peers.values(), "rack")][:3] == ["8", "4", "5"]
    assert len({tuple(one.name for one in ordered(now.peers.values(), sort)) for sort in SORTS}) >= 3


@pytest.mark.parametrize("alarms", [0, 3])
@pytest.mark.parametrize("count", [0, 3, 200])
def test_a_frame_fits_a_terminal_and_says_what_is_left_out(count: int, alarms: int) -> None:
    told = page(
        deployment([host(0, state="downloading")]), members=count + 1,
        alarms=[{"code": f"E_{n}", "sentence": "so it is " * 20, "since": "now"} for n in range(alarms)],
    )  # fmt: skip
    lines = frame_lines(told, rates(looked(0.0, count, 0), looked(1.0, count)), "in", columns=80, lines_max=24)
    assert len(lines) <= 24
    assert max(map(len, lines)) <= 80
    assert "s: another order, q: quit" in lines[-1]
    assert ("more peers" in lines[-1]) == (count == 200)
    assert any("uploads 14 of 24  buffers 64 MiB of 128 MiB" in line for line in lines)
    assert any("RACK" in line for line in lines)
    assert not any("…" in line for line in lines), "these names fit"
    now = rates(looked(0.0, count, 0), looked(1.0, count))
    assert frame_lines(told, now, "in", columns=80, lines_max=24, has_keys=False)[-1].endswith("sorted by in")


def test_a_name_that_is_too_long_is_cut_in_the_middle() -> None:
    told = page(members=2)
    told["members"][1]["name"] = "a" * 30 + "b" * 34
    now = look(told, traffic(1), METRICS, 0.0)
    lines = frame_lines(told, rates(now, now), "in", columns=60, lines_max=24)
    assert max(map(len, lines)) <= 60
    assert any(line.startswith("aaa") and "…" in line and "bbb" in line and "0 B/s" in line for line in lines)
