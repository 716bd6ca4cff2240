"""What a dry run says, and what is passed on."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from gossipd.api.manifest_row import manifest_row
from gossipd.cli.deploy import plan_lines
from gossipd.cli.main import main
from gossipd.core.errors import ExitCode
from gossipd.diagnosis.plan import PlannedHost
from gossipd.sim.scenario import Scenario
from tests.gossipd.api.fake_daemon import FakeDaemon
from tests.gossipd.cli.daemons import running
from tests.gossipd.manifest.making import manifest

ROW = msgspec.to_builtins(manifest_row(manifest()))


def test_a_dry_run_orders_nothing_else_and_exits_by_what_targets_lack(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, path = tmp_path / "m.manifest", tmp_path / "s"
    file.write_bytes(manifest().envelope)
    daemon = FakeDaemon(manifests=[manifest_row(manifest())])
    with running(path, daemon):
        assert main(["deploy", str(file), "--dry-run", "--json", "--socket", str(path)]) == ExitCode.PARTIAL
        told = json.loads(capsys.readouterr().out)
        assert main(["deploy", str(file), "--socket", str(path)]) == 0
        assert main(["deploy", str(tmp_path / "nothing"), "--socket", str(path)]) == ExitCode.USAGE
    assert daemon.orders == [("deploy", str(file), True), ("deploy", str(file), False)]
    assert [one["name"] for one in told["hosts"] if not one["takes"]] == ["node-4"]
    assert told["external_bytes"] == ROW["bytes_total"]
    assert told["limiting_resource"]


def test_the_text_says_who_and_how_long_and_names_some() -> None:
    hosts = [PlannedHost(f"n{n}", "r", ("is dead",), ()) for n in range(30)] + [PlannedHost("x", "r", (), ())]
    scenario = Scenario(1, 1, 500 * 10**9, 2000, 1.25e9, 1.25e9)
    lines = plan_lines(ROW, hosts, 5 << 30, scenario)
    assert lines[1] == "1 of 31 targets would take it; 5 GiB from storage"
    assert lines[2].startswith(
        "at least 6m 40s, by external link, host downlinks and rack uplinks, at 1.2 GiB/s a host"
    )
    assert lines[5].split() == ["n0", "r", "is", "dead"]
    assert lines[-1] == "and 6 more; --json has all"
    assert all(len(line) < 120 for line in lines)
