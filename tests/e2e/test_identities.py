"""A machine that was cloned after init, among real daemons: everybody says so, and nobody lists it as complete."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from tests.e2e.cluster import Daemon, cluster, free_port_pair, until
from tests.e2e.toy import make_model


def alarms(daemon: Daemon, code: str) -> list[str]:
    status: dict[str, Any] = daemon.try_status() or {"alarms": []}
    return [row["sentence"] for row in status["alarms"] if row["code"] == code]


def has_it_once(daemon: Daemon) -> bool:
    """Whether node-2, which is there twice, does not count as complete."""
    row: dict[str, Any] = daemon.deployment("some", 1) or {"hosts_complete": 3, "hosts": []}
    reasons = [host["reason"] for host in row["hosts"] if host["name"] == "node-2"]
    return bool(row["hosts_complete"] <= 2 and reasons == ["identity_twice"])


def test_a_cloned_machine_is_an_alarm_on_every_host_and_no_complete_target(tmp_path: Path) -> None:
    environment = {"GOSSIPD_SOURCES__ALLOW": json.dumps([f"file://{tmp_path}"])}
    with cluster(tmp_path / "three", environment=environment) as made:
        made.start(3, 3)
        model = make_model(tmp_path / "some", shards=1)
        made.drop(made.publish(model, "some", 1, "--source", f"file://{model}"), made[1])
        made.wait_complete("some", 1, at=made[1], hosts=3)
        port, home = free_port_pair(), made.base / "clone"
        left_out = shutil.ignore_patterns("models", "audit.jsonl", "*.sock", "log")
        made[2].stop()  # one that runs replaces files while they are copied
        shutil.copytree(made[2].home, home, ignore=left_out)
        made[2].start()
        made.wait_together()
        config = (made[2].home / "gossipd.toml").read_text()
        text = config.replace(str(made[2].home), str(home)).replace(str(made[2].port), str(port))
        (home / "gossipd.toml").write_text(text.replace(str(made[2].port + 1), str(port + 1)))
        clone = Daemon(home, "clone", "rack-2", port, made.environment)
        made.daemons["clone"] = clone
        clone.start()
        clone.wait_ready()
        for daemon in made.daemons.values():
            (said,) = until(f"{daemon.name} says so", lambda: alarms(daemon, "E_IDENTITY_TWICE"))  # noqa: B023
            assert f"127.0.0.1:{made[2].port}" in said
            assert f"127.0.0.1:{port}" in said
            until("it is no secure state", lambda: daemon.client.status()["security"]["state"] == "degraded")  # noqa: B023
            until("and no complete target", lambda: has_it_once(daemon))  # noqa: B023
        audits = [(made[number].home / "audit.jsonl") for number in (1, 3)]
        until("it is written down", lambda: all("identity seen twice" in path.read_text() for path in audits))
