"""One real daemon: starting, refusing to start, reloading, stopping, and its local sockets."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import psutil  # type: ignore[import-untyped]
import pytest

from gossipd.api.client import DaemonUnreachableError
from gossipd.identity.cluster_key import add_key, format_key_ring, keep_first, send_with_newest
from gossipd.identity.key_files import read_key_ring, replace_key_ring
from membership.seal import KeyRing
from tests.e2e.cluster import (
    PATIENCE_S,
    PROGRAM,
    Cluster,
    Daemon,
    alive_count,
    cluster,
    gossipd,
    same_tree,
    until,
    whole_lines,
)  # fmt: skip
from tests.e2e.toy import make_model
from tests.servers import free_port


@pytest.fixture
def alone(tmp_path: Path) -> Iterator[Cluster]:
    with cluster(tmp_path / "alone") as made:
        yield made


def run_to_the_end(daemon: Daemon, **environment: str) -> subprocess.CompletedProcess[str]:
    """``gossipd run`` that is expected to refuse."""
    command = [sys.executable, "-m", "gossipd", "run", "--config", str(daemon.config)]
    return subprocess.run(
        command, env={**os.environ, **environment}, capture_output=True, text=True, timeout=PATIENCE_S
    )


def events(daemon: Daemon) -> list[dict[str, object]]:
    return [json.loads(line) for line in whole_lines(daemon.home / "log") if line.startswith("{")]


def policies(pid: int) -> set[int]:
    """How the kernel schedules a process's threads."""
    found = set()
    for thread in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(ProcessLookupError):  # it has ended meanwhile
            found.add(os.sched_getscheduler(int(thread.name)))
    return found


def test_it_tells_systemd_logs_json_serves_its_sockets_and_stops_cleanly(alone: Cluster, tmp_path: Path) -> None:
    notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    notify.bind(str(tmp_path / "notify"))
    notify.settimeout(PATIENCE_S)
    port = free_port()
    daemon = alone.add("one", "rack-1", NOTIFY_SOCKET=str(tmp_path / "notify"), GOSSIPD_STATUS__METRICS_PORT=str(port))
    daemon.start(PROGRAM)
    assert b"READY=1" in notify.recv(4096)
    daemon.wait_ready()
    assert daemon.process is not None
    assert policies(daemon.process.pid) == {os.SCHED_BATCH}, "no thread takes the CPU from another"
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) as stranger:
        stranger.sendall(b"what is this?\r\n\r\n")
        assert b"E_STATUS_REQUEST" in stranger.recv(4096)
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=PATIENCE_S) as answer:
        page = answer.read()
        assert b"gossipd_build_info" in page
        assert re.search(rb'gossipd_refused_total{reason="status"} [1-9]', page)
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=PATIENCE_S) as answer:
        assert answer.status == 200
    assert (daemon.home / "gossipd.sock").stat().st_mode & 0o777 == 0o600
    assert daemon.stop() == 0
    assert b"STOPPING=1" in notify.recv(4096)
    assert [event["event"] for event in events(daemon)][-1] == "stopped"
    audit = daemon.home / "audit.jsonl"
    assert not audit.exists() or "stranger" not in audit.read_text(), "its own check at the start is none"
    secret = (daemon.home / "node.key").read_text().split()[-1]
    key = (daemon.home / "cluster.key").read_text().split()[-1]
    assert secret not in daemon.log()
    assert key not in daemon.log()
    assert gossipd("audit", "verify", daemon.home / "audit.jsonl").returncode == 0
    notify.close()


STOPS_AT_ITS_START = """
import os, signal, sys
from gossipd.cli.main import main
from gossipd.config import check

original, stops = check.load_checked, [signal.SIGSTOP]

def load_checked(path):
    if stops:
        os.kill(os.getpid(), stops.pop())
    return original(path)

check.load_checked = load_checked
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_daemon_that_still_starts_ends_well_when_told_to_and_keeps_a_reload(
    alone: Cluster, number: signal.Signals
) -> None:
    daemon = alone.add("one", "rack-1")
    command = [sys.executable, "-c", STOPS_AT_ITS_START, "run", "--config", str(daemon.config)]

    def told_while_it_starts(*numbers: int) -> subprocess.Popen[str]:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        for one in (*numbers, signal.SIGCONT):
            process.send_signal(one)
        return process

    process = told_while_it_starts(signal.SIGHUP, number)
    assert (process.communicate(timeout=PATIENCE_S)[1], process.returncode) == ("", 0)
    process = told_while_it_starts(signal.SIGHUP)
    assert process.stderr is not None
    assert any('"reloaded"' in line for line in process.stderr)
    process.send_signal(number)
    assert '"stopped"' in process.communicate(timeout=PATIENCE_S)[1]
    assert process.returncode == 0


STOPS_IN_A_VISIT = """
import os, signal, sys
from gossipd.cli.main import main
from gossipd.control import self_check

