"""What a dry run says, and what is passed on."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from gossipd.api.manifest_row import manifest_row
from gossipd.api.ports import Costs
from gossipd.cli.deploy import plan_lines
from gossipd.cli.layout import laid_out
from gossipd.cli.main import main
from gossipd.core.errors import ExitCode
from gossipd.diagnosis.plan import Plan, PlannedHost
from tests.gossipd.api.fake_daemon import FakeDaemon, toy_row
from tests.gossipd.cli.daemons import running
from tests.gossipd.manifest.making import manifest

ROW = msgspec.to_builtins(manifest_row(manifest()))


def test_a_dry_run_orders_nothing_else_and_exits_by_what_targets_lack(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, path = tmp_path / "m.manifest", tmp_path / "s"
    file.write_bytes(manifest().envelope)
    costs = Costs(distinct_bytes=ROW["bytes_total"] - 100, reused_bytes=20, reused={"node-1": 20})
    daemon = FakeDaemon(manifests=[manifest_row(manifest())], costs=costs)
    with running(path, daemon):
        assert main(["deploy", str(file), "--dry-run", "--json", "--socket", str(path)]) == ExitCode.PARTIAL
        told = json.loads(capsys.readouterr().out)
        assert main(["deploy", str(file), "--socket", str(path)]) == 0
        assert main(["deploy", str(tmp_path / "nothing"), "--socket", str(path)]) == ExitCode.NOT_FOUND
    assert daemon.orders == [("deploy", str(file), True), ("deploy", str(file), False)]
    assert [one["name"] for one in told["hosts"] if not one["takes"]] == ["node-4"]
    assert told["external_bytes"] == ROW["bytes_total"] - 120, "what some host has is not read"
    fetched = {one["name"]: ROW["bytes_total"] - one["fetched_bytes"] for one in told["hosts"]}
    assert fetched == {"node-1": 120, "node-2": 100, "node-3": 100, "node-4": 100}
    assert told["limiting_resource"]


def test_with_wait_it_ends_as_wait_does(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, path = tmp_path / "m.manifest", tmp_path / "s"
    file.write_bytes(manifest().envelope)
    row = replace(toy_row(), name=ROW["name"], version=ROW["version"])
    done = replace(row, hosts=[replace(host, state="complete") for host in row.hosts], hosts_complete=row.hosts_total)
    daemon = FakeDaemon(manifests=[manifest_row(manifest())], rows=[done])
    words = ["deploy", str(file), "--wait", "--timeout", "0s", "--socket", str(path)]
    with running(path, daemon):
        assert main([*words, "--json"]) == ExitCode.DONE
        assert json.loads(capsys.readouterr().out)["deployment"]["hosts_complete"] == row.hosts_total
        daemon.rows = [row]
        assert main(words) == ExitCode.TIMEOUT
        assert main([*words, "--dry-run"]) == ExitCode.USAGE
    assert len(daemon.orders) == 2, "what contradicts itself is not ordered"


def test_the_text_says_who_and_how_long_and_names_some() -> None:
    gib = 1 << 30
    hosts = [PlannedHost(f"n{n}", "r", ("is dead",), ()) for n in range(30)]
    hosts += [PlannedHost("x", "r", (), (), 2 * gib), PlannedHost("y", "r", (), (), 3 * gib)]
    row = {**ROW, "bytes_total": 5 * gib}
    lines = laid_out(plan_lines(row, Plan(tuple(hosts), 3 * gib, 400.0, "storage"), 1.25e9, 1.25e9), None)
    assert lines[1] == "2 of 32 targets would take it; 3 GiB from storage"
    assert lines[2] == "a host fetches 2 GiB to 3 GiB of it: the rest are chunks that are equal, or that it has"
    assert lines[3] == "at least 6m 40s, by storage, at 1.2 GiB/s a host and 1.2 GiB/s from storage"
    assert lines[6].split() == ["n0", "r", "is", "dead"]
    assert lines[-1] == "and 6 more; --json has all"
    assert all(len(line) < 120 for line in lines)
    alone = Plan((PlannedHost("x", "r", (), (), 5 * gib),), 5 * gib, 1.0, "storage")
    whole = laid_out(plan_lines(row, alone, 1e9, 1e9), None)
    assert [line.split()[0] for line in whole[1:]] == ["1", "at"]
