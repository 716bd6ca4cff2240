"""What an operator meets on the first day, with real daemons: each mistake is named by the host that it is made on."""

from __future__ import annotations

from pathlib import Path

from tests.e2e.cluster import Daemon, cluster, until


def alarm_codes(daemon: Daemon) -> list[str]:
    status = daemon.try_status() or {"alarms": []}
    return [alarm["code"] for alarm in status["alarms"]]


def test_a_host_of_another_cluster_key_says_it_is_alone(tmp_path: Path) -> None:
    with cluster(tmp_path / "c") as here, cluster(tmp_path / "other") as other:
        first = here.add("node-1", "r1")
        first.start()
        first.wait_ready()
        stranger = other.add("stranger", "r1")
        stranger.environment["GOSSIPD_NET__JOIN"] = f'["127.0.0.1:{first.port}"]'
        stranger.start()
        stranger.wait_ready()
        until("the stranger says so", lambda: "E_ALONE" in alarm_codes(stranger))
        [alarm] = [one for one in (stranger.try_status() or {})["alarms"] if one["code"] == "E_ALONE"]
        assert f"127.0.0.1:{first.port}/udp" in alarm["sentence"]
        assert "cluster.key" in alarm["sentence"]
        assert "E_ALONE" in stranger.log()
        assert "E_ALONE" not in alarm_codes(first), "a first host has nobody to hear"
