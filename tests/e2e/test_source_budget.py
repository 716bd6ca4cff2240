"""Reads of storage stop at a budget that real hosts share, and go on when it is raised."""

from __future__ import annotations

import json
from pathlib import Path

from tests.e2e.cluster import Cluster, Daemon, cluster, gossipd, same_tree, set_up, until, wait_in_vain
from tests.e2e.test_states import allowed, shown
from tests.e2e.toy import make_model

BUDGET, MODEL_BYTES = 4_000_000, 12_000_000
SLOW_BYTES_PER_S = "500000"
PASSED_BYTES_MAX = 4_000_000  # what two seeds read at once in the seconds until they hear of each other


def test_a_budget_holds_the_reads_of_all_hosts_and_raising_it_goes_on(tmp_path: Path) -> None:
    model = make_model(tmp_path / "model")
    with cluster(tmp_path / "three", environment=allowed(f"file://{tmp_path}")) as made:
        for number, rack in ((1, "rack-1"), (2, "rack-1"), (3, "rack-2")):
            made.add(f"node-{number}", rack).configure(budget_bytes=str(BUDGET), source_bytes_per_s=SLOW_BYTES_PER_S)
            made[number].start()
        made.wait_together()
        made.drop(made.publish(model, "m", 1), made[1])
        until("all say so", lambda: {host["reason"] for host in shown(made[1])["hosts"]} == {"source_budget"})
        row = shown(made[1])
        assert BUDGET / 2 < row["source_bytes"] <= BUDGET + PASSED_BYTES_MAX < MODEL_BYTES
        assert (row["hosts_failed"], row["source_budget_bytes"]) == (0, BUDGET)
        until("it is named at another", lambda: told(made[3], "why", code=11, words="sources.budget_bytes"))
        assert "source_budget" in wait_in_vain(made[1], "m@1")
        until("and at a third", lambda: told(made[2], "status", code=0, words="of at most 3.8 MiB"))
        audits = [made[number].home / "audit.jsonl" for number in (1, 2, 3)]
        until("it is written down", lambda: any("E_SOURCE_BUDGET" in audit.read_text() for audit in audits))
        for number in (1, 2, 3):
            made[number].configure(budget_bytes="0", source_bytes_per_s="0")
        made.wait_complete("m", 1, at=made[1], hosts=3)
        assert same_tree(model, made[3].tree("m", 1))


def told(daemon: Daemon, command: str, *, code: int, words: str) -> bool:
    """Whether a command ends so and says so there."""
    done = gossipd(command, "m@1", "--config", daemon.config, check=False)
    return done.returncode == code and words in done.stdout


def limits(made: Cluster, *numbers: int) -> set[object]:
    """What these hosts say may be read."""
    return {shown(made[number]).get("source_budget_bytes", "unknown") for number in numbers}


def test_a_budget_that_comes_with_a_deployment_holds_all_hosts_and_outlives_restarts(tmp_path: Path) -> None:
    model, client = make_model(tmp_path / "model"), tmp_path / "client.key"
    set_up("keygen", client)
    environment = allowed(f"file://{tmp_path}") | {"GOSSIPD_SECURITY__CLIENTS": json.dumps([f"{client}.pub"])}
    with cluster(tmp_path / "three", environment=environment) as made:
        for number, rack in ((1, "rack-1"), (2, "rack-1"), (3, "rack-2")):
            made.add(f"node-{number}", rack).configure(source_bytes_per_s=SLOW_BYTES_PER_S)
            made[number].start()
        made.wait_together()
        manifest = made.publish(model, "m", 1)
        refused = gossipd("deploy", manifest, "--budget", "5", "--config", made[1].config, check=False)
        assert refused.returncode == 2 and "no sources.money_per_gb" in refused.stderr
        gossipd("deploy", manifest, "--budget", "4MB", "--config", made[1].config)
        until("all say so", lambda: {host["reason"] for host in shown(made[1])["hosts"]} == {"source_budget"})
        until("all follow it", lambda: limits(made, 1, 2, 3) == {BUDGET})
        assert shown(made[1])["source_bytes"] <= BUDGET + PASSED_BYTES_MAX < MODEL_BYTES
        until("it is named at another", lambda: told(made[3], "why", code=11, words="higher `--budget`"))
        other = gossipd("deploy", manifest, "--budget", "none", "--config", made[3].config, check=False)
        assert other.returncode == 7 and "E_MAY_NOT_CANCEL" in other.stderr, "it did not deploy it first"
        by_client = ("--key", client, "--server-key", made[3].home / "node.key.pub", "--budget", "4100kB")
        gossipd("trigger", f"127.0.0.1:{made[3].port}", manifest, *by_client)
        until("all follow the client", lambda: limits(made, 1, 2, 3) == {BUDGET + 100_000})
        for number in (1, 3):
            made[number].stop()
            made[number].start()
        made.wait_together()
        until("they follow it again", lambda: limits(made, 1, 3) == {BUDGET + 100_000})
        first = gossipd("deploy", manifest, "--budget", "none", "--config", made[1].config, check=False)
        assert first.returncode == 7 and "E_MAY_NOT_CANCEL" in first.stderr, "a client has deployed it, too"
        gossipd("trigger", f"127.0.0.1:{made[3].port}", manifest, *by_client[:-1], "none")
        for number in (1, 2, 3):
            made[number].configure(source_bytes_per_s="0")
        made.wait_complete("m", 1, at=made[1], hosts=3)
        assert same_tree(model, made[3].tree("m", 1))
        until("nobody has a limit", lambda: limits(made, 1, 2, 3) == {None})
