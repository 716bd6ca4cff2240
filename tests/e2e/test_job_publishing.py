"""Publishing through a daemon, on real ones: who may, what is refused, and that other hosts get it from this one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from random import Random

import pytest

from gossipd.api.client import RefusedByDaemonError
from gossipd.client import Client, NotTrustedError, OutOfSpaceError, Publication
from tests.e2e.cluster import PATIENCE_S, Cluster, Daemon, gossipd, publishing_cluster, same_tree, until, wait_in_vain


def step_directory(path: Path, seed: int, *, bytes_each: int = 700_000) -> Path:
    """What a trainer saves: two shards, and small files."""
    path.mkdir(parents=True)
    random = Random(seed)
    for rank in range(2):
        (path / f"__{rank}_0.distcp").write_bytes(random.randbytes(bytes_each))
    (path / ".metadata").write_bytes(random.randbytes(5000))
    return path


_AS_USER = """
import os, sys
from gossipd.api.client import RefusedByDaemonError
from gossipd.client import Client
import http.client, gossipd.api.unix_connection, urllib.parse  # this user may not read where they are
socket, saved, name, user = sys.argv[1:]
os.setgid(int(user)); os.setuid(int(user))
try:
    print(Client(socket).publish(saved, name=name).version)
except RefusedByDaemonError as error:
    print(error.code, error)
