"""``gossipd simulate``: options, figures, refusals, the picture."""

from __future__ import annotations

import errno
import json
import math
import struct
import sys
from base64 import b64decode
from pathlib import Path

import pytest
from click.testing import CliRunner

from gossipd.cli.simulate import simulate
from gossipd.core.errors import ExitCode, UsageError
from gossipd.sim.closed_form import STRATEGIES
from gossipd.sim.plot import PlotError
from gossipd.sim.world import World

FIELDS = {
    "hosts", "chunks", "strategy", "seconds_last", "seconds_median", "bound_s", "efficiency", "limiting_resource",
    "external_x", "imports_per_rack", "tail_p999_over_p50", "control_bytes_per_node_s", "rng", "schema_version",
}  # fmt: skip
TINY = ["--hosts", "6", "--racks", "2", "--size", "8MiB", "--chunks", "32", "--link", "100Mbit"]


def output_of(*arguments: str) -> str:
    result = CliRunner().invoke(simulate, list(arguments), standalone_mode=False)
    if result.exception is not None:
        raise result.exception
    return result.output


def test_json_has_the_promised_fields_and_repeats_exactly() -> None:
    first, second = (json.loads(output_of(*TINY, "--json", "--rng", "3")) for _ in range(2))
    assert set(first) >= FIELDS
    assert first == second
    assert first["strategy"] == "swarm"
    assert first["external_x"] == 1


def test_a_rival_strategy_is_a_closed_form() -> None:
    answer = json.loads(
        output_of("--hosts", "100", "--size", "500GB", "--chunks", "500", "--strategy", "chain", "--json")
    )
    assert int(answer["seconds_last"]) == 479


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_all_strategies_have_as_many_chunks_as_the_swarm_unless_told(
    strategy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    swarm: list[int] = []

    def run(world: World) -> None:
        swarm.append(world.scenario.chunks)
        world.clock.now = 1.0

    monkeypatch.setattr(World, "run", run)
    few = ["--hosts", "3", "--size", "500GB", "--json"]
    output_of(*few)
    assert swarm == [json.loads(output_of(*few, "--strategy", strategy))["chunks"]]


@pytest.mark.parametrize(
    "ignored",
    [
        ["--kill", "10%@30%"],
        ["--slow", "10%@0.5"],
        ["--preset", "lab"],
        ["--queue-ms", "0"],
        ["--plot", "x.png"],
        ["--report", "x.html"],
    ],
)
def test_what_a_closed_form_would_ignore_is_refused(ignored: list[str]) -> None:
    with pytest.raises(UsageError, match=r"needs? --strategy swarm"):
        output_of("--hosts", "20", "--strategy", "chain", *ignored)


def test_a_closed_form_follows_the_links_it_is_given() -> None:
    answer = json.loads(output_of("--strategy", "chain", "--oversubscription", "1000", "--json"))
    assert 0 < answer["efficiency"] <= 1


def test_people_read_what_the_bound_is_of_and_what_limits() -> None:
    cluster = ["--hosts", "50", "--size", "500GB", "--chunks", "500"]
    text = output_of(*cluster, "--strategy", "parallel")
    assert "400.0 s   external link and host downlinks" in text
    assert "limited by      the strategy: storage sends the model 50 times" in text
    assert "% of the bound" in text
    assert json.loads(output_of(*cluster, "--strategy", "parallel", "--json"))["limiting_resource"] in text
    assert "limited by" not in output_of(*cluster, "--strategy", "parallel", "--external", "10Tbit")


def test_faults_are_taken_from_the_command_line() -> None:
    answer = json.loads(output_of(*TINY, "--kill", "17%@30%", "--slow", "17%@0.5", "--json"))
    assert answer["hosts_alive"] == 5


@pytest.mark.parametrize("arguments", [["--kill", "100%@10%"], ["--kill", "50%@10%", "--kill", "50%@20%"]])
def test_a_run_that_no_host_would_finish_is_refused(arguments: list[str]) -> None:
    with pytest.raises(UsageError, match="no host would be left"):
        output_of(*TINY, *arguments)
    with pytest.raises(UsageError, match="lower --link"):
        output_of(*TINY, "--slow", "100%@0.5")


@pytest.mark.parametrize(
    "arguments",
    [
        "--slow 3", "--slow 20%@1", "--kill 200%@30%", "--kill 20%@100%", "--size much", "--size 0.5B", "--link 10Gb",
        "--link 0Gbit", f"--size {'9' * 400}", f"--link {'9' * 400}bit", "--oversubscription nan", "--queue-ms nan",
        "--queue-ms inf",
    ],
)  # fmt: skip
def test_what_cannot_be_read_or_means_nothing_is_refused(arguments: str) -> None:
    result = CliRunner().invoke(simulate, [*TINY, *arguments.split()])
    assert result.exit_code == 2
    assert "Error" in result.stderr


@pytest.mark.parametrize("option", ["--kill", "--slow"])
def test_a_share_that_is_no_host_is_refused_and_told_how_much_one_is(option: str) -> None:
    with pytest.raises(UsageError, match=f"{option} 1% of 6 hosts is none; one host is 16.7%"):
        output_of(*TINY, option, "1%@30%")
    if option == "--kill":
        assert json.loads(output_of(*TINY, option, "16.7%@30%", "--json"))["hosts_alive"] == 5


@pytest.mark.parametrize(
    ("hosts", "said"),
    [("6", None), ("100", "about 1m 15s of one core, for 50,000 chunks"), ("100000", "about 20h 50m of one core")],
)
def test_a_run_of_a_minute_or_more_says_so_before_it_starts(
    hosts: str, said: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    class NeverWorld:
        def __init__(self, *_: object, **__: object) -> None:
            raise KeyboardInterrupt

    monkeypatch.setattr("gossipd.sim.world.World", NeverWorld)
    result = CliRunner().invoke(simulate, ["--hosts", hosts, "--chunks", "500", "--json"])
    assert not result.stdout
    assert said in result.stderr if said else "core" not in result.stderr


def test_more_racks_than_hosts_and_faults_without_a_swarm_are_refused() -> None:
    with pytest.raises(UsageError):
        output_of("--hosts", "2", "--racks", "5")
    with pytest.raises(UsageError):
        output_of(*TINY, "--strategy", "tree", "--kill", "10%@30%")


def test_the_picture_is_a_png(tmp_path: Path) -> None:
    target = tmp_path / "run.png"
    output_of(*TINY, "--plot", str(target))
    assert target.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("name", "said"), [("run.svg", "ends in .png"), ("absent/run.png", "directory that exists"), ("a.txt/b.png", "dir")]
)
def test_a_picture_that_cannot_be_written_is_refused_before_anything_is_simulated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, said: str
) -> None:
    (tmp_path / "a.txt").touch()
    monkeypatch.setattr(World, "run", lambda world: pytest.fail("simulated"))
    with pytest.raises(UsageError, match=said):
        output_of(*TINY, "--plot", str(tmp_path / name))


