"""The live page within a terminal: nothing that says which host is how far, and why, is cut."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console

from gossipd.cli.live_status import view
from tests.gossipd.cli.large_clusters import deployment, host, page


def drawn(what: Any, columns: int = 80, lines: int = 24) -> list[str]:
    """What stands in a terminal of that size: rich writes to it, and every line is counted."""
    console = Console(width=columns, height=lines, force_terminal=True, file=io.StringIO(), record=True)
    console.print(view(what, None, columns=columns, lines_max=lines - 1))
    shown = console.export_text().splitlines()
    assert len(shown) < lines
    assert max(map(len, shown)) <= columns
    return shown


def test_thirty_hosts_with_long_names_are_whole_at_80_by_24() -> None:
    hosts = [host(number, state="downloading", chunks=10 * number) for number in range(30)]
    hosts[7] = host(7, state="downloading", chunks=77, reason="source_auth", subject=hosts[1]["name"])
    shown = drawn(page(deployment(hosts), members=30))
    [line] = [line for line in shown if "n007" in line]
    assert hosts[7]["name"] in line
    assert "rack-3" in line
    assert "7.5 %" in line
    assert "source_auth" in line
    assert not any("…" in line for line in shown)
    assert any("0/30 hosts complete" in line and "%" in line for line in shown)


def test_names_of_63_characters_have_lines_of_their_own_and_are_whole() -> None:
    hosts = [host(number, state="downloading", chunks=10 * number) for number in range(30)]
    for each in hosts:
        each["name"], each["rack"] = f"gpu-{'x' * 54}-{each['name'][-4:]}", "row-12-rack-7-of-the-second-hall"
    hosts[7] |= {"reason": "source_auth", "subject": hosts[1]["name"]}
    long_name = f"research/{'m' * 55}"
    done = deployment([host(1)], name=f"{long_name[:-1]}d", state="complete", version=7, version_label="123450.2")
    live = deployment(hosts, name=long_name, version=5, version_label="123460.2", stall="all_busy", corrupt_chunks=17)
    shown = drawn(page(live, done, members=30))
    at = next(number for number, line in enumerate(shown) if line == hosts[7]["name"])
    assert shown[at + 1].split() == ["row-12-rack-7-of-the-second-hall", "6.8", "%", "source_auth"]
    text = "\n".join(shown)
    assert f"{long_name}@123460.2" in text.replace("\n", "")
    assert f"{done['name']}@123450.2" in text.replace("\n", "")
    assert "stalled here: all_busy" in text
    assert "corrupt 17" in text
    assert "0/30 hosts complete" in text
    assert "1/1 hosts" in text


def test_complete_deployments_have_one_line_each_and_live_ones_the_rest() -> None:
    done = [deployment([host(n) for n in range(8)], name=f"done-{n}", state="complete", eta_s=None) for n in range(4)]
    live = deployment([host(n, state="downloading", chunks=n) for n in range(8)], name="live")
    shown = drawn(page(*done[:2], live, *done[2:], members=8))
    for number in range(4):
        assert sum(f"done-{number}" in line for line in shown) == 1
    assert sum("gpu-h100" in line and "downloading" in line for line in shown) == 8


@pytest.mark.parametrize("count", [2, 5, 9, 40])
def test_no_number_of_deployments_is_taller_than_the_terminal(count: int) -> None:
    hosts = [host(n, state="downloading", chunks=n) for n in range(60)]
    hosts[33] = host(33, state="failed", chunks=1, reason="no_space")
    shown = drawn(page(*[deployment(hosts, name=f"live-{n}") for n in range(count)], members=60))
    assert any("n033" in line and "no_space" in line for line in shown)
    assert "more deployments" in "\n".join(shown) or count <= 3


def test_what_was_removed_everywhere_is_no_complete_deployment() -> None:
    hosts = [host(n, state="removed", chunks=0, reason="removed") for n in range(3)]
    assert "removed everywhere" in drawn(page(deployment(hosts, state="complete", word="remove"), members=3))[1]


def test_an_alarm_and_damage_are_whole_at_80_columns() -> None:
    sentence = "hosts differ that should be the same: trust: gpu-epsilon has 8a592b38, and the most have a663ee6c"
    alarm = {"code": "E_DRIFT", "sentence": sentence, "since": "2026-11-25T12:00:00Z"}
    moved: dict[str, Any] = {"peer_bytes_same_rack": 300 << 30, "peer_bytes_cross_rack": 120 << 30}
    row = deployment([host(n, state="downloading", chunks=n) for n in range(8)], corrupt_chunks=17, **moved)
    shown = "\n".join(drawn(page(row, members=8, alarms=[alarm])))
    assert " ".join(f"ALARM E_DRIFT: {sentence}".split()) in " ".join(shown.split())
    assert "corrupt 17" in shown
    longest = {**alarm, "sentence": "word " * 200}
    assert drawn(page(row, members=8, alarms=[longest]))[3].endswith(" ...")


def test_a_wide_terminal_has_bars_and_a_narrow_one_none() -> None:
    hosts = [host(1, state="downloading", chunks=512, reason="source_unreachable", subject="gpu-h100-dc1-r0-n000")]
    assert "━" * 20 + "╌" * 20 in "\n".join(drawn(page(deployment(hosts)), columns=140))
    narrow = drawn(page(deployment(hosts)), columns=60)
    assert "━" not in "\n".join(narrow)
    assert any("source_unreachable" in line and "50.0 %" in line for line in narrow)


def test_hosts_that_the_daemon_left_out_are_counted_as_those_without_a_line() -> None:
    """The same page, of all hosts and with the complete ones as counts."""
    hosts = [host(n, state="downloading", chunks=n) if n % 9 == 0 else host(n) for n in range(400)]
    groups = [
        {"rack": f"rack-{rack}", "state": "complete", "reason": "", "current": None,
         "hosts": sum(one["state"] == "complete" and one["rack"] == f"rack-{rack}" for one in hosts)}
        for rack in range(4)
    ]  # fmt: skip
    whole = deployment(hosts)
    few = whole | {"hosts": [one for one in hosts if one["state"] != "complete"], "left_out": groups}
    assert drawn(page(few)) == drawn(page(whole))
    room = drawn(page(few), lines=70)
    assert sum("downloading" in line for line in room) == 45
    assert any("not shown: 355 complete" in line for line in room)
