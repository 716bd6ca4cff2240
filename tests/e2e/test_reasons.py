"""The cause reaches the person: three real daemons, and what each says of the one that cannot go on."""

from __future__ import annotations

import json
import os
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from tests import servers
from tests.e2e.cluster import Cluster, Daemon, cluster, gossipd, same_tree, set_up, until, wait_in_vain
from tests.e2e.toy import make_model
from tests.gossipd.sources.certificates import issue
from tests.rangeless_server import rangeless_server

Served: TypeAlias = Callable[[Path, Path], AbstractContextManager[str]]
SHARD = "model-00001-of-00001.safetensors"
MOVED = servers.Fault(servers.Misbehaviour.STATUS, 302, headers={"Location": "http://127.0.0.1:1/elsewhere"})


def said_of(name: str, daemon: Daemon) -> tuple[str, str, str]:
    """State, reason and subject of one host, as ``daemon`` shows it."""
    row: dict[str, Any] = daemon.deployment("m", 1) or {"hosts": []}
    found = [(host["state"], host["reason"], host["subject"]) for host in row["hosts"] if host["name"] == name]
    return found[0] if found else ("", "", "")


def standing(daemon: Daemon) -> tuple[object, object, object]:
    """What ``daemon`` shows of a deployment that does not move."""
    row: dict[str, Any] = daemon.deployment("m", 1) or {}
    return row.get("stall"), row.get("eta_s"), row.get("rate_in_bytes_per_s")


def trust_prints(daemon: Daemon) -> list[str]:
    """The prints of trusted keys that ``daemon`` knows of members whose free space it knows, too, by their names."""
    members = (daemon.try_status() or {"members": []})["members"]
    told = [one for one in members if one.get("prints") and one["free_bytes"] is not None]
    return [one["prints"]["trust"] for one in sorted(told, key=lambda one: str(one["name"]))]


def agree(prints: list[str]) -> list[bool]:
    """Of each print whether it is that of the first."""
    return [one == prints[0] for one in prints]


def reload(daemon: Daemon) -> None:
    assert daemon.process is not None
    daemon.process.send_signal(signal.SIGHUP)


def three(made: Cluster) -> tuple[Daemon, Daemon, Daemon]:
    made.start(3, 2)
    return made[1], made[2], made[3]


def test_a_host_without_the_publishers_key_says_so_everywhere_and_completes_after_a_reload(tmp_path: Path) -> None:
    model = make_model(tmp_path / "model", shards=1)
    with cluster(
        tmp_path / "three", environment={"GOSSIPD_SOURCES__ALLOW": json.dumps([f"file://{tmp_path}"])}
    ) as made:
        one, two, three_ = three(made)
        set_up("keygen", tmp_path / "other.key")
        text = three_.config.read_text()
        trusted = [line for line in text.splitlines() if line.startswith("trust ")]
        three_.config.write_text(text.replace(trusted[0], f'trust = ["{tmp_path / "other.key"}.pub"]'))
        reload(three_)
        until("it trusts another key", lambda: "security.trust" in three_.log())
        for daemon in (one, two):
            until("all hear of it", lambda one=daemon: agree(trust_prints(one)) == [True, True, False])  # type: ignore[misc]
        manifest = made.publish(model, "m", 1)
        asked = gossipd("deploy", str(manifest), "--dry-run", "--json", "--config", one.config)
        told = json.loads(asked.stdout)
        plan = {host["name"]: (host["takes"], host["unsure"]) for host in told["hosts"]}
        assert {host["fetched_bytes"] for host in told["hosts"]} == {told["distinct_bytes"]} == {told["external_bytes"]}
        assert plan["node-3"] == (True, ["trusts other keys than this host"])
        assert plan["node-2"] == (True, [])
        strange = gossipd("deploy", str(manifest), "--dry-run", "--config", three_.config, check=False)
        assert (strange.returncode, "E_KEY_UNKNOWN" in strange.stderr) == (7, True)
        assert not one.client.status()["deployments"], "nothing is deployed"
        gossipd("deploy", str(manifest), "--config", one.config)
        for daemon in (one, two):
            until("all see why", lambda one=daemon: said_of("node-3", one)[:2] == ("failed", "refused_key"))  # type: ignore[misc]
            assert len(said_of("node-3", daemon)[2]) == 16, "the key is named"
        ended = gossipd("wait", "m@1", "--config", two.config, "--timeout", "170s", check=False)
        assert ended.returncode == 9
        assert "add the key to `security.trust` there" in ended.stderr
        drift = gossipd("members", "--drift", "--json", "--config", two.config, check=False)
        assert drift.returncode == 9
        [apart] = [one for one in json.loads(drift.stdout)["aspects"] if one["differs"]]
        assert (apart["aspect"], [one["hosts"] for one in apart["groups"]]) == (
            "trust", [["node-1", "node-2"], ["node-3"]],
        )  # fmt: skip
        assert "agreement    fail     trust: node-3" in gossipd("doctor", "--config", two.config, check=False).stdout
        three_.config.write_text(text)
        reload(three_)
        made.wait_complete("m", 1, at=two, hosts=3)
        assert same_tree(model, three_.tree("m", 1))
        until("all hear that it trusts the same", lambda: agree(trust_prints(two)) == [True] * 3)
        agrees = gossipd("members", "--drift", "--config", two.config)
        assert "the same on all hosts: version, trust, clients, cluster_key" in agrees.stdout


