"""A host whose audit log was cut, among real daemons: the others say so, also after a restart of their own."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from gossipd.audit.witness import Witness
from gossipd.daemon.audit_gossip import FIRST_S
from tests.e2e.cluster import Daemon, cluster, gossipd, until


def cut_said(daemon: Daemon) -> list[str]:
    status: dict[str, Any] = daemon.try_status() or {"alarms": []}
    return [row["sentence"] for row in status["alarms"] if row["code"] == "E_AUDIT_CUT"]


def heard(daemon: Daemon) -> bool:
    """Whether the host has heard the head of node-2's log: it is on its disk when it ends; then it runs again."""
    time.sleep(FIRST_S)
    daemon.stop()
    kept = daemon.home / "state" / "witness"
    found = kept.exists() and "node-2" in Witness.from_bytes(kept.read_bytes()).names()
    daemon.start()
    daemon.wait_ready()
    return found


def test_a_log_whose_end_is_cut_off_is_an_alarm_on_the_other_hosts(tmp_path: Path) -> None:
    with cluster(tmp_path / "three") as made:
        made.start(3, 3)
        until("the others have heard its head", lambda: heard(made[1]) and heard(made[3]))
        assert made[2].stop() == 0
        log = made[2].home / "audit.jsonl"
        log.write_bytes(b"")
        made[2].start()
        for number in (1, 3):
            (said,) = until(f"node-{number} says so", lambda one=made[number]: cut_said(one))  # type: ignore[misc]
            assert "node-2" in said
        assert cut_said(made[2]) == []
        assert made[2].stop() == 0  # it tells nobody again
        assert made[1].stop() == 0
        made[1].start()
        until("it remembers", lambda: cut_said(made[1]))
        words = ("audit", "verify", "--witness", made[1].home / "state" / "witness", "--host", "node-2")
        assert gossipd(*words, log, check=False).returncode == 6
