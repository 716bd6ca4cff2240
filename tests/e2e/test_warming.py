"""A real host reads its current version into memory, also when its daemon starts, and says how far it is."""

from __future__ import annotations

import json
import re
from functools import partial
from pathlib import Path
from typing import Any

from tests.e2e.cluster import Daemon, cluster, gossipd, until
from tests.e2e.test_states import allowed
from tests.e2e.toy import make_model


def restart(daemon: Daemon) -> None:
    daemon.stop()
    daemon.start()
    daemon.wait_ready()


def row(daemon: Daemon) -> dict[str, Any]:
    """The only version that is warmed there; empty before the first look."""
    status = daemon.try_status()
    rows = status["warm"] if status is not None else []
    return dict(rows[0]) if rows else {}


def is_warm(daemon: Daemon, model: str) -> bool:
    found = row(daemon)
    return (found.get("model"), found.get("state")) == (model, "read") and found["bytes_cached"] == found["bytes_total"]


def test_the_current_version_is_in_memory_also_after_a_start(tmp_path: Path) -> None:
    model = make_model(tmp_path / "model", shards=1)
    with cluster(tmp_path / "one", environment=allowed(f"file://{tmp_path}")) as made:
        made.add("node-1", "rack-1").configure(warm="true", page_cache='"drop"')
        made[1].start()
        made[1].wait_ready()
        for version in (1, 2):
            made.drop(made.publish(model, "m", version), made[1])
            made.wait_complete("m", version, at=made[1], hosts=1)
            until("it is read", partial(is_warm, made[1], f"m@{version}"))
        restart(made[1])
        until("it is read after a start", partial(is_warm, made[1], "m@2"))
        says = re.compile(r"memory    m@2 100 % of [0-9.]+ MiB cached, read")
        until("it says so", lambda: says.search(gossipd("status", "--config", made[1].config).stdout))


def test_a_version_is_read_into_memory_by_order(tmp_path: Path) -> None:
    model = make_model(tmp_path / "model", shards=1)
    with cluster(tmp_path / "one", environment=allowed(f"file://{tmp_path}")) as made:
        made.add("node-1", "rack-1").configure(page_cache='"drop"')
        made[1].start()
        made[1].wait_ready()
        made.drop(made.publish(model, "m", 1), made[1])
        made.wait_complete("m", 1, at=made[1], hosts=1)
        assert row(made[1]) == {}
        config = ("--config", made[1].config)
        told = gossipd("warm", "m", *config, "--json").stdout
        assert json.loads(told)["sentence"].endswith("is read into memory; gossipd status says how far")
        until("it is read", partial(is_warm, made[1], "m@1"))
        assert "m@2 is not complete on this host" in gossipd("warm", "m@2", *config, check=False).stderr