"""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with publishing_cluster(tmp_path) as cluster:
        yield cluster


def test_a_job_publishes_without_a_key_and_every_host_gets_it(cluster: Cluster, tmp_path: Path) -> None:
    cluster.start(hosts=2, racks=1)
    first, second = cluster.daemons.values()
    saved = step_directory(tmp_path / "step-100", 1)
    (saved / "rng").mkdir()
    (saved / "rng" / "0.pt").write_bytes(b"for this host alone")
    job, other = Client(first.home / "gossipd.sock"), Client(second.home / "gossipd.sock")
    made = job.publish(saved, name="run-7", step=100, exclude="rng/")
    assert (made.name, made.version, made.file_count) == ("run-7", 100, 3)
    assert job.path("run-7") == first.tree("run-7", 100)
    kept = step_directory(tmp_path / "kept", 1)
    (saved / "__0_0.distcp").write_bytes(b"the trainer writes over it")
    assert other.wait("run-7", 100, timeout=PATIENCE_S).id == made.id
    assert same_tree(other.path("run-7"), kept)
    for client in (job, other):  # each says so when it has heard the other host, which may take a moment
        client.wait("run-7", 100, hosts="100%", timeout=PATIENCE_S)
    assert job.latest("run-7") == other.latest("run-7")
    row = first.deployment("run-7", 100)
    assert row is not None
    assert row["source_bytes"] == 0


def test_two_hosts_that_publish_one_version_at_once_are_told_of_it(cluster: Cluster, tmp_path: Path) -> None:
    cluster.start(hosts=2, racks=1)
    directories = [step_directory(tmp_path / f"saved-{seed}", seed) for seed in (1, 2)]
    jobs = [Client(daemon.home / "gossipd.sock") for daemon in cluster.daemons.values()]

    def published(name: str, number: int) -> str:
        try:
            return jobs[number].publish(directories[number], name=name, step=3).name
        except RefusedByDaemonError as error:
            return error.code

    with ThreadPoolExecutor(6) as pool:
        told = [[pool.submit(published, f"run-{run}", number) for number in (0, 1)] for run in range(3)]
        for run, pair in enumerate(told):
            if {future.result(PATIENCE_S) for future in pair} & {"E_EQUIVOCATION", "E_EXISTS"}:
                continue
            # Both were done before they heard of each other, as on a busy machine.
            words = [refusal(job, f"run-{run}") for job in jobs]
            assert "E_EQUIVOCATION" in words, words
            assert all(words), words


def refusal(job: Client, name: str) -> str:
    """The code with which its wait for all hosts is refused; empty where it is not, as by a host that has not heard of
    the others within its first seconds."""
    try:
        job.wait(name, 3, hosts="100%", timeout=PATIENCE_S)
    except RefusedByDaemonError as error:
        return error.code
    return ""


def test_a_job_whose_version_others_refuse_is_told_by_its_next_wait(cluster: Cluster, tmp_path: Path) -> None:
    first, second, third = (cluster.add(f"node-{number}", "rack-1") for number in (1, 2, 3))
    made = {}
    for alone, seed in ((first, 1), (second, 2)):
        alone.start()
        alone.wait_ready()
        saved = step_directory(tmp_path / f"saved-{seed}", seed)
        made[alone.name] = Client(alone.home / "gossipd.sock").publish(saved, name="run", step=3).id
        alone.stop()
    for daemon in (first, second, third):
        daemon.start()
    for daemon in (first, second):
        job = Client(daemon.home / "gossipd.sock")

        until("the other record has come, too", lambda: refusal(job, "run") == "E_EQUIVOCATION")  # noqa: B023
        assert job.wait("run", 3).id == made[daemon.name], "what lies here is what was published here"
        with pytest.raises(NotTrustedError, match="run@3 has two contents"):
            job.latest("run", where="anywhere")


def test_one_file_is_a_version_with_that_file_in_it(cluster: Cluster, tmp_path: Path) -> None:
    cluster.start(hosts=1, racks=1)
    [daemon] = cluster.daemons.values()
    job, words = Client(daemon.home / "gossipd.sock"), Random(1).randbytes(300_000)
    (tmp_path / "saved" / "beside").mkdir(parents=True)
    file = tmp_path / "saved" / "tiny.gguf"
    file.write_bytes(words)
    made = job.publish(file, name="tiny", how="move")
    assert (made.file_count, made.bytes_total) == (1, len(words))
    assert [path.name for path in job.path("tiny", made.version).iterdir()] == [file.name]
    assert (job.path("tiny", made.version) / file.name).read_bytes() == words
    assert [path.name for path in (tmp_path / "saved").iterdir()] == ["beside"], "what is beside it is not the job's"


def test_a_moved_directory_is_gone_when_this_host_holds_it_and_others_get_it(cluster: Cluster, tmp_path: Path) -> None:
    cluster.start(hosts=2, racks=1)
    first, second = cluster.daemons.values()
    saved, kept = step_directory(tmp_path / "step-1", 1), step_directory(tmp_path / "kept", 1)
    Client(first.home / "gossipd.sock").publish(saved, name="run-7", step=1, how="move")
    assert not saved.exists()
    assert same_tree(first.tree("run-7", 1), kept)
    other = Client(second.home / "gossipd.sock")
    other.wait("run-7", 1, timeout=PATIENCE_S)
    assert same_tree(other.path("run-7"), kept)


def test_a_resumed_run_goes_on_with_its_next_attempt(cluster: Cluster, tmp_path: Path) -> None:
    cluster.start(hosts=1, racks=1)
    job = Client(cluster.daemons["node-1"].home / "gossipd.sock")
    versions = [
        job.publish(step_directory(tmp_path / str(number), number, bytes_each=70_000), name="run", step=step).version
        for number, step in enumerate((100, 200, 300, 200))
    ]
    assert versions == [100, 200, 300, (1 << 32) + 200]
    assert job.latest("run").version == (1 << 32) + 200
    status = cluster.daemons["node-1"].client.status()
    assert not status["alarms"]


def test_old_steps_go_where_a_newer_one_is_and_a_newcomer_hears_of_live_ones_only(
    cluster: Cluster, tmp_path: Path
) -> None:
    cluster.start(hosts=2, racks=1)
    first, second = cluster.daemons.values()
    job, other = Client(first.home / "gossipd.sock"), Client(second.home / "gossipd.sock")

    def on(node: Daemon) -> list[int]:
        return sorted(int(name) for name in os.listdir(node.home / "models" / "run") if name.isdigit())

    def save(step: int) -> None:
        directory = step_directory(tmp_path / str(step), step, bytes_each=70_000)
        job.publish(directory, name="run", step=step, keep_last=2, keep_every=300)
        job.wait("run", step, hosts="100%", timeout=PATIENCE_S)

    for step in (100, 200):
        save(step)
    with other.hold("run", 100) as held:
        for step in (300, 400, 500, 600):
            save(step)
        until("only live steps are on the first host", lambda: on(first) == [300, 500, 600])
        until("the held one, too, is on the other", lambda: on(second) == [100, 300, 500, 600])
        assert (held / ".metadata").exists()
    third = cluster.add("node-3", "rack-1")
    third.start()
    third.wait_ready()
    newcomer = Client(third.home / "gossipd.sock")
    newcomer.wait("run", 600, timeout=PATIENCE_S)
    known = [row["version"] for row in third.client.status("run")["deployments"]]
    assert set(known) <= {300, 500, 600}
    assert first.client.status()["alarms"] == []


@pytest.mark.needs("root", "mount")
def test_a_disk_for_one_version_says_so_and_goes_on_with_room(cluster: Cluster, tmp_path: Path) -> None:
    large = cluster.add("node-1", "rack-1")
    small = cluster.add("node-2", "rack-1", GOSSIPD_STORE__RESERVE_BYTES="1MB")
    models = small.home / "models"
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=20m,mode=755", "none", models], check=True)
    try:
        for daemon in (large, small):
            daemon.start()
        cluster.wait_together()
        job, other = Client(large.home / "gossipd.sock"), Client(small.home / "gossipd.sock")
        for step in (1, 2):
            saved = step_directory(tmp_path / f"s{step}", step, bytes_each=6_500_000)
            job.publish(saved, name="run", step=step, keep_last=1)
            if step == 1:
                other.wait("run", 1, timeout=PATIENCE_S)
        until("it says why", lambda: "no_space" in wait_in_vain(small, "run@2", "--hosts", "here"))
        assert (other.latest("run", where="here").version, other.latest("run", where="anywhere").version) == (1, 2)
        with pytest.raises(OutOfSpaceError, match="needs 13005000 bytes"):
            other.publish(saved, name="run", step=3)
        small.client.order("rm", name="run", version=1)
        assert same_tree(saved, small.tree("run", other.wait("run", 2, timeout=PATIENCE_S).version))
    finally:
        small.stop()
        subprocess.run(["umount", models], check=True)


def test_a_publisher_on_its_own_key_hands_its_directory_over(cluster: Cluster, tmp_path: Path) -> None:
    cluster.start(hosts=1, racks=1)
    node = cluster.daemons["node-1"]
    saved = step_directory(tmp_path / "step-1", 1)
    done = gossipd(
        "publish", saved, "--name", "mine", "--version", "1", "--key", cluster.key, "--out", tmp_path / "m",
        "--adopt", "--socket", node.home / "gossipd.sock",
    )  # fmt: skip
    assert "the other hosts fetch it from here" in done.stdout
    assert same_tree(node.tree("mine", 1), saved)
    (saved / ".metadata").write_bytes(bytes(5000))
    done = gossipd(
        "publish", step_directory(tmp_path / "step-2", 2), "--name", "mine", "--version", "2", "--key", cluster.key,
        "--out", tmp_path / "m2",
    )  # fmt: skip
    with pytest.raises(Exception, match=r"__0_0.distcp is not what the manifest says"):
        list(node.client.adopt(directory=str(saved), manifest=str(tmp_path / "m2")))
    assert node.deployment("mine", 2) is None
    until("nothing is left of it", lambda: os.listdir(node.home / "models" / ".incoming") == [])


def test_what_cannot_be_published_is_refused_with_the_reason(cluster: Cluster, tmp_path: Path) -> None:
    cluster.start(hosts=1, racks=1)
    node = cluster.daemons["node-1"]
    job = Client(node.home / "gossipd.sock")
    saved = step_directory(tmp_path / "step-1", 1)
    job.publish(saved, name="run", version=5)
    with pytest.raises(Exception, match="run@5 is known here") as caught:
        job.publish(saved, name="run", version=5)
    assert caught.value.code == "E_EXISTS"  # type: ignore[attr-defined]
    with pytest.raises(Exception, match="No such file"):
        job.publish(tmp_path / "none", name="run")
    try:  # on XFS and Btrfs it is done
        job.publish(saved, name="shared", how="reflink")
    except RefusedByDaemonError as error:
        assert error.code == "E_NO_REFLINK"
    with pytest.raises(Exception, match="hard links would change"):
        job.publish(saved, name="run", how="hardlink")
    assert job.publish(saved, name="run").version == 6


def test_a_host_that_wants_a_part_publishes_nothing_of_that_name(cluster: Cluster, tmp_path: Path) -> None:
    cluster.start(hosts=1, racks=1)
    job = Client(cluster.daemons["node-1"].home / "gossipd.sock")
    saved = step_directory(tmp_path / "step-1", 1)
    job.want("run", "files:config.json")
    with pytest.raises(RefusedByDaemonError, match="the rest would be on no host: gossipd want run all") as caught:
        job.publish(saved, name="run", step=1)
    assert caught.value.code == "E_ADOPT"
    job.publish(saved, name="other", step=1)
    job.want("run", "all")
    assert job.publish(saved, name="run", step=1).version == 1
    assert same_tree(job.path("run", 1), saved)


def test_publications_in_a_hurry_keep_the_newest(cluster: Cluster, tmp_path: Path) -> None:
    cluster.start(hosts=1, racks=1)
    job = Client(cluster.daemons["node-1"].home / "gossipd.sock")
    futures: list[Future[Publication]] = [
        job.publish_async(step_directory(tmp_path / f"s{step}", step), name="run", step=step) for step in range(1, 9)
    ]
    assert futures[-1].result(PATIENCE_S).version == 8
    done = [future for future in futures if not future.cancelled()]
    assert [future.result().version for future in done] == sorted(future.result().version for future in done)
    assert all(future.done() for future in futures)


def test_a_user_publishes_only_names_and_files_of_its_own(public_path: Path) -> None:
    with publishing_cluster(public_path) as cluster:
        node = cluster.add("node-1", "rack-1", GOSSIPD_PUBLISH__USERS='{"54322" = ["train/*"]}')
        node.start()
        node.wait_ready()
        saved = step_directory(public_path / "step-1", 1)
        for path in (saved, *saved.iterdir()):
            os.chown(path, 54_322, 54_322)

        def attempt(user: int, name: str) -> str:
            """What the publishing of ``saved`` ends with."""
            words = (str(node.home / "gossipd.sock"), str(saved), name, str(user))
            done = subprocess.run([sys.executable, "-c", _AS_USER, *words], capture_output=True, text=True)
            assert done.returncode == 0, done.stderr
            return done.stdout

        assert attempt(54_322, "prod/llama").startswith("E_MAY_NOT_PUBLISH user 54322 may not publish prod/llama")
        assert attempt(54_323, "train/a").startswith("E_MAY_NOT_PUBLISH user 54323")
        assert attempt(54_322, "train/a") == "1\n"
        (saved / "link.bin").hardlink_to(node.home / "node.key")
        assert attempt(54_322, "train/a").startswith("E_NOT_OWNER 'link.bin' belongs to another user")
        until("its version stays", lambda: node.tree("train/a", 1).is_dir())


def test_finished_steps_become_versions_by_themselves_and_unfinished_ones_never(
    cluster: Cluster, tmp_path: Path
) -> None:
    cluster.start(hosts=1, racks=1)
    node, run = cluster.daemons["node-1"], tmp_path / "run"
    run.mkdir()
    command = [sys.executable, "-m", "gossipd", "watch", str(run), "--name", "run", "--config", str(node.config)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as watcher:
        assert watcher.stdout is not None
        try:
            cut = step_directory(run / "step-5", 5, bytes_each=70_000)
            (cut / ".metadata").rename(cut / ".metadata.tmp")  # its writer was killed before the rename
            for step in (10, 20, 30):
                step_directory(run / f"step-{step}", step, bytes_each=70_000)
                line = watcher.stdout.readline().split()
                assert line[:2] == [f"run@{step}", f"step-{step}"]
                assert same_tree(run / f"step-{step}", node.tree("run", step))
            again = run / "step-20"  # resumed from step 10, it writes over step 20
            for name in ("__0_0.distcp", "__1_0.distcp", ".metadata"):
                (again / name).write_bytes(Random(99).randbytes(70_000))
            assert watcher.stdout.readline().split()[0] == "run@20.1"
            assert same_tree(again, node.tree("run", (1 << 32) + 20))
        finally:
            watcher.kill()
    assert Client(config=node.config).latest("run").version == (1 << 32) + 20
    done = gossipd("watch", run, "--name", "run", "--once", "--config", node.config)
    assert done.stdout == ""  # step 30 of the first attempt is older than the last version
    for file in (run / "step-10").iterdir():
        os.utime(file, (time.time() + 900, time.time() + 900))  # saved before the clock was set back
    done = gossipd("watch", run, "--name", "run", "--once", "--config", node.config)
    assert done.stdout == ""
    (step_directory(run / "step-40", 40, bytes_each=70_000) / "a.lock").touch()
    done = gossipd("watch", run, "--name", "run", "--once", "--exclude", "*.lock", "--config", node.config)
    assert done.stdout.split()[0] == "run@40.1"
    assert not (node.tree("run", (1 << 32) + 40) / "a.lock").exists()


def test_the_daemon_watches_directories_that_its_configuration_names(cluster: Cluster, tmp_path: Path) -> None:
    run = tmp_path / "run"
    node = cluster.add("node-1", "rack-1")
    table = f'\n[[publish.watch]]\ndirectory = "{run}"\nname = "run"\nkeep_last = 2\nexclude = ["*.pt"]\n'
    before = node.config.read_text()
    node.config.write_text(before + table)
    node.start()
    node.wait_ready()
    job = Client(config=node.config)
    for step in (10, 20, 30):
        step_directory(run / f"step-{step}", step, bytes_each=70_000)
        job.wait("run", step, timeout=PATIENCE_S)
        assert same_tree(run / f"step-{step}", node.tree("run", step))
    until("only two are kept", lambda: not node.tree("run", 10).exists())
    node.config.write_text(before)
    assert "publish.watch" in gossipd("reload", "--config", node.config).stdout
    step_directory(run / "step-40", 40, bytes_each=70_000)
    node.config.write_text(before + table.replace("keep_last = 2", "keep_last = 0"))
    gossipd("reload", "--config", node.config)
    job.wait("run", 40, timeout=PATIENCE_S)
    wrong = {"GOSSIPD_PUBLISH__WATCH": f'[{{directory = "{run}", name = "m", keep_every = 3}}]'}
    assert "table 1: keep_every" in gossipd("config", "check", node.config, env=wrong, check=False).stderr
    assert not node.client.status()["alarms"]


def test_a_watched_directory_that_is_replaced_or_no_directory_is_watched_on(cluster: Cluster, tmp_path: Path) -> None:
    saved = tmp_path / "run"
    step_directory(saved / "step-1", 1, bytes_each=1000)
    cluster.start(hosts=1, racks=1)
    [daemon] = cluster.daemons.values()
    with daemon.config.open("a") as file:
        file.write(f'\n[[publish.watch]]\ndirectory = "{saved}"\nname = "run-7"\n')
    gossipd("reload", "--config", daemon.config)
    client = Client(daemon.home / "gossipd.sock")
    client.wait("run-7", 1, timeout=PATIENCE_S)
    saved.rename(tmp_path / "aside")
    saved.write_text("no directory")
    until("the alarm", lambda: "E_STEPS" in [one["code"] for one in (daemon.try_status() or {"alarms": []})["alarms"]])
    saved.unlink()
    step_directory(saved / "step-2", 2, bytes_each=1000)
    client.wait("run-7", 2, timeout=PATIENCE_S)
    until("no alarm", lambda: not (daemon.try_status() or {"alarms": [1]})["alarms"])


def test_a_version_loads_by_its_repositorys_name_offline(cluster: Cluster, tmp_path: Path) -> None:
    from huggingface_hub import snapshot_download

    cache = tmp_path / "hub"
    settings = {"GOSSIPD_HF__CACHES": f'["{cache}"]', "GOSSIPD_HF__NAMES": '{"tiny" = ["acme/tiny-1b"]}'}
    node = cluster.add("node-1", "rack-1", **settings)
    node.start()
    node.wait_ready()
    job = Client(node.home / "gossipd.sock")
    for version in (1, 2, 3):
        made = job.publish(step_directory(tmp_path / f"s{version}", version), name="tiny")
        link = cache / "models--acme--tiny-1b" / "snapshots" / made.id[:40]
        until("the link is there", link.is_symlink)
    until("the evicted version's link is gone", lambda: len(os.listdir(link.parent)) == 2)
    ref = link.parent.parent / "refs" / "main"
    until("the ref has moved", lambda: ref.exists() and ref.read_text() == link.name)
    found = snapshot_download("acme/tiny-1b", cache_dir=cache, local_files_only=True)
    assert same_tree(tmp_path / "s3", Path(found))
    for version in (2, 3):
        node.client.order("rm", name="tiny", version=version)
    until("the entry is gone", lambda: os.listdir(cache) == [])


def test_hooks_run_after_current_has_moved_and_failures_are_told(cluster: Cluster, tmp_path: Path) -> None:
    seen, kubectl = tmp_path / "seen", tmp_path / "kubectl"
    kubectl.write_text(f'#!/bin/sh\necho "$@" $(readlink {tmp_path}/node-1/models/org/m/current) >> {seen}\n')
    kubectl.chmod(0o755)
    script = Path(__file__).parents[2] / "config" / "examples" / "label_node.py"
    hook = f'["{sys.executable}", "{script}"]'
    named = 'on = "complete", names = ["{}/*"], command = ["/bin/cp", "/dev/stdin", "{}"]'
    tables = ", ".join(f"{{{named.format(name, tmp_path / name)}}}" for name in ("org", "other"))
    node = cluster.add(
        "node-1", "rack-1", GOSSIPD_HOOKS__COMPLETE=hook, GOSSIPD_HOOKS__NAMED=f"[{tables}]", KUBECTL=str(kubectl)
    )
    node.start()
    node.wait_ready()
    job = Client(node.home / "gossipd.sock")
    for version in (1, 2):
        job.publish(step_directory(tmp_path / f"s{version}", version), name="org/m", version=version)
        line = f"label node node-1 gossipd/org.m={version} --overwrite {version}"
        until("the hook has run", lambda: seen.exists() and line in seen.read_text().splitlines())  # noqa: B023
    until("status has counted it", lambda: node.client.status()["hooks"]["done"] == 4)
    assert json.loads((tmp_path / "org").read_text())["version"] == 2
    assert not (tmp_path / "other").exists()  # its names are others
    kubectl.write_text("#!/bin/sh\nexit 3\n")
    job.publish(step_directory(tmp_path / "s3", 3), name="org/m", version=3)
    until("it is given up", lambda: node.client.status()["hooks"]["failed"] == 1)
    assert node.client.status()["hooks"]["last_failure"].endswith("ended with 3")
