"""Reads of storage stop at a budget that real hosts share, and go on when it is raised."""

from __future__ import annotations

import re
from pathlib import Path

from tests.e2e.cluster import Daemon, cluster, gossipd, same_tree, until
from tests.e2e.test_states import allowed, shown
from tests.e2e.toy import make_model

BUDGET, MODEL_BYTES = 4_000_000, 12_000_000
PASSED_BYTES_MAX = 4_000_000  # what two seeds read at once in the seconds until they hear of each other


def set_budget(daemon: Daemon, value: str) -> None:
    text = re.sub("(?m)^#?budget_bytes = .*", f"budget_bytes = {value}", daemon.config.read_text())
    daemon.config.write_text(text)


def test_a_budget_holds_the_reads_of_all_hosts_and_raising_it_goes_on(tmp_path: Path) -> None:
    model = make_model(tmp_path / "model")
    environment = allowed(f"file://{tmp_path}") | {"GOSSIPD_LIMITS__SOURCE_BYTES_PER_S": "500000"}
    with cluster(tmp_path / "three", environment=environment) as made:
        for number, rack in ((1, "rack-1"), (2, "rack-1"), (3, "rack-2")):
            made.add(f"node-{number}", rack)
            set_budget(made[number], str(BUDGET))
            made[number].start()
        made.wait_together()
        made.drop(made.publish(model, "m", 1), made[1])
        until("all say so", lambda: {host["reason"] for host in shown(made[1])["hosts"]} == {"source_budget"})
        row = shown(made[1])
        assert BUDGET / 2 < row["source_bytes"] <= BUDGET + PASSED_BYTES_MAX < MODEL_BYTES
        assert (row["hosts_failed"], row["source_budget_bytes"]) == (0, BUDGET)
        why = gossipd("why", "m@1", "--config", made[3].config, check=False)
        assert why.returncode == 11 and "sources.budget_bytes" in why.stdout
        ended = gossipd("wait", "m@1", "--config", made[1].config, "--timeout", "3s", check=False)
        assert ended.returncode == 5 and "source_budget" in ended.stderr
        assert "of at most 3.8 MiB" in gossipd("status", "--config", made[2].config).stdout
        audits = [(made[number].home / "audit.jsonl").read_text() for number in (1, 2, 3)]
        assert any("E_SOURCE_BUDGET" in text for text in audits)
        for number in (1, 2, 3):
            set_budget(made[number], "0")
            gossipd("reload", "--config", made[number].config)
        made.wait_complete("m", 1, at=made[1], hosts=3)
        assert same_tree(model, made[3].tree("m", 1))