def test_all_that_wait_for_a_reader_show_its_reason_and_name(tmp_path: Path) -> None:
    model = make_model(tmp_path / "model", shards=1)
    files = {str(path.relative_to(model)): path.read_bytes() for path in model.rglob("*") if path.is_file()}
    with servers.fault_server(files) as storage:
        storage.always = servers.Fault(servers.Misbehaviour.STATUS, 403)
        with cluster(tmp_path / "three", environment={"GOSSIPD_SOURCES__ALLOW": json.dumps([storage.url])}) as made:
            for number in (1, 2):
                reads = "true" if number == 1 else "false"
                made.add(f"node-{number}", "rack-1", GOSSIPD_SOURCES__ENABLED=reads).start()
            made.wait_together()
            made.drop(made.publish(model, "m", 1, "--source", f"{storage.url}/"), made[1])
            for daemon in (made[1], made[2]):
                until("why", lambda one=daemon: said_of("node-1", one)[1:] == ("source_auth", ""))  # type: ignore[misc]
                until("whose", lambda one=daemon: said_of("node-2", one)[1:] == ("source_auth", "node-1"))  # type: ignore[misc]
            until("nothing moves", lambda: standing(made[2]) == ("source_auth", None, 0))
            ended = wait_in_vain(made[2], "m@1")
            assert "storage refused the credentials" in ended and "says node-1" in ended
            storage.always = None
            made.wait_complete("m", 1, at=made[2], hosts=2)


def test_a_limit_that_lets_hardly_a_chunk_come_is_told_in_place_of_storage(tmp_path: Path) -> None:
    model = make_model(tmp_path / "model", shards=1)
    with cluster(tmp_path / "two", environment={"GOSSIPD_SOURCES__ALLOW": json.dumps([f"file://{tmp_path}"])}) as made:
        for number in (1, 2):
            made.add(f"node-{number}", "rack-1", GOSSIPD_SOURCES__ENABLED=str(number == 1).lower())
        made[1].configure(source_bytes_per_s='"16KiB"')
        for number in (1, 2):
            made[number].start()
        made.wait_together()
        made.drop(made.publish(model, "m", 1), made[1])
        for daemon in (made[1], made[2]):
            until("why", lambda one=daemon: said_of("node-1", one)[1:] == ("read_limit", ""))  # type: ignore[misc]
            until("whose", lambda one=daemon: said_of("node-2", one)[1:] == ("read_limit", "node-1"))  # type: ignore[misc]
        made[1].configure(source_bytes_per_s="0")
        made.wait_complete("m", 1, at=made[2], hosts=2)


@contextmanager
def short_at_nginx(model: Path, base: Path) -> Iterator[str]:
    os.truncate(model / SHARD, 200_000)
    with servers.nginx(model, base) as server:
        yield f"http://127.0.0.1:{server.port}"


@contextmanager
def short_without_ranges(model: Path, base: Path) -> Iterator[str]:
    os.truncate(model / SHARD, 200_000)
    with rangeless_server(model) as server:
        yield server.url


def alter(model: Path) -> None:
    shard = model / SHARD
    shard.write_bytes(shard.read_bytes()[:-1] + b"?")


@contextmanager
def altered_at_nginx(model: Path, base: Path) -> Iterator[str]:
    alter(model)
    with servers.nginx(model, base) as server:
        yield f"http://127.0.0.1:{server.port}"


@contextmanager
def altered_without_ranges(model: Path, base: Path) -> Iterator[str]:
    alter(model)
    with rangeless_server(model) as server:
        yield server.url


@contextmanager
def always(fault: servers.Fault, model: Path, base: Path) -> Iterator[str]:
    files = {str(path.relative_to(model)): path.read_bytes() for path in model.rglob("*") if path.is_file()}
    with servers.fault_server(files) as storage:
        storage.always = fault
        yield storage.url


