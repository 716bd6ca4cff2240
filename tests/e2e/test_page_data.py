"""What the page is told of real hosts that cannot go on, or go on slowly: the figures, without a browser."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from gossipd.api.client import READ_SOCKET_NAME
from tests.e2e.cluster import cluster, until
from tests.e2e.toy import make_model
from tests.gossipd.web.unix_daemon import page_server


@pytest.mark.needs("root")
def test_a_full_disk_and_a_slow_host_are_told_to_the_page_with_their_reasons(tmp_path: Path) -> None:
    environment = {"GOSSIPD_SOURCES__ALLOW": json.dumps([f"file://{tmp_path}"])}
    with cluster(tmp_path / "c", environment=environment) as here:
        here.add("node-1", "r1").start()
        here.add("node-2", "r2").start()
        # A chunk of 256 KiB takes it longer than the ten seconds after which a host says why none has come.
        here.add("slow", "r2", GOSSIPD_LIMITS__DOWNLOAD_BYTES_PER_S="8192", GOSSIPD_SOURCES__ENABLED="false").start()
        full = here.add("full", "r1")
        models = str(full.home / "models")
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m,mode=755", "none", models], check=True)
        try:
            full.start()
            here.wait_together()
            here.drop(here.publish(make_model(tmp_path / "model"), "toy", 1), here[1])
            here.wait_complete("toy", 1, at=here[1], hosts=2)
            with page_server(here[1].home / READ_SOCKET_NAME) as server:

                def told(path: str) -> dict[str, Any]:
                    with urlopen(f"{server.url}{path}", timeout=10) as answer:
                        found: dict[str, Any] = json.loads(answer.read())
                        return found

                def behind() -> dict[str, tuple[str, str]]:
                    [row] = told("page/status?name=toy&version=1")["deployments"]
                    return {
                        one["name"]: (one["state"], one["reason"]) for one in row["hosts"] if one["state"] != "complete"
                    }

                until("both are told with a reason", lambda: all(reason for _, reason in behind().values()))
                assert behind()["full"] == ("init", "no_space")
                state, reason = behind()["slow"]
                assert (state, reason in ("all_busy", "holder_silent")) == ("downloading", True)
                words = told("words.json")["reasons"]
                assert words["no_space"]["cure"] == "free some space; it is noticed within ten seconds"
                assert words[reason]["sentence"]
                why = told("page/bound?name=toy&version=1&host=full")["reasons"]
                assert [word for _, word in why][-1] == "no_space"
        finally:
            if full.process is not None:
                full.kill()
            subprocess.run(["umount", "-l", models], check=True)
