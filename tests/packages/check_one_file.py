"""The wheel in a fresh environment, and the pex: nothing of the checkout is needed."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from tests.packages.hosts import PATH, package

STATUS_CPU_S = 0.5  # of one command, once the file has unpacked itself
DEMO = ("demo", "--hosts", "3", "--size", "64MiB", "--json")


def run(*words: str | Path, home: Path) -> str:
    done = subprocess.run(
        [str(word) for word in words], capture_output=True, text=True, timeout=300, cwd="/",
        env={"PATH": PATH, "HOME": str(home), "TMPDIR": str(home)},
    )  # fmt: skip
    assert done.returncode == 0, f"{words}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
    return done.stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("wheel")
    subprocess.run([sys.executable, "-m", "venv", place / "venv"], check=True)
    subprocess.run([place / "venv" / "bin" / "pip", "install", "-q", package("whl")], check=True)
    return place / "venv" / "bin" / "gossipd"


def test_the_wheel_runs_the_demo_and_has_every_asset(installed: Path, tmp_path: Path) -> None:
    run(installed, *DEMO, home=tmp_path)
    for kind in ("unit", "alerts", "grafana", "openapi", "completion bash"):
        assert run(installed, "assets", *kind.split(), home=tmp_path)
    run(installed, "assets", "man", tmp_path / "man1", home=tmp_path)
    assert (tmp_path / "man1" / "gossipd.1").exists()
    assert run(installed, "help", "install", home=tmp_path).startswith("# Install")


def test_the_pex_is_one_file_that_runs_the_demo(tmp_path: Path) -> None:
    assert json.loads(run(package("pex"), "version", "--json", home=tmp_path))["libraries"]["trio"]
    run(package("pex"), *DEMO, home=tmp_path)


def test_a_command_of_the_pex_takes_less_than_half_a_second_of_cpu(tmp_path: Path) -> None:
    words = [str(package("pex")), "status", "--socket", str(tmp_path / "nobody.sock")]
    environment = {"PATH": PATH, "HOME": str(tmp_path), "TMPDIR": str(tmp_path)}
    spent = []
    for _ in range(4):  # the first one unpacks
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run(words, capture_output=True, text=True, timeout=300, cwd="/", env=environment)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        assert (done.returncode, done.stderr.startswith("E_DAEMON_UNREACHABLE")) == (4, True), done.stderr
        spent.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    assert min(spent[1:]) < STATUS_CPU_S, spent
