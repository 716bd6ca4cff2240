"""States that are true: what real daemons show of one that was removed, cancelled, paused, or has a wrong clock."""

from __future__ import annotations

import json
import re
import subprocess
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests import servers
from tests.e2e.cluster import Cluster, Daemon, cluster, gossipd, same_tree, until, wait_in_vain
from tests.e2e.toy import make_model

FAKETIME = next(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"), None)
SLOW_BYTES_PER_S = "600000"  # a model of 8 MB takes so long that orders come in the middle


def shown(daemon: Daemon) -> dict[str, Any]:
    """The row of the one deployment."""
    return daemon.deployment("m", 1) or {"state": "", "hosts": [], "chunks_verified": 0}


def host_in(daemon: Daemon, name: str) -> dict[str, Any]:
    """One host's row, as ``daemon`` shows it."""
    found = [host for host in shown(daemon)["hosts"] if host["name"] == name]
    return found[0] if found else {"state": "", "reason": "", "chunks_verified": 0}


def allowed(*addresses: str) -> dict[str, str]:
    return {"GOSSIPD_SOURCES__ALLOW": json.dumps(list(addresses))}


def test_a_model_removed_from_one_host_is_complete_elsewhere_and_wait_names_that_host(tmp_path: Path) -> None:
    model = make_model(tmp_path / "model", shards=1)
    with cluster(tmp_path / "three", environment=allowed(f"file://{tmp_path}")) as made:
        made.start(3, 2)
        manifest = made.publish(model, "m", 1)
        made.drop(manifest, made[1])
        made.wait_complete("m", 1, at=made[1], hosts=3)
        gossipd("rm", "m@1", "--config", made[3].config)
        for number in (1, 2, 3):
            until("removed there, complete elsewhere", lambda n=number: is_removed_from_one(shown(made[n])))  # type: ignore[misc]
        ended = gossipd("wait", "m@1", "--config", made[1].config, "--timeout", "170s", check=False)
        assert ended.returncode == 9
        assert "node-3 removed; removed: " in ended.stderr
        made.drop(manifest, made[3])
        made.wait_complete("m", 1, at=made[1], hosts=3)


def is_removed_from_one(row: dict[str, Any]) -> bool:
    """Whether node-3 alone has removed it, and two others have all of it."""
    found = {host["name"]: (host["state"], host["reason"], host["chunks_verified"]) for host in row["hosts"]}
    if found.get("node-3") != ("removed", "removed", 0) or row["state"] != "complete":
        return False
    two = (2, 3, 2 * row["bytes_total"])
    return bool((row["hosts_complete"], row["hosts_total"], row["cluster_bytes_verified"]) == two)


def test_a_cancel_of_what_all_have_is_refused_and_says_so(tmp_path: Path) -> None:
    model = make_model(tmp_path / "model", shards=1)
    with cluster(tmp_path / "two", environment=allowed(f"file://{tmp_path}")) as made:
        made.start(2, 1)
        made.drop(made.publish(model, "m", 1), made[1])
        made.wait_complete("m", 1, at=made[1], hosts=2)
        refused = gossipd("cancel", "m@1", "--config", made[1].config, check=False)
        assert refused.returncode == 1
        assert "E_COMPLETE: m@1 is complete on all 2 hosts" in refused.stderr
        forced = gossipd("cancel", "m@1", "--force", "--config", made[1].config)
        assert "2 of 2 hosts have it complete and keep it" in forced.stdout
        for number in (1, 2):
            until("complete there", lambda n=number: shown(made[n])["state"] == "complete")  # type: ignore[misc]
            assert same_tree(model, made[number].tree("m", 1))


def slow(made: Cluster) -> tuple[Daemon, Daemon]:
    for number in (1, 2):
        made.add(f"node-{number}", "rack-1").configure(download_bytes_per_s=SLOW_BYTES_PER_S)
        made[number].start()
    made.wait_together()
    return made[1], made[2]


def hurry(*daemons: Daemon) -> None:
    """What follows need not last."""
    for daemon in daemons:
        daemon.configure(download_bytes_per_s="0")


def test_what_was_cancelled_and_is_deployed_again_goes_on_from_its_chunks(tmp_path: Path) -> None:
    model = make_model(tmp_path / "model", shards=2)
    files = {str(path.relative_to(model)): path.read_bytes() for path in model.rglob("*") if path.is_file()}
    with servers.fault_server(files) as storage, cluster(tmp_path / "two", environment=allowed(storage.url)) as made:
        one, two = slow(made)
        manifest = made.publish(model, "m", 1, "--chunk-size", "256KiB", "--source", f"{storage.url}/")
        made.drop(manifest, one)
        until(
            "some chunks",
            lambda: all(host["chunks_verified"] >= 4 for host in shown(one)["hosts"] or [{"chunks_verified": 0}]),
        )
        gossipd("cancel", "m@1", "--config", one.config)
        for daemon in (one, two):
            until("cancelled", lambda it=daemon: [host["state"] for host in shown(it)["hosts"]] == ["cancelled"] * 2)  # type: ignore[misc]
            assert shown(daemon)["state"] == "cancelled"
        made.drop(manifest, one)
        hurry(one, two)
        made.wait_complete("m", 1, at=two, hosts=2)
        assert same_tree(model, two.tree("m", 1))
        total = sum(map(len, files.values()))
        row = shown(two)
        moved = row["source_bytes"] + row["peer_bytes_same_rack"] + row["peer_bytes_cross_rack"]
        assert moved < 2.3 * total, "each host gets every byte once, though it was cancelled in the middle"


def test_a_paused_deployment_stands_still_everywhere_and_goes_on(tmp_path: Path) -> None:
    model = make_model(tmp_path / "model", shards=2)
    files = {str(path.relative_to(model)): path.read_bytes() for path in model.rglob("*") if path.is_file()}
    with servers.fault_server(files) as storage, cluster(tmp_path / "two", environment=allowed(storage.url)) as made:
        one, two = slow(made)
        made.drop(made.publish(model, "m", 1, "--chunk-size", "256KiB", "--source", f"{storage.url}/"), one)
        until("some chunks, and others on their way", lambda: least_chunks(one) >= 3 and chunks_here(two, "in_flight"))
        assert "m@1 is paused" in gossipd("pause", "m@1", "--config", one.config).stdout
        for daemon in (one, two):
            until("paused", lambda it=daemon: [told(host) for host in shown(it)["hosts"]] == [("paused", "paused")] * 2)  # type: ignore[misc]
            assert (shown(daemon)["state"], shown(daemon)["eta_s"]) == ("paused", None)
        held = until_nothing_is_under_way(one, two)
        requests = len(storage.seen)
        wait_in_vain(two, "m@1", seconds=4)
        assert (len(storage.seen), until_nothing_is_under_way(one, two)) == (requests, held)
        two.kill()
        two.start()
        until("paused after a restart", lambda: told(host_in(two, "node-2")) == ("paused", "paused"))
        assert "m@1 goes on" in gossipd("resume", "m@1", "--config", one.config).stdout
        hurry(one, two)
        made.wait_complete("m", 1, at=two, hosts=2)
        assert same_tree(model, two.tree("m", 1))


def test_orders_that_cross_from_two_hosts_leave_all_hosts_in_one_state(tmp_path: Path) -> None:
    model = make_model(tmp_path / "model", shards=2)
    files = {str(path.relative_to(model)): path.read_bytes() for path in model.rglob("*") if path.is_file()}
    may = {"GOSSIPD_SECURITY__MAY_CANCEL": '["publisher", "member"]'}
    with (
        servers.fault_server(files) as storage,
        cluster(tmp_path / "two", environment={**allowed(storage.url), **may}) as made,
    ):
        one, two = slow(made)
        for daemon in (one, two):
            daemon.configure(download_bytes_per_s="150000")  # it must not complete between the orders
        manifest = made.publish(model, "m", 1, "--chunk-size", "256KiB", "--source", f"{storage.url}/")
        made.drop(manifest, one)
        for first, second in (("pause", "cancel"), ("cancel", "resume"), ("resume", "pause"), ("cancel", "pause")):
            until("it goes on", lambda: {host["state"] for host in shown(two)["hosts"]} == {"downloading"})
            with ThreadPoolExecutor() as pool:
                list(pool.map(partial(ordered, "m@1"), ((first, one), (second, two))))

            def agree() -> bool:
                rows = [[told(host) for host in shown(daemon)["hosts"]] for daemon in (one, two)]
                return rows[0] == rows[1] and len(set(rows[0])) == 1

            until(f"one state after {first} and {second}", agree)
            gossipd("deploy", manifest, "--config", one.config)
        hurry(one, two)
        made.wait_complete("m", 1, at=two, hosts=2)
        assert same_tree(model, two.tree("m", 1))


def ordered(what: str, order: tuple[str, Daemon]) -> None:
    """Give an order at one host; it may be refused, as where the other came first."""
    word, daemon = order
    done = gossipd(word, what, "--config", daemon.config, check=False)
    assert done.returncode in (0, 1), done.stderr


def test_a_file_system_without_inodes_is_told_as_that_and_heals_by_itself(tmp_path: Path) -> None:
    model = make_model(tmp_path / "model", shards=1)
    small = tmp_path / "small"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m,nr_inodes=12,mode=0750", "tmpfs", small], check=True)
    try:
        with cluster(tmp_path / "two", environment=allowed(f"file://{tmp_path}")) as made:
            for name, more in (("node-1", {}), ("node-2", {"GOSSIPD_STORE__MODELS": str(small)})):
                made.add(name, "rack-1", GOSSIPD_STORE__RESERVE_BYTES="0", **more).start()
            made.wait_together()
            filled = fill_inodes(small)
            made.drop(made.publish(model, "m", 1), made[1])
            for daemon in (made[1], made[2]):
                until("why", lambda it=daemon: told(host_in(it, "node-2")) == ("init", "no_inodes"))  # type: ignore[misc]
            assert "no inode is left" in made[2].client.status()["store"]["detail"]
            assert "df -i" in wait_in_vain(made[1], "m@1")
            for path in filled:
                path.rmdir()
            subprocess.run(["mount", "-o", "remount,nr_inodes=200", small], check=True)
            made.wait_complete("m", 1, at=made[1], hosts=2)
    finally:
        subprocess.run(["umount", "-l", small], check=True)


def fill_inodes(directory: Path) -> list[Path]:
    """Directories that use up all that are left."""
    made: list[Path] = []
    with suppress(OSError):
        while True:
            path = directory / f"x{len(made)}"
            path.mkdir()
            made.append(path)
    return made


def least_chunks(daemon: Daemon) -> int:
    return min((host["chunks_verified"] for host in shown(daemon)["hosts"]), default=0)


def told(host: dict[str, Any]) -> tuple[str, str]:
    return host["state"], host["reason"]


def chunks_here(daemon: Daemon, state: str) -> int:
    """Of the one deployment: held, missing, or in_flight, asked of peers or storage and neither come nor failed."""
    [found] = re.findall(rf'(?m)^gossipd_chunks{{.*state="{state}".*}} (.+)$', daemon.client.metrics())
    return int(float(found))


def until_nothing_is_under_way(*daemons: Daemon) -> list[int]:
    """Chunks that each holds then. At two looks in a row: one that has come is counted as held a moment after it has
    left what is in flight."""
    for _ in range(2):
        until("nothing under way", lambda: not any(chunks_here(one, "in_flight") for one in daemons))
    return [chunks_here(one, "held") for one in daemons]


@pytest.mark.skipif(FAKETIME is None, reason="needs the Debian package faketime")
@pytest.mark.parametrize("off", ["-7200", "+7200"])
def test_a_host_with_a_wrong_clock_says_so_everywhere_and_goes_on_when_it_is_set(tmp_path: Path, off: str) -> None:
    model = make_model(tmp_path / "model", shards=1)
    offset = tmp_path / "offset"
    offset.write_text("+0")
    faked = {
        "LD_PRELOAD": str(FAKETIME), "FAKETIME_TIMESTAMP_FILE": str(offset), "FAKETIME_NO_CACHE": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1", "NO_FAKE_STAT": "1",
    }  # fmt: skip
    with cluster(tmp_path / "four", environment=allowed(f"file://{tmp_path}")) as made:
        for number in range(1, 5):
            made.add(f"node-{number}", f"rack-{number % 2}", **(faked if number == 4 else {})).start()
        made.wait_together()
        offset.write_text(off)
        made.drop(made.publish(model, "m", 1, "--expires", "1h"), made[1])
        for daemon in (made[1], made[4]):
            until("why", lambda it=daemon: told(host_in(it, "node-4")) == ("init", "clock_wrong"))  # type: ignore[misc]
        made.wait_complete("m", 1, at=made[4], hosts=3)
        [alarm] = until(
            "its alarm", lambda: [one for one in made[4].client.status()["alarms"] if one["code"] == "E_CLOCK"]
        )
        assert f"120 minutes {'ahead of' if off[0] == '+' else 'behind'}" in alarm["sentence"]
        for daemon in (made[1], made[4]):
            assert max(host["age_s"] for host in shown(daemon)["hosts"]) < 60.0, "ages are of one clock"
        offset.write_text("+0")
        made.wait_complete("m", 1, at=made[1], hosts=4)
        assert same_tree(model, made[4].tree("m", 1))
        until("the alarm ends", lambda: not (made[4].try_status() or {"alarms": [1]})["alarms"])


def test_equal_files_leave_storage_once_and_reach_each_host_once(tmp_path: Path) -> None:
    model = make_model(tmp_path / "model", shards=1)
    [shard] = model.glob("*.safetensors")
    (model / "linked.safetensors").hardlink_to(shard)
    (model / "copied.safetensors").write_bytes(shard.read_bytes())
    files = {str(path.relative_to(model)): path.read_bytes() for path in model.rglob("*") if path.is_file()}
    with servers.fault_server(files) as storage, cluster(tmp_path / "two", environment=allowed(storage.url)) as made:
        made.start(2, 1)
        made.drop(made.publish(model, "m", 1, "--chunk-size", "256KiB", "--source", f"{storage.url}/"), made[1])
        row = made.wait_complete("m", 1, at=made[1], hosts=2)
        once = row["bytes_total"] / 3
        assert row["source_bytes"] < 1.2 * once
        until("its last record", lambda: shown(made[1])["peer_bytes_same_rack"] > 0)
        assert shown(made[1])["peer_bytes_same_rack"] < 1.2 * once
        for number in (1, 2):
            assert same_tree(model, made[number].tree("m", 1))


def test_what_no_waiting_cures_is_told_by_every_host_and_wait_ends_early(tmp_path: Path) -> None:
    model = make_model(tmp_path / "model", shards=1)
    files = {str(path.relative_to(model)): path.read_bytes() for path in model.rglob("*") if path.is_file()}
    with servers.fault_server(files) as storage, cluster(tmp_path / "two", environment=allowed(storage.url)) as made:
        storage.always = servers.Fault(servers.Misbehaviour.GZIP)
        made.start(2, 1)
        made.drop(made.publish(model, "m", 1, "--source", f"{storage.url}/"), made[1])
        ended = gossipd("wait", "m@1", "--config", made[2].config, "--timeout", "170s", check=False)
        assert ended.returncode == 11
        assert "the server compresses what it sends" in ended.stderr
        for daemon in (made[1], made[2]):
            until(f"{daemon.name} says why", partial(is_all_for, "source_encoded", daemon))


def is_all_for(reason: str, daemon: Daemon) -> bool:
    return {host["reason"] for host in shown(daemon)["hosts"]} == {reason}


def current(daemon: Daemon, name: str) -> str:
    link = daemon.home / "models" / name / "current"
    return link.readlink().name if link.is_symlink() else ""


def test_one_word_rolls_back_and_removes_on_every_host_and_on_one_that_was_away(tmp_path: Path) -> None:
    model = make_model(tmp_path / "model", shards=1)
    with cluster(tmp_path / "three", environment=allowed(f"file://{tmp_path}")) as made:
        made.start(3, 2)
        one, three = made[1], made[3]
        for version in (1, 2):
            made.drop(made.publish(model, "m", version), one)
            made.wait_complete("m", version, at=one, hosts=3)
        refused = gossipd("rollback", "m", "--everywhere", "--config", made[2].config, check=False)
        assert (refused.returncode, "E_MAY_NOT_CANCEL" in refused.stderr) == (7, True), "it has deployed nothing"
        wrong = gossipd("rollback", "m@2", "--config", one.config, check=False)
        assert wrong.returncode == 2
        three.kill()
        answer = gossipd("rollback", "m", "--everywhere", "--json", "--config", one.config).stdout
        assert json.loads(answer)["changed"]
        until("two have", lambda: "current: 1 on 2" in gossipd("status", "m@2", "--config", one.config).stdout)
        assert "m@1 is current on 2 of 3 hosts; not on: node-3" in wait_in_vain(one, "m@1", "--current")
        three.start()
        gossipd("wait", "m@1", "--current", "--timeout", "170s", "--config", made[2].config)
        assert [current(made[number], "m") for number in (1, 2, 3)] == ["1", "1", "1"]
        shows = "rolled back everywhere  current: 1 on 3"
        until("the same shown there", lambda: shows in gossipd("status", "m@2", "--config", three.config).stdout)
        until(  # nobody is led to what was taken back
            "it is the latest", lambda: gossipd("latest", "m", "--config", made[2].config).stdout.strip() == "m@1"
        )
        gossipd("rm", "m@2", "--everywhere", "--config", one.config)
        gossipd("wait", "m@2", "--removed", "--timeout", "170s", "--config", three.config)
        until("it is deleted", lambda: not [number for number in (1, 2, 3) if made[number].tree("m", 2).exists()])
        three.kill()
        three.start()
        until("removed after a restart", lambda: not three.tree("m", 2).exists() and current(three, "m") == "1")
        made.drop(made.publish(model, "m", 3), one)
        made.wait_complete("m", 3, at=three, hosts=3)
        gossipd("wait", "m@3", "--current", "--timeout", "170s", "--config", one.config)
