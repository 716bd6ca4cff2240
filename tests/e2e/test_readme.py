"""The README's walk-through works as it is written, and so do the blocks of the manual that say so."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from gossipd.cli.help import page
from gossipd.web.manual_pages import TOPICS
from tests.e2e.cluster import free_port_pair

README = Path(__file__).resolve().parents[2] / "README.md"


def blocks(text: str, marker: str) -> list[str]:
    return re.findall(rf"<!-- {marker} -->\n```sh\n(.*?)```", text, re.DOTALL)


def test_the_walk_through_works_as_written(tmp_path: Path) -> None:
    *steps, stop = blocks(README.read_text(), "walk-through")
    assert len(steps) == 3
    of_manual = blocks(page("operations"), "runnable")
    assert len(of_manual) == 2
    script = "\n".join([*steps, *of_manual, stop])
    ports = {port: str(free_port_pair()) for port in ("7946", "7956", "7966")}  # others of this machine may have these
    script = re.sub("|".join(ports), lambda found: ports[found[0]], script).replace("--timeout 60s", "--timeout 10m")
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        cwd=tmp_path,
        env={**os.environ, "PATH": path, "GOSSIPD_STORE__ANY_FILE_SYSTEM": "true"},  # pytest's files may be in memory
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "complete" in done.stdout
    assert "model.bin" in done.stdout
    assert "warning" not in done.stderr, "a newcomer's first model is a good one"
    assert "E_SIG_INVALID" in done.stdout or "E_DECODE" in done.stdout
    assert re.search(r"toy@1: all \d+ chunks are good", done.stdout)
    assert "chain whole" in done.stdout


def unmarked(topic: str) -> list[str]:
    return re.findall(r"(?<!-->)\n```sh\n(.*?)```", page(topic), re.DOTALL)


def test_every_block_has_a_test_that_runs_it() -> None:
    """Those that are ``on`` a host are run by ``tests/packages/check_deb.py``."""
    assert {topic for topic in TOPICS if unmarked(topic)} == {"install", "operations"}
    marks = {mark for topic in TOPICS for mark in re.findall(r"<!-- ([a-z]+)[^>]* -->\n```sh", page(topic))}
    assert marks == {"on", "runnable"}


STUB = '#!/bin/sh\necho "${0##*/} $*" >> "$CALLS"\n'
VENV = 'mkdir -p "$3/bin"; ln -s "$(command -v gossipd)" "$3/bin/gossipd"; ln -s "$(command -v pip)" "$3/bin/pip"\n'
STUBS = {"useradd": "", "systemctl": "", "chown": "", "helm": "", "kubectl": "", "pip": "", "python3": VENV}
PLACES = ("/etc/systemd/system", "/usr/share/bash-completion/completions", "/usr/local/share/man", "/usr/local/bin")


@pytest.mark.parametrize(
    ("topic", "count", "called"),
    [
        (
            "install",
            3,
            ["helm install gossipd", "kubectl -n gossipd exec -i ds/gossipd", "useradd --system", "systemctl"],
        ),
        ("operations", 1, ["useradd --system", "python3 -m venv", "pip install", "chown -R", "systemctl enable --now"]),
    ],
)
def test_blocks_for_whole_machines_run_where_others_commands_are_stubs(
    tmp_path: Path, topic: str, count: int, called: list[str]
) -> None:
    """Blocks without a mark change a machine, or a cluster of Kubernetes: other programs only note that they are
    called, places of the system are below the test's directory, and every gossipd is the real one."""
    found = unmarked(topic)
    assert len(found) == count
    (tmp_path / "stubs").mkdir()
    for name, more in STUBS.items():
        (tmp_path / "stubs" / name).write_text(STUB + more)
        (tmp_path / "stubs" / name).chmod(0o755)
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text("{}")
    script = "\n".join(found).replace("s3://models/qwen/", f"{tmp_path}/model")
    for place in (*PLACES, "/opt", "/var/lib"):
        (tmp_path / place[1:]).mkdir(parents=True)
        script = re.sub(rf"(?<=[ =]){place}(?=/)", f"{tmp_path}{place}", script)
    if topic == "operations":
        script = f"gossipd keygen publisher.key\ngossipd keygen --cluster cluster.key\n{script}"
    path = f"{tmp_path}/stubs:{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {"PATH": path, "CALLS": f"{tmp_path}/calls", "GOSSIPD_STORE__ANY_FILE_SYSTEM": "true"}
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script], cwd=tmp_path, env={**os.environ, **environment},
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    calls = (tmp_path / "calls").read_text()
    assert all(one in calls for one in called), calls
    for named in re.findall(r"--set-file \S+=(\S+)", calls):
        assert (tmp_path / named).exists(), "what helm is given was made"
    assert "ExecStart" in (tmp_path / "etc/systemd/system/gossipd.service").read_text()
