"""Prometheus with what is shipped for it: rules with their texts, metrics, and every panel over real daemons."""

from __future__ import annotations

import json
import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote
from urllib.request import urlopen

import pytest
import trio
import yaml

from gossipd.api.metrics import render
from gossipd.cli.help import page
from tests.e2e.cluster import Cluster, cluster, until
from tests.e2e.toy import make_model
from tests.gossipd.api.fake_daemon import FakeDaemon
from tests.servers import free_port

ROOT = Path(__file__).parents[2]
ASSETS = ROOT / "gossipd" / "assets"
RULES = ASSETS / "prometheus-alerts.yml"
TESTS = ROOT / "config" / "prometheus-alerts-test.yml"
HOSTS = 4

pytestmark = pytest.mark.needs("promtool")


def rules() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = yaml.safe_load(RULES.read_text())["groups"][0]["rules"]
    return found


def promtool(*words: str, text: bytes = b"") -> None:
    done = subprocess.run(["promtool", *words], input=text, capture_output=True, cwd=ASSETS, timeout=180, check=False)
    assert done.returncode == 0, (done.stdout + done.stderr).decode()
    assert not done.stderr.strip(), done.stderr.decode()


def test_the_rules_are_right_and_say_what_they_should() -> None:
    promtool("check", "rules", RULES.name)
    promtool("test", "rules", str(TESTS))


def test_every_rule_is_tested_and_names_its_page_and_how_bad_it_is() -> None:
    tested = [
        each["alert_rule_test"][0]["alertname"] for each in yaml.safe_load(TESTS.read_text())["tests"]
    ]  # fmt: skip
    assert tested == [rule["alert"] for rule in rules()]
    for rule in rules():
        assert rule["labels"]["severity"] in ("critical", "warning", "info")
        assert rule["annotations"]["runbook_url"] == f"gossipd/manual/runbook.md#{rule['alert'].lower()}"
        used = set(re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"]))
        kept = re.search(r"\bby \(([^)]*)\)", rule["expr"])
        assert kept is None or used <= {word.strip() for word in kept[1].split(",")}, rule["alert"]


def test_the_runbook_has_one_section_for_each_alert_and_each_alarm() -> None:
    sections = re.findall(r"^### (\w+)$", page("runbook"), re.MULTILINE)
    alarms = re.findall(r"^\| `(E_\w+)` \|", page("operations").split("## Alarms")[1].split("## ")[0], re.MULTILINE)
    assert sections == [rule["alert"] for rule in rules()] + alarms


def test_the_metrics_keep_to_the_conventions() -> None:
    promtool("check", "metrics", text=trio.run(render, FakeDaemon()))


@pytest.fixture
def four(tmp_path: Path) -> Iterator[tuple[Cluster, list[int]]]:
    ports = [free_port() for _ in range(HOSTS)]
    allow = json.dumps([f"file://{tmp_path / 'model'}"])
    with cluster(tmp_path / "cluster", environment={"GOSSIPD_SOURCES__ALLOW": allow}) as here:
        for number, port in enumerate(ports):
            rack = f"rack-{number % 2}"
            here.add(f"node-{number + 1}", rack, GOSSIPD_STATUS__METRICS_PORT=str(port)).start()
        here.wait_together()
        yield here, ports


def test_every_panel_has_a_series_in_a_prometheus_that_scrapes_four_daemons(
    four: tuple[Cluster, list[int]], tmp_path: Path
) -> None:
    here, ports = four
    source = make_model(tmp_path / "model")
    targets = [f"127.0.0.1:{port}" for port in ports]
    job = {"job_name": "gossipd", "scrape_interval": "1s", "static_configs": [{"targets": targets}]}
    (tmp_path / "prometheus.yml").write_text(yaml.safe_dump({"scrape_configs": [job], "rule_files": [str(RULES)]}))
    port = free_port()
    words = ["prometheus", f"--config.file={tmp_path / 'prometheus.yml'}", f"--storage.tsdb.path={tmp_path / 'tsdb'}"]
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen([*words, f"--web.listen-address=127.0.0.1:{port}"], stdout=log, stderr=log)
    try:
        here.drop(here.publish(source, "toy", 1), here[1])
        here.wait_complete("toy", 1, at=here[1], hosts=HOSTS)
        for expression in panels():
            until(expression, lambda one=expression: ask(port, one))  # type: ignore[misc]
    finally:
        process.terminate()
        process.wait(120)


def panels() -> list[str]:
    board = json.loads((ASSETS / "grafana.json").read_text())
    return [target["expr"] for panel in board["panels"] for target in panel.get("targets", [])]


def ask(port: int, expression: str) -> list[Any]:
    try:
        with urlopen(f"http://127.0.0.1:{port}/api/v1/query?query={quote(expression)}&time={time.time()}") as answer:
            found: list[Any] = json.load(answer)["data"]["result"]
    except OSError:
        return []
    return found