@pytest.mark.needs("nginx")
@pytest.mark.parametrize(
    ("served", "reason", "code"),
    [
        (short_at_nginx, "object_short", 11),
        (short_without_ranges, "object_short", 11),
        (altered_at_nginx, "source_changed", 11),
        (altered_without_ranges, "source_changed", 11),
        (partial(always, servers.Fault(servers.Misbehaviour.GZIP)), "source_encoded", 11),
        (partial(always, servers.Fault(servers.Misbehaviour.WRONG_RANGE)), "source_range", 11),
        (partial(always, MOVED), "source_redirect", 11),
    ],
)
def test_what_only_another_object_or_server_cures_ends_a_wait_early_with_the_file_on_every_host(
    tmp_path: Path, served: Served, reason: str, code: int
) -> None:
    model = make_model(tmp_path / "model", shards=1)
    with cluster(tmp_path / "c", environment={"GOSSIPD_SOURCES__ALLOW": '["http://127.0.0.1:*"]'}) as made:
        for number in (1, 2):
            made.add(f"node-{number}", "rack-1", GOSSIPD_SOURCES__ENABLED=str(number == 1).lower()).start()
        made.wait_together()
        with served(shutil.copytree(model, tmp_path / "www"), tmp_path / "server") as url:
            made.drop(made.publish(model, "m", 1, "--source", f"{url}/"), made[1])
            ended = gossipd("wait", "m@1", "--config", made[2].config, "--timeout", "170s", check=False)
            assert ended.returncode == code, ended.stderr
            assert f"{reason} of " in ended.stderr and "says node-1" in ended.stderr
            for daemon in (made[1], made[2]):
                for name, subject in (("node-1", ""), ("node-2", "node-1")):
                    told = (name, reason, subject)
                    (file,) = until(f"{daemon.name} has heard {told}", lambda one=daemon, it=told: files(one, *it))  # type: ignore[misc]
                    assert (model / file).is_file() and f"{reason} of {file}" in ended.stderr


@pytest.mark.needs("nginx", "squid")
def test_a_certificate_that_has_ended_is_told_by_all_hosts_and_the_renewed_one_is_taken(tmp_path: Path) -> None:
    """Through a proxy, as TLS to storage often goes."""
    model = make_model(tmp_path / "model", shards=1)
    port = servers.free_port()
    authority, certificate, key = issue(tmp_path, "models.example", ended_ago=timedelta(hours=1))
    tls = f"listen 127.0.0.1:{port} ssl; ssl_certificate {certificate}; ssl_certificate_key {key};"
    with tempfile.TemporaryDirectory() as proxy_base:
        Path(proxy_base).chmod(0o755)  # squid is another user
        with servers.squid(Path(proxy_base) / "squid", names=["models.example"]) as proxy:
            url = f"https://models.example:{port}/"
            allow = {"GOSSIPD_SOURCES__ALLOW": json.dumps([url])}
            where = {"HTTPS_PROXY": proxy.url, "NO_PROXY": "", "SSL_CERT_FILE": str(authority)}
            with cluster(tmp_path / "c", environment={**allow, **where}) as made:
                for number in (1, 2):
                    made.add(f"node-{number}", "rack-1", GOSSIPD_SOURCES__ENABLED=str(number == 1).lower()).start()
                made.wait_together()
                with servers.nginx(model, tmp_path / "ended", extra=tls):
                    made.drop(made.publish(model, "m", 1, "--source", url), made[1])
                    for daemon in (made[1], made[2]):
                        until("why", lambda one=daemon: said_of("node-1", one)[1:] == ("source_tls", ""))  # type: ignore[misc]
                        until("whose", lambda one=daemon: said_of("node-2", one)[1:] == ("source_tls", "node-1"))  # type: ignore[misc]
                    assert "renew the certificate" in wait_in_vain(made[2], "m@1")
                    assert "certificate has expired; renew it there" in made[1].log()
                issue(tmp_path, "models.example")
                with servers.nginx(model, tmp_path / "renewed", extra=tls):
                    made.wait_complete("m", 1, at=made[2], hosts=2)


def files(daemon: Daemon, name: str, reason: str, subject: str) -> list[str]:
    """The file that the host of that name is held up by for this reason, as ``daemon`` shows it."""
    row: dict[str, Any] = daemon.deployment("m", 1) or {"hosts": []}
    told = [(host["name"], host["reason"], host["subject"], host["file"]) for host in row["hosts"]]
    return [one[3] for one in told if one[:3] == (name, reason, subject) and one[3]]