def test_without_matplotlib_the_picture_is_refused_before_anything_is_simulated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    monkeypatch.setattr(World, "run", lambda world: pytest.fail("simulated"))
    with pytest.raises(PlotError, match="pip install"):
        output_of(*TINY, "--plot", str(tmp_path / "run.png"))
    assert not list(tmp_path.iterdir())


def test_a_picture_that_fails_late_leaves_the_figures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(world: World, path: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    monkeypatch.setattr("gossipd.sim.plot.draw", full)
    result = CliRunner().invoke(simulate, [*TINY, "--json", "--plot", str(tmp_path / "x.png")], standalone_mode=False)
    assert result.return_value == ExitCode.OTHER
    assert json.loads(result.stdout)["external_x"] == 1
    assert "No space left on device; the figures are complete" in result.stderr


def test_a_report_of_a_run_has_its_bytes_hosts_and_dead(tmp_path: Path) -> None:
    out = tmp_path / "run.json"
    printed = json.loads(output_of(*TINY, "--kill", "17%@30%", "--json", "--report", str(out)))
    shown = json.loads(out.read_text())
    found, told = shown["summary"], shown["report"]
    assert found["source_ratio"] == round(printed["external_x"], 4)
    assert round(found["cross_rack_bytes"] + found["source_bytes"]) == round(printed["crossrack_x"] * (8 << 20))
    assert found["hosts_complete"] == printed["hosts_complete"] == 5
    assert found["quantiles"]["first"] == math.ceil(printed["seconds_median"]), "all within a second"
    assert [one["reason"] for one in found["stragglers"]] == ["dead"]
    moved = [sum(one[at] for one in told["timeline"]["moved"]) for at in range(3)]
    assert moved[0] == found["source_bytes"]
    last = {b64decode(shares)[-1] for shares in told["timeline"]["shares"].values()}
    assert 254 in last
    assert len(last) == 2, "all but the dead one have all"


def test_a_report_of_a_run_has_which_chunks_came_when(tmp_path: Path) -> None:
    out = tmp_path / "run.json"
    output_of(
        "--hosts", "4", "--racks", "2", "--size", "64MiB", "--chunks", "32", "--link", "10Mbit", "--report", str(out)
    )
    timeline = json.loads(out.read_text())["report"]["timeline"]
    assert timeline["sketches"].keys() == timeline["shares"].keys()
    assert timeline["silences"] == {}, "a host that waits for a chunk is not silent"
    for text in timeline["sketches"].values():
        marks = [column for (column,) in struct.iter_unpack(">H", b64decode(text))]
        assert len(marks) == 4 * 32, "a quarter, a half, three quarters and all of each chunk"
        assert max(marks) < len(timeline["moved"]), "all have come"
        assert len(set(marks)) > 8, "one after the other"


def test_a_report_changes_nothing_about_a_run_and_may_be_a_page(tmp_path: Path) -> None:
    out = tmp_path / "run.html"
    assert output_of(*TINY, "--json", "--report", str(out)) == output_of(*TINY, "--json")
    assert out.read_text().startswith("<!doctype html>")
    with pytest.raises(UsageError, match="in a directory that exists"):
        output_of(*TINY, "--report", str(tmp_path / "no" / "run.html"))
