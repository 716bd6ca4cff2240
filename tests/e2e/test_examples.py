"""Each example of ``config/examples`` is run against a real daemon, as far as one machine without internet can.

What is missing is said where it is replaced: vLLM by a script that prints its words, containers by their commands with
the paths of this test, a Kubernetes cluster by nothing.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

from gossipd.api.client import StatusClient
from tests.e2e.cluster import PATIENCE_S, Daemon, cluster, free_port_pair, set_up, until
from tests.e2e.toy import make_model
from tests.servers import free_port

EXAMPLES = Path(__file__).resolve().parents[2] / "config" / "examples"
ANY_FILE_SYSTEM = {"GOSSIPD_STORE__ANY_FILE_SYSTEM": "true"}


@contextmanager
def one_host(base: Path, name: str, version: int) -> Iterator[Daemon]:
    """A daemon that has a toy model."""
    source = make_model(base / "source", shards=2, shard_bytes=800_000)
    with cluster(base, environment={"GOSSIPD_SOURCES__ALLOW": f'["file://{source}"]'}) as made:
        made.start(1, 1)
        made.drop(made.publish(source, name, version), made[1])
        made.wait_complete(name, version, at=made[1], hosts=1)
        yield made[1]


def environment(bin_directory: Path, **more: str) -> dict[str, str]:
    """With ``gossipd`` and whatever a test puts there on the path."""
    bin_directory.mkdir(exist_ok=True)
    program = bin_directory / "gossipd"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m gossipd "$@"\n')
    program.chmod(0o755)
    return {**os.environ, **ANY_FILE_SYSTEM, "PATH": f"{bin_directory}:{os.environ['PATH']}", **more}


def run(*words: str | Path, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(list(map(str, words)), capture_output=True, text=True, timeout=PATIENCE_S, env=env)


def test_the_scripts_hand_vllm_and_a_loader_the_model(tmp_path: Path) -> None:
    with one_host(tmp_path / "a", "qwen", 3) as daemon:
        env = environment(tmp_path / "bin", GOSSIPD_SOCKET=str(daemon.home / "gossipd.sock"))
        vllm = tmp_path / "bin" / "vllm"  # in the place of vLLM
        vllm.write_text('#!/bin/sh\necho "$@"\n')
        vllm.chmod(0o755)
        served = run(EXAMPLES / "vllm_serve.sh", "qwen@3", "--port", "8000", env=env)
        assert served.stdout == f"serve {daemon.home}/models/qwen/3 --served-model-name qwen --port 8000\n"
        missing = run(EXAMPLES / "vllm_serve.sh", "qwen@4", env=env | {"WAIT_S": "0"})
        assert (missing.returncode, missing.stdout) == (3, "")
        assert "qwen@4 is not on this host" in missing.stderr
        loaded = run(sys.executable, EXAMPLES / "load_model.py", "qwen", env=env)
        assert loaded.returncode == 0, loaded.stderr
        assert loaded.stdout.startswith("2 tensors with ")
        assert f"from {daemon.home}/models/qwen/3" in loaded.stdout


@pytest.fixture
def documents() -> dict[str, dict[str, Any]]:
    return {one["kind"]: one for one in yaml.safe_load_all((EXAMPLES / "kubernetes.yaml").read_text())}


def test_every_volume_and_service_that_kubernetes_mounts_is_there(documents: dict[str, dict[str, Any]]) -> None:
    assert set(documents) == {"Service", "DaemonSet", "Pod"}
    template = documents["DaemonSet"]["spec"]["template"]
    assert template["metadata"]["labels"] == documents["Service"]["spec"]["selector"]
    for pod in (template["spec"], documents["Pod"]["spec"]):
        volumes = {volume["name"] for volume in pod["volumes"]}
        for container in (*pod["initContainers"], *pod["containers"]):
            assert {mount["name"] for mount in container["volumeMounts"]} <= volumes


def test_the_containers_commands_make_a_daemon_that_serves(
    tmp_path: Path, documents: dict[str, dict[str, Any]]
) -> None:
    pod = documents["DaemonSet"]["spec"]["template"]["spec"]
    control, metrics = free_port_pair(), free_port()
    etc = tmp_path / "etc"
    for name in ("cluster-key", "trust", "racks"):
        (etc / name).mkdir(parents=True)
    set_up("keygen", etc / "trust" / "publisher.key")
    set_up("init", tmp_path / "x", "--name", "x", "--rack", "r", "--bind", "127.0.0.1", "--port", "7946")
    (tmp_path / "x" / "cluster.key").rename(etc / "cluster-key" / "cluster.key")
    (etc / "racks" / "racks").write_text("node-0 r0\nnode-1 r1\n")
    changed = {
        "/tmp/": f"{tmp_path}/", "/var/lib/gossipd": str(tmp_path / "var"), "/etc/gossipd": str(etc),
        "7946 \\": f"{control} \\", "10001:10001": f"{os.getuid()}:{os.getgid()}",
        "gossipd.gossipd.svc.cluster.local:7946": f"127.0.0.1:{control}",
    }  # fmt: skip

    def command(container: dict[str, Any]) -> list[str]:
        return [_replaced(word, changed) for word in container["command"]]

    env = environment(tmp_path / "bin", NODE_NAME="node-1", NODE_IP="127.0.0.1")
    (init,), (daemon,) = pod["initContainers"], pod["containers"]
    for _ in range(2):  # a pod that restarts finds its node set up
        done = run(*command(init), env=env)
        assert done.returncode == 0, done.stderr
    given = {one["name"]: _replaced(one["value"], changed) for one in daemon["env"]}
    given["GOSSIPD_STATUS__METRICS_PORT"] = str(metrics)
    process = subprocess.Popen(command(daemon), env=env | given, stderr=subprocess.PIPE)
    try:
        client = StatusClient(tmp_path / "var" / "home" / "gossipd.sock")
        probe = f"http://127.0.0.1:{metrics}{daemon['livenessProbe']['httpGet']['path']}"
        until("the daemon is live", lambda: _answers(probe))
        assert client.status()["node"]["rack"] == "r1"
        assert not _answers(probe.replace("livez", "readyz"))  # alone, though it was told of others
        (waiting,) = documents["Pod"]["spec"]["initContainers"]
        asked = run(*("1s" if word == "24h" else word for word in command(waiting)), env=env)
        assert (asked.returncode, "no deployment" in asked.stderr) == (5, True), asked.stderr
    finally:
        process.terminate()
        process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0


def _replaced(text: str, changed: dict[str, str]) -> str:
    for old, new in changed.items():
        text = text.replace(old, new)
    return text


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=30) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def test_the_webhook_posts_its_event_and_fails_where_the_other_end_does() -> None:
    got: list[tuple[str, str, bytes]] = []

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            got.append((self.path, self.headers["Content-Type"], body))
            self.send_response(204 if self.path == "/well" else 500)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    event = b'{"event": "alarm", "code": "E_CLOCK", "sentence": "@a\\nb"}'
    with HTTPServer(("127.0.0.1", 0), Receiver) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        words = [
            [str(EXAMPLES / "webhook.sh"), f"http://127.0.0.1:{server.server_port}/{path}"] for path in ("well", "ill")
        ]
        done = [subprocess.run(one, input=event, capture_output=True, timeout=PATIENCE_S) for one in words]
        server.shutdown()
    assert got == [("/well", "application/json", event), ("/ill", "application/json", event)]
    assert [(one.returncode == 0, one.stdout) for one in done] == [(True, b""), (False, b"")]
    assert b"500" in done[1].stderr, "what the journal has of it"