original, stops = self_check._outcome, [signal.SIGSTOP]

async def outcome(*what):
    if stops:
        os.kill(os.getpid(), stops.pop())
    return await original(*what)

self_check._outcome = outcome
sys.exit(main(sys.argv[1:]))
"""


def is_checked_again(daemon: Daemon) -> bool:
    """Whether a host that stands still while it checks itself does so again. On a busy machine the answer may have come
    just before."""
    daemon.start(("-c", STOPS_IN_A_VISIT))
    process = daemon.process
    assert process is not None
    until("it stands still", lambda: psutil.Process(process.pid).status() == psutil.STATUS_STOPPED)
    time.sleep(7.0)
    process.send_signal(signal.SIGCONT)
    daemon.wait_ready()
    assert daemon.stop() == 0
    return "self-check is repeated" in daemon.log()


def test_a_host_that_stands_still_while_it_checks_itself_checks_again(alone: Cluster) -> None:
    assert any(is_checked_again(alone.add(name, "rack-1")) for name in ("one", "two", "three"))


def test_a_daemon_that_checks_itself_is_not_ready_and_ends_when_told_to(alone: Cluster) -> None:
    daemon = alone.add("one", "rack-1")
    daemon.start(("-c", STOPS_IN_A_VISIT))
    process = daemon.process
    assert process is not None
    until("it stands still", lambda: psutil.Process(process.pid).status() == psutil.STATUS_STOPPED)
    process.send_signal(signal.SIGTERM)
    process.send_signal(signal.SIGCONT)
    assert process.wait(PATIENCE_S) == 0
    daemon.process = None
    told = [event["event"] for event in events(daemon)]
    assert told[-2:] == ["stopping", "stopped"]
    assert "ready" not in told
    daemon.start()
    daemon.wait_ready()
    assert daemon.stop() == 0, "the next start finds all in order"


def test_the_alarm_that_ends_a_slow_stop_is_off_when_everything_has_stopped(alone: Cluster) -> None:
    daemon = alone.add("one", "rack-1")
    script = "import signal, sys; from gossipd.daemon.main import main; "
    script += "code = main(sys.argv[1]); print(code, signal.getitimer(signal.ITIMER_REAL))"
    process = subprocess.Popen(
        [sys.executable, "-c", script, str(daemon.config)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    daemon.process = process
    daemon.wait_ready()
    assert daemon.stop() == 0
    assert process.stdout is not None
    assert process.stdout.read() == b"0 (0.0, 0.0)\n"
    process.stdout.close()


def test_sighup_applies_what_can_be_applied_and_says_what_cannot(alone: Cluster) -> None:
    daemon = alone.add("one", "rack-1")
    daemon.start()
    daemon.wait_ready()
    text = daemon.config.read_text()
    changed = re.sub("(?m)^#?upload_bytes_per_s = .*", 'upload_bytes_per_s = "1MiB"', text)
    changed = re.sub("(?m)^#?upload_slots = .*", "upload_slots = 4", changed)
    assert changed != text
    daemon.config.write_text(changed)
    assert daemon.process is not None
    daemon.process.send_signal(signal.SIGHUP)
    until("it has reloaded", lambda: any(event["event"] == "reloaded" for event in events(daemon)))
    reloaded = next(event for event in events(daemon) if event["event"] == "reloaded")
    assert reloaded["applied"] == ["limits.upload_bytes_per_s"]
    assert reloaded["needs_restart"] == ["limits.upload_slots"]
    until("the alarm is on", lambda: alarm_codes(daemon) == ["E_RESTART_NEEDED"])
    daemon.config.write_text("this is not TOML")
    daemon.process.send_signal(signal.SIGHUP)
    until("it has refused", lambda: any(event["event"] == "not reloaded" for event in events(daemon)))
    until("both alarms are on", lambda: alarm_codes(daemon) == ["E_RESTART_NEEDED", "E_RELOAD"])
    daemon.config.write_text(text)
    assert reload(daemon) == (0, "applied limits.upload_bytes_per_s\n")
    assert alarm_codes(daemon) == []
    assert daemon.stop() == 0


def test_changed_keys_are_in_the_audit_log(alone: Cluster, tmp_path: Path) -> None:
    daemon = alone.add("one", "rack-1")
    daemon.start()
    daemon.wait_ready()
    gossipd("keygen", tmp_path / "other.key")
    text = daemon.config.read_text()
    changed = re.sub(r"(?m)^trust = \[", f'trust = ["{tmp_path / "other.key.pub"}", ', text)
    assert changed != text
    daemon.config.write_text(changed)
    assert reload(daemon) == (0, "applied security.trust\n")
    ring = add_key(read_key_ring(daemon.home / "cluster.key"), bytes(range(32)))
    replace_key_ring(daemon.home / "cluster.key", ring)
    assert reload(daemon) == (0, "applied security.cluster_key\n")
    assert daemon.stop() == 0
    written = (daemon.home / "audit.jsonl").read_text()
    assert written.count('"trust changed"') == written.count('"cluster keys changed"') == 1


def test_metrics_are_at_the_one_address_that_is_named(alone: Cluster) -> None:
    port = free_port()
    named = {"GOSSIPD_STATUS__METRICS_PORT": str(port), "GOSSIPD_STATUS__METRICS_BIND": "127.0.0.2"}
    daemon = alone.add("one", "rack-1", **named)
    daemon.start()
    daemon.wait_ready()
    with urllib.request.urlopen(f"http://127.0.0.2:{port}/metrics", timeout=PATIENCE_S) as answer:
        assert b"gossipd_build_info" in answer.read()
    with pytest.raises(OSError), socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S):
        pass
    assert daemon.stop() == 0
    refused = run_to_the_end(daemon, GOSSIPD_STATUS__METRICS_BIND="0.0.0.0")
    assert refused.returncode == 2 and "status.metrics_bind" in refused.stderr


def test_a_timetable_of_limits_is_in_force_and_told(alone: Cluster) -> None:
    daemon = alone.add("one", "rack-1")
    daemon.start()
    daemon.wait_ready()
    plain = daemon.config.read_text()
    hour = datetime.now(ZoneInfo("Asia/Kathmandu")).hour
    begins, ends = (hour - 6) % 24, (hour + 6) % 24  # far from now: none passes while the test runs
    now, later = f"{begins:02}:00-{ends:02}:00", f"{ends:02}:00-{begins:02}:00"
    entries = json.dumps([f"mon-sun {now} upload=1MiB", f"mon-sun {later} upload=2MiB source=3MiB"])
    zoned = plain.replace("#schedule_zone =", "schedule_zone =").replace('"UTC"', '"Asia/Kathmandu"')
    daemon.config.write_text(re.sub("(?m)^#schedule = .*", f"schedule = {entries}", zoned))
    assert reload(daemon) == (0, "applied limits.schedule, limits.schedule_zone\n")
    limits = daemon.client.status()["limits"]
    assert limits["entry"] == json.loads(entries)[0]
    assert (limits["upload_bytes_per_s"], limits["source_bytes_per_s"]) == (1 << 20, 0)
    assert limits["until"].endswith(":15:00Z"), "a full hour there"
    said = gossipd("status", "--config", daemon.config).stdout
    assert f"until {limits['until']}" in said and "limits    upload" in said

    def told() -> list[str]:
        lines = gossipd("events", "--config", daemon.config, "--json").stdout.splitlines()
        return [line for line in lines if "limits changed" in line and "upload=" in line]

    until("the change is an event", told)
    twice = f'{entries[:-1]}, "tue 11:00-13:00 upload=1"]'
    daemon.config.write_text(re.sub("(?m)^#schedule = .*", f"schedule = {twice}", zoned))
    code, said = reload(daemon)
    assert code == 2 and "limits.schedule" in said
    assert daemon.client.status()["limits"] == limits, "what was in force stays"
    assert daemon.stop() == 0


def alarm_codes(daemon: Daemon) -> list[str]:
    return [alarm["code"] for alarm in daemon.client.status()["alarms"]]


def reload(daemon: Daemon) -> tuple[int, str]:
    """The exit code of ``gossipd reload``, and what it said."""
    done = gossipd("reload", "--config", daemon.config, check=False)
    return done.returncode, done.stdout + done.stderr


def test_a_reload_waits_for_its_outcome_and_names_every_problem(alone: Cluster) -> None:
    daemon = alone.add("one", "rack-1", GOSSIPD_NET_PORT="7")
    daemon.start()
    daemon.wait_ready()
    assert "GOSSIPD_NET_PORT is ignored" in daemon.log()
    text = daemon.config.read_text()
    assert reload(daemon) == (0, "nothing to apply\n")
    (daemon.home / "node.key").chmod(0o644)
    (daemon.home / "trust" / "publisher.key.pub").write_text("no key")
    code, said = reload(daemon)
    assert (code, said.splitlines()[0]) == (2, "E_CONFIG: 2 problems")
    assert "security.node_key" in said and "security.trust" in said
    checked = gossipd("config", "check", daemon.config, check=False, env=daemon.environment)
    assert checked.stderr.endswith(said)
    (alarm,) = daemon.client.status()["alarms"]
    assert (alarm["code"], "\n" in alarm["sentence"]) == ("E_RELOAD", False)
    (daemon.home / "node.key").chmod(0o600)
    shutil.copy(f"{alone.key}.pub", daemon.home / "trust" / "publisher.key.pub")
    daemon.config.write_text(text.replace(f"port = {daemon.port}", f"port = {daemon.port + 1}"))
    assert reload(daemon) == (9, "nothing to apply; restart to apply net.port\n")
    assert alarm_codes(daemon) == ["E_RESTART_NEEDED"]
    assert daemon.stop() == 0


def rotate(daemons: list[Daemon], ring: KeyRing, reloads: int) -> None:
    """One round of a rotation: each daemon in turn gets the ring and SIGHUP."""
    for daemon in daemons:
        (daemon.home / "cluster.key").write_text(format_key_ring(ring))
        assert daemon.process is not None
        daemon.process.send_signal(signal.SIGHUP)
        until("it has reloaded", lambda one=daemon: reloaded(one) == reloads)  # type: ignore[misc]


def reloaded(daemon: Daemon) -> int:
    return sum(
        event["event"] == "reloaded" and event["applied"] == ["security.cluster_key"] and event["needs_restart"] == []
        for event in events(daemon)
    )


def unsealed(daemon: Daemon) -> list[str]:
    """How many datagrams under a key that the host does not have it has dropped; none where it counts none."""
    return re.findall(r'refused_total{reason="dropped_unsealed"} (\S+)', daemon.client.metrics())


def test_the_cluster_key_is_rotated_by_sighup_without_losing_sight_of_anybody(alone: Cluster, tmp_path: Path) -> None:
    alone.environment["GOSSIPD_SOURCES__ALLOW"] = json.dumps([f"file://{tmp_path}"])
    alone.environment["GOSSIPD_MEMBERSHIP__SUSPICION_BASE_S"] = "20"  # a busy machine must not look like a lost key
    alone.start(3, 3)
    daemons = list(alone.daemons.values())
    before = [unsealed(daemon) for daemon in daemons]
    both = add_key(read_key_ring(daemons[0].home / "cluster.key"), bytes(range(32)))
    for reloads, ring in enumerate((both, send_with_newest(both), keep_first(send_with_newest(both))), 1):
        rotate(daemons, ring, reloads)
        until("all see each other", lambda: [alive_count(daemon) for daemon in daemons] == [3, 3, 3])
    bodies = [row["body"] for daemon in daemons for row in daemon.client.events(None)["events"]]
    assert [unsealed(daemon) for daemon in daemons] == before, "each key was known where it arrived"
    states = {body["state"] for body in bodies if body["type"] == "member"}
    assert states <= {"up", "suspect"}, "nobody was lost meanwhile; on a busy machine some are suspected"
    # Bulk connections show certificates of the new key alone, and membership goes on under it.
    model = make_model(tmp_path / "toy", shards=2)
    alone.drop(alone.publish(model, "toy", 1, "--source", f"file://{model}/"), daemons[0])
    row = alone.wait_complete("toy", 1, at=daemons[2], hosts=3)
    assert row["peer_bytes_cross_rack"] > 0
    assert all(same_tree(model, daemon.tree("toy", 1)) for daemon in daemons)


def test_hosts_that_have_found_each_other_are_linked_before_anything_is_deployed(alone: Cluster) -> None:
    alone.start(3, 2)
    daemons = list(alone.daemons.values())
    ports = {daemon.port for daemon in daemons}

    def linked(daemon: Daemon) -> set[int]:
        assert daemon.process is not None
        found = psutil.Process(daemon.process.pid).net_connections("tcp")
        return {one.raddr.port for one in found if one.status == psutil.CONN_ESTABLISHED and one.raddr} & ports

    until("links", lambda: all(linked(daemon) == ports - {daemon.port} for daemon in daemons))


def test_wrong_settings_are_refused_all_at_once_before_anything_is_bound(alone: Cluster) -> None:
    daemon = alone.add("one", "rack-1")
    daemon.config.write_text(daemon.config.read_text() + "\n[nett]\nprot = 1\n")
    refused = run_to_the_end(daemon, GOSSIPD_LIMITS__UPLOAD_SLOTS="many")
    assert refused.returncode == 2
    assert "E_CONFIG" in refused.stderr
    assert "nett" in refused.stderr
    assert "upload_slots" in refused.stderr
    assert not (daemon.home / "state").exists()


def test_a_second_daemon_on_one_store_and_a_taken_port_are_refused(alone: Cluster) -> None:
    daemon = alone.add("one", "rack-1")
    daemon.start()
    daemon.wait_ready()
    second = run_to_the_end(daemon)
    assert second.returncode == 3
    assert "E_STORE_LOCKED" in second.stderr
    other = alone.add("two", "rack-1", GOSSIPD_NET__PORT=str(daemon.port))
    taken = run_to_the_end(other, GOSSIPD_NET__PORT=str(daemon.port))
    assert (taken.returncode, "E_BIND" in taken.stderr) == (1, True), "after 2 a service file leaves it down for good"
    bulk = run_to_the_end(other, GOSSIPD_NET__BULK_PORT=str(daemon.port + 1))
    assert (bulk.returncode, "net.bulk_port" in bulk.stderr) == (1, True)
    (other.home / "inbox").rename(other.home / "elsewhere")
    lost = run_to_the_end(other)
    assert (lost.returncode, "change store.inbox" in lost.stderr) == (2, True)
    (other.home / "elsewhere").rename(other.home / "inbox")
    (other.home / "gossipd.sock").write_text("mine")
    blocked = run_to_the_end(other)
    assert blocked.returncode == 2 and "E_STATUS_SOCKET" in blocked.stderr and "move it away" in blocked.stderr
    assert "Traceback" not in taken.stderr + bulk.stderr + lost.stderr
    assert daemon.stop() == 0


def test_a_store_in_memory_is_refused_before_anything_is_bound() -> None:
    with (
        tempfile.TemporaryDirectory(prefix="gossipd-run-", dir="/dev/shm") as directory,
        cluster(Path(directory) / "alone") as made,
    ):
        daemon = made.add("one", "rack-1")
        done = run_to_the_end(daemon, GOSSIPD_STORE__ANY_FILE_SYSTEM="false")
        assert done.returncode == 2
        assert done.stderr.startswith("E_CONFIG: ")
        assert "store.models" in done.stderr
        assert "tmpfs" in done.stderr
        assert "Traceback" not in done.stderr
        assert not (daemon.home / "state").exists()


def test_an_exposed_secret_key_is_refused(alone: Cluster) -> None:
    daemon = alone.add("one", "rack-1")
    (daemon.home / "cluster.key").chmod(0o644)
    refused = run_to_the_end(daemon)
    assert refused.returncode == 2
    assert "cluster_key" in refused.stderr


def test_the_first_answer_after_a_start_tells_all_that_lies_here(tmp_path: Path) -> None:
    """A job that asks again until its daemon answers must not hear that its checkpoint is not here."""
    names = [f"toy-{number}" for number in range(12)]
    model = make_model(tmp_path / "model", shards=1, shard_bytes=1_000_000)
    with cluster(tmp_path / "site", environment={"GOSSIPD_SOURCES__ALLOW": f'["file://{model}"]'}) as site:
        site.start(1, racks=1)
        daemon = site[1]
        for name in names:
            site.drop(site.publish(model, name, 1, "--source", f"file://{model}"), daemon)
        for name in names:
            site.wait_complete(name, 1, at=daemon, hosts=1)
        assert daemon.stop() == 0
        daemon.start()
        answer = None
        while answer is None:
            with contextlib.suppress(DaemonUnreachableError):
                answer = daemon.client.models()
        assert sorted(row["name"] for row in answer["models"] if row["state"] == "complete") == sorted(names)
