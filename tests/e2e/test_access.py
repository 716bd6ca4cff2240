"""Who may run the daemon and who may read from it: a random user, a pod's secret, and the user of the job."""

from __future__ import annotations

import os
import shutil
import stat
from pathlib import Path

import pytest

from tests.e2e.cluster import free_port_pair, set_up, until
from tests.e2e.other_user import Mounts, Words, inside, run_as, start_as
from tests.e2e.toy import make_model

DAEMON, JOB = 54_321, 54_322


def _secret(tmp_path: Path) -> Path:
    """A cluster key as Kubernetes mounts one: behind links, root's, readable by the pod's group."""
    set_up("init", tmp_path / "x", "--name", "x", "--rack", "r", "--bind", "127.0.0.1", "--port", "7946")
    hidden = tmp_path / "secret" / "..2026_11_25"
    hidden.mkdir(parents=True)
    shutil.move(tmp_path / "x" / "cluster.key", hidden / "cluster.key")
    os.chown(hidden / "cluster.key", 0, DAEMON)
    (hidden / "cluster.key").chmod(0o440)
    (tmp_path / "secret" / "..data").symlink_to(hidden.name)
    (tmp_path / "secret" / "cluster.key").symlink_to("..data/cluster.key")
    return tmp_path / "secret"


def test_a_random_user_delivers_and_the_jobs_user_reads_it(tmp_path: Path) -> None:
    secret, port = _secret(tmp_path), free_port_pair()
    model = make_model(tmp_path / "model", shards=1, shard_bytes=1_000_000)
    for path in model.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)  # safetensors keeps its files private
    set_up("keygen", tmp_path / "p.key")
    manifest = tmp_path / "m.gmf"
    set_up("publish", model, "--name", "toy", "--version", "1", "--key", tmp_path / "p.key", "--out", manifest,
           "--source", f"file://{inside('model')}")  # fmt: skip
    (tmp_path / "given").mkdir()
    shutil.copy(tmp_path / "p.key.pub", tmp_path / "given" / "p.key.pub")
    data = tmp_path / "data"
    data.mkdir()
    os.chown(data, DAEMON, DAEMON)
    mounts: Mounts = {
        "data": (data, "rw"),
        "secret": (secret, "ro"),
        "model": (model, "ro"),
        "given": (tmp_path / "given", "ro"),
    }
    home = inside("data") / "node"
    words: Words = ["init", home, "--name", "n", "--rack", "r", "--bind", "127.0.0.1", "--port", str(port)]
    given: Words = ["--cluster-key", inside("secret") / "cluster.key", "--trust", inside("given") / "p.key.pub"]
    made = run_as(DAEMON, [*words, *given], mounts=mounts)
    assert made.returncode == 0, made.stderr
    env = {
        "GOSSIPD_SECURITY__CLUSTER_KEY": str(inside("secret") / "cluster.key"),
        "GOSSIPD_SOURCES__ALLOW": f'["file://{inside("model")}"]',
        "GOSSIPD_STORE__ANY_FILE_SYSTEM": "true",
    }
    daemon = start_as(DAEMON, ["run", "--config", home / "gossipd.toml"], mounts=mounts, env=env)
    try:
        until(
            "the daemon is ready", lambda: (data / "node" / "gossipd-read.sock").exists() or daemon.poll() is not None
        )
        assert daemon.poll() is None, daemon.communicate()
        shutil.copy(manifest, data / "node" / "inbox" / "m.gmf")
        os.chown(data / "node" / "inbox" / "m.gmf", DAEMON, DAEMON)
        at: Words = ["--config", home / "gossipd.toml"]
        job: Mounts = {"data": (data, "ro")}
        waited = run_as(JOB, ["wait", "toy@1", "--timeout", "170s", *at], mounts=job)
        assert waited.returncode == 0, waited.stderr
        told = run_as(JOB, ["path", "toy", *at], mounts=job)
        assert told.stdout.strip() == str(home / "models" / "toy" / "1"), told.stderr
        refused = run_as(JOB, ["rm", "toy@1", *at], mounts=job)
        assert refused.returncode == 4
        assert "takes no commands" in refused.stderr
        tree = [found for found in (data / "node" / "models" / "toy").rglob("*") if not found.is_symlink()]
        assert [found for found in tree if not _is_for_all(found)] == []
    finally:
        daemon.terminate()
        daemon.communicate(timeout=180)
    assert daemon.returncode == 0


def _is_for_all(path: Path) -> bool:
    mode = stat.S_IMODE(path.stat().st_mode)
    return mode & 0o005 == (0o005 if path.is_dir() else mode & 0o001 | 0o004)


@pytest.mark.parametrize(("user", "mode", "is_read"), [
    (DAEMON, 0o440, True), (DAEMON, 0o640, True), (DAEMON, 0o444, False), (DAEMON, 0o460, False), (0, 0o440, False),
])  # fmt: skip
def test_a_group_reads_a_secret_only_of_root_and_not_as_root(
    tmp_path: Path, user: int, mode: int, is_read: bool
) -> None:
    secret = _secret(tmp_path)
    (secret / "..data" / "cluster.key").chmod(mode)
    data = tmp_path / "data"
    data.mkdir()
    os.chown(data, user, user)
    words: Words = ["init", inside("data") / "n", "--name", "n", "--rack", "r", "--bind", "127.0.0.1", "--port", "7946"]
    mounts: Mounts = {"data": (data, "rw"), "secret": (secret, "ro")}
    done = run_as(user, [*words, "--cluster-key", inside("secret") / "cluster.key"], mounts=mounts)
    assert (done.returncode == 0) is is_read, done.stderr
