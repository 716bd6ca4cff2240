"""What an operator meets on the first day, with real daemons: each mistake is named by the host that it is made on."""

from __future__ import annotations

import contextlib
from pathlib import Path

from gossipd.api.client import DaemonUnreachableError
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
        [alarm] = [one for one in stranger.client.status()["alarms"] if one["code"] == "E_ALONE"]
        assert f"127.0.0.1:{first.port}/udp" in alarm["sentence"]
        assert "cluster.key" in alarm["sentence"]
        until("its log has it", lambda: "E_ALONE" in stranger.log())
        assert "E_ALONE" not in alarm_codes(first), "a first host has nobody to hear"


def test_events_over_kill_restart_and_reconnect_come_once_or_are_told_as_a_gap(tmp_path: Path) -> None:
    with cluster(tmp_path / "c") as here:
        here.start(2, 1)
        watched, other = here[1], here[2]
        seen: list[tuple[int, int]] = []
        gaps = []

        def read() -> list[str]:
            position = None if not seen else f"{seen[-1][0]}:{seen[-1][1]}"
            with contextlib.suppress(DaemonUnreachableError):
                for row in watched.client.events(position)["events"]:
                    seen.append((row["boot"], row["id"]))
                    told.append(f"{row['body']['type']} {row['body'].get('state', '')}".strip())
                    gaps.extend([row] if row["body"]["type"] == "gap" else [])
            return told

        told: list[str] = []
        until("the other is seen", lambda: "member up" in read())
        other.kill()
        until("it is seen to be gone", lambda: "member down" in read())
        assert not gaps
        watched.kill()
        watched.start()
        watched.wait_ready()
        other.start()
        until("a gap, then the new life", lambda: "gap" in read() and "member up" in told[told.index("gap") :])
        assert len(gaps) == 1
        assert len(set(seen)) == len(seen), "none twice"
        for boot in {boot for boot, _ in seen}:
            numbers = [number for of, number in seen if of == boot]
            assert numbers == list(range(numbers[0], numbers[0] + len(numbers))), "none missing"
