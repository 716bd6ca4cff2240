"""``gossipd assets``: each kind is what its reader takes, by the reader itself where there is one."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from gossipd.cli.completion import SHELLS
from gossipd.cli.main import VERBS, main

ROOT = Path(__file__).resolve().parents[3]
EXPOSURE_MAX = 17  # tenths of systemd's score


@pytest.fixture
def unit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    """The unit that ships, with a program in the place of ours, which is not installed here."""
    assert main(["assets", "unit"]) == 0
    path = tmp_path / "gossipd.service"
    path.write_text(capsys.readouterr().out.replace("=gossipd ", "=/bin/true ").replace("=-gossipd ", "=-/bin/true "))
    return path


def test_the_chart_has_the_same_alerts() -> None:
    chart = ROOT / "config" / "helm" / "gossipd" / "prometheus-alerts.yml"
    assert chart.read_text() == (ROOT / "gossipd" / "assets" / "prometheus-alerts.yml").read_text()


def test_every_kind_is_printed_from_the_package(capsys: pytest.CaptureFixture[str]) -> None:
    for kind, name in (("unit", "gossipd.service"), ("alerts", "prometheus-alerts.yml"), ("grafana", "grafana.json")):
        assert main(["assets", kind]) == 0
        assert capsys.readouterr().out == (ROOT / "gossipd" / "assets" / name).read_text()
        assert not (ROOT / "config" / name).exists(), "there is one copy"
    assert main(["assets", "openapi"]) == 0
    assert json.loads(capsys.readouterr().out)["openapi"].startswith("3.1")
    assert yaml.safe_load((ROOT / "gossipd" / "assets" / "prometheus-alerts.yml").read_text())["groups"]


@pytest.mark.parametrize("shell", SHELLS)
def test_a_completion_script_is_one_that_the_shell_can_read(
    shell: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["assets", "completion", shell]) == 0
    script = capsys.readouterr().out
    assert "_gossipd_completion" in script
    if shutil.which(shell):
        (tmp_path / "script").write_text(script)
        subprocess.run([shell, "-n", str(tmp_path / "script")], check=True, timeout=120)


@pytest.mark.needs("man")
def test_every_command_has_a_man_page_that_man_shows_without_a_warning(tmp_path: Path) -> None:
    assert main(["assets", "man", str(tmp_path / "man1")]) == 0
    environment = {"LC_ALL": "C.UTF-8", "MANWIDTH": "100", "PATH": "/usr/bin:/bin", "PAGER": "cat"}
    pages = sorted((tmp_path / "man1").iterdir())
    names = {page.name for page in pages}
    assert {f"gossipd-{verb}.1" for verb in VERBS} | {"gossipd.1", "gossipd-config-check.1"} <= names
    for page in pages:
        words = ["man", "--warnings", "-E", "UTF-8", "-l", "-Tutf8", str(page)]
        done = subprocess.run(words, capture_output=True, text=True, env=environment, timeout=60)
        assert (done.returncode, done.stderr) == (0, ""), page.name
        shown = re.sub(".\x08|\x1b\\[[0-9;]*m", "", done.stdout)
        assert page.stem.replace("-", " ") in shown.replace("-", " ")


@pytest.mark.needs("systemd-analyze")
def test_systemd_has_nothing_against_the_unit(unit: Path) -> None:
    done = subprocess.run(["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


@pytest.mark.needs("systemd-analyze")
def test_the_unit_leaves_little_of_the_host_open(unit: Path) -> None:
    words = ["systemd-analyze", "security", "--offline=true", f"--threshold={EXPOSURE_MAX}", "--no-pager", str(unit)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout[-400:]


def test_the_unit_reads_credentials_reloads_and_has_a_watchdog(unit: Path) -> None:
    lines = (ROOT / "gossipd" / "assets" / "gossipd.service").read_text().splitlines()
    for line in (
        "EnvironmentFile=-/etc/gossipd/env",
        "ExecReload=gossipd reload --config /var/lib/gossipd/gossipd.toml",
        "WatchdogSec=30",
        "LimitCORE=0",
        "LoadCredential=gossipd.cluster.key",  # without a path: it need not be there
    ):
        assert line in lines
    before = [line for line in lines if line.startswith("ExecStartPre=")]
    assert before == ["ExecStartPre=-gossipd config check /var/lib/gossipd/gossipd.toml"], (
        "else systemd would try for ever"
    )
