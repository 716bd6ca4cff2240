"""The manual's page for jobs: every example on it runs, in order, against real daemons."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from gossipd.cli.help import page
from gossipd.client import Client
from tests.e2e.cluster import PATIENCE_S, Cluster, same_tree
from tests.e2e.test_job_publishing import step_directory


def blocks(language: str) -> list[str]:
    found = re.findall(rf"^```{language}\n(.*?)^```", page("training"), re.DOTALL | re.MULTILINE)
    assert found
    return found


def test_every_example_of_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(tmp_path)
    try:
        nodes = [cluster.add(f"node-{number}", "rack-1") for number in (1, 2)]
        for node in nodes:
            text = re.sub(r"^\[publish\]\n", "".join(blocks("toml")), node.config.read_text(), flags=re.MULTILINE)
            node.config.write_text(text)
            (node.home / "train.key").write_bytes(cluster.key.read_bytes())
            (node.home / "train.key").chmod(0o600)
            node.start()
        for node in nodes:
            node.wait_ready()
        here = tmp_path / "job"
        here.mkdir()
        monkeypatch.chdir(here)
        monkeypatch.setenv("GOSSIPD_SOCKET", str(nodes[0].home / "gossipd.sock"))
        for number, name in enumerate(("step-100", "step-200", "toy")):
            step_directory(here / name, number, bytes_each=70_000)
        other = Client(nodes[1].home / "gossipd.sock")
        Client().publish(here / "toy", name="toy", version=1)
        other.wait("toy", 1, hosts="100%", timeout=PATIENCE_S)
        Client().wait("toy", 1, hosts="100%", timeout=PATIENCE_S)
        names: dict[str, Any] = {"__name__": "job"}
        for block in blocks("python"):
            exec(compile(block, "training.md", "exec"), names)
        other.wait("run-7", 50, timeout=PATIENCE_S)
        assert same_tree(here / "step-50", other.path("run-7", 50))
    finally:
        cluster.close()
