"""Eight real daemons, real servers, real files: what a user does, and what is refused."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import msgpack
import pytest
from safetensors import safe_open

from gossipd.identity.keys import SecretKey
from gossipd.manifest.envelope import seal
from gossipd.manifest.manifest import ENVELOPE_TYPE
from tests import servers
from tests.e2e.cluster import Cluster, Daemon, alive_count, cluster, gossipd, same_tree, set_up, until
from tests.e2e.toy import make_model
from tests.gossipd.manifest.making import fake_digests, payload_fields

HOSTS = 8
READ_AGAIN_BYTES = 4 * 262_144  # some chunks are taken over of a host that gets no CPU for some seconds


def state_of(name: str, daemon: Daemon) -> str:
    """Of a member, as ``daemon`` knows it."""
    members = (daemon.try_status() or {"members": []})["members"]
    return next((str(one["state"]) for one in members if one["name"] == name), "")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[servers.Nginx]:
    base = tmp_path_factory.mktemp("site")
    (base / "root").mkdir()
    with servers.nginx(base / "root", base / "nginx") as running:
        yield running


@pytest.fixture(scope="module")
def eight(
    tmp_path_factory: pytest.TempPathFactory, site: servers.Nginx, s3_server: servers.S3Server
) -> Iterator[Cluster]:
    """Eight daemons in three racks, allowed to read the test's servers."""
    allow = json.dumps([site.url.rstrip("/"), "s3"])
    base = tmp_path_factory.mktemp("eight")
    client = json.dumps([f"{base / 'client.key'}.pub"])
    environment = {
        "GOSSIPD_SOURCES__ALLOW": allow, "GOSSIPD_SECURITY__CLIENTS": client, **s3_server.environment
    }  # fmt: skip
    with cluster(base, environment=environment) as made:
        set_up("keygen", base / "client.key")
        made.start(HOSTS, 3)
        yield made


@pytest.mark.needs("nginx")
def test_a_directory_of_safetensors_arrives_from_http_byte_identical_on_eight_hosts(
    eight: Cluster, site: servers.Nginx, tmp_path: Path
) -> None:
    model = make_model(site.root / "llama")
    manifest = eight.publish(model, "org/llama", 1, "--source", f"{site.url.rstrip('/')}/llama/")
    eight.drop(manifest, eight[3])
    row = eight.wait_complete("org/llama", 1, at=eight[7], hosts=HOSTS)
    for daemon in eight.daemons.values():
        assert same_tree(model, daemon.tree("org/llama", 1))
    assert row["source_bytes"] <= row["bytes_total"] + READ_AGAIN_BYTES
    assert row["bytes_verified"] == row["bytes_total"]
    assert (row["hosts_total"], row["hosts_complete"], row["corrupt_chunks"]) == (HOSTS, HOSTS, 0)
    shard = eight[8].home / "models" / "org" / "llama" / "current" / "model-00001-of-00003.safetensors"
    with safe_open(shard, framework="numpy") as opened:
        assert opened.get_tensor("layer.0.weight").shape[1] == 4096
    until("the inbox is told", (eight[3].home / "inbox" / "accepted" / manifest.name).exists)


@pytest.mark.needs("nginx")
def test_a_prefix_of_an_s3_bucket_arrives_byte_identical_on_eight_hosts(
    eight: Cluster, s3_server: servers.S3Server, tmp_path: Path
) -> None:
    model = make_model(tmp_path / "qwen", seed=2)
    s3_server.make_bucket("models")
    s3_server.upload("models", model, prefix="qwen/")
    manifest = eight.publish("s3://models/qwen/", "qwen", 7, env=s3_server.environment)
    eight.drop(manifest, eight[1])
    row = eight.wait_complete("qwen", 7, at=eight[2], hosts=HOSTS)
    for daemon in eight.daemons.values():
        assert same_tree(model, daemon.tree("qwen", 7))
        with safe_open(daemon.tree("qwen", 7) / "model-00003-of-00003.safetensors", framework="numpy") as opened:
            assert list(opened.keys()) == ["layer.2.weight"]
    assert row["source_bytes"] <= row["bytes_total"] + READ_AGAIN_BYTES


@pytest.mark.needs("nginx")
def test_a_late_joiner_learns_of_every_live_deployment_and_completes_it(eight: Cluster, site: servers.Nginx) -> None:
    model = make_model(site.root / "late", shards=1, seed=3)
    manifest = eight.publish(model, "late", 1, "--source", f"{site.url.rstrip('/')}/late/")
    eight.drop(manifest, eight[2])
    eight.wait_complete("late", 1, at=eight[5], hosts=HOSTS)
    before = site.body_bytes()
    newcomer = eight.add("newcomer", "rack-1")
    newcomer.start()
    until("the cluster knows the newcomer", lambda: alive_count(eight[1]) == HOSTS + 1)
    until("the newcomer has the model", lambda: newcomer.tree("late", 1).exists())
    assert same_tree(model, newcomer.tree("late", 1))
    looked = site.body_bytes() - before  # one byte by each host that may be asked to read for the newcomer's rack
    assert looked < 1_000, "a model that the cluster has is not read from storage again"
    assert newcomer.stop() == 0
    until("the newcomer has left", lambda: state_of("newcomer", eight[1]) in ("left", "dead"))
    gossipd("forget", "newcomer", "--config", eight[1].config)
    del eight.daemons["newcomer"]
    others = eight.daemons.values()
    until("all have forgotten it", lambda: not any(state_of("newcomer", daemon) for daemon in others))


@pytest.mark.needs("nginx")
def test_a_trigger_with_a_nodes_own_keys_deploys_and_a_clients_cancel_of_it_is_answered(
    eight: Cluster, site: servers.Nginx, tmp_path: Path
) -> None:
    model = make_model(site.root / "trig", shards=1, seed=4)
    manifest = eight.publish(model, "trig", 1, "--source", f"{site.url.rstrip('/')}/trig/")
    address = f"127.0.0.1:{eight[4].port}"
    done = gossipd("trigger", address, manifest, "--config", eight[5].config)
    assert "trig@1" in done.stdout
    eight.wait_complete("trig", 1, at=eight[4], hosts=HOSTS)  # the host that is asked to cancel it
    again = gossipd("trigger", address, manifest, "--config", eight[5].config)
    assert again.returncode == 0, "repeating is harmless"
    client = ("--key", eight.base / "client.key", "--server-key", eight[4].home / "node.key.pub")
    cancelled = gossipd("trigger", address, "trig@1", *client, "--cancel", check=False)
    assert cancelled.returncode == 1
    assert "E_COMPLETE" in cancelled.stderr, "the client is heard, and there is nothing to stop"
    stranger = tmp_path / "stranger.key"
    gossipd("keygen", stranger)
    refused = gossipd(
        "trigger", address, manifest, "--key", stranger, "--server-key", eight[4].home / "node.key.pub",
        "--timeout", "5", check=False,  # it is never answered
    )  # fmt: skip
    assert refused.returncode not in (0, 1, 2), refused.stdout + refused.stderr


@pytest.mark.needs("nginx")
def test_versions_share_chunks_roll_back_and_are_removed(eight: Cluster, site: servers.Nginx) -> None:
    model = make_model(site.root / "multi", shards=2, seed=5)
    url = f"{site.url.rstrip('/')}/multi/"
    eight.drop(eight.publish(model, "multi", 1, "--source", url), eight[1])
    eight.wait_complete("multi", 1, at=eight[1], hosts=HOSTS)
    (model / "config.json").write_text('{"model_type": "toy", "changed": true}')
    before = site.body_bytes()
    eight.drop(eight.publish(model, "multi", 2, "--source", url), eight[2])
    eight.wait_complete("multi", 2, at=eight[1], hosts=HOSTS)
    assert site.body_bytes() - before < 1_000_000, "only the chunk with the small files has changed"
    one = eight[1]
    path = gossipd("path", "multi", "--config", one.config).stdout.strip()
    assert Path(path).resolve() == one.tree("multi", 2).resolve()
    gossipd("rollback", "multi", "--config", one.config)
    assert (one.home / "models" / "multi" / "current").readlink() == Path("1")
    assert gossipd("verify", "multi@2", "--config", one.config).returncode == 0
    gossipd("rm", "multi@1", "--config", eight[2].config)
    assert not eight[2].tree("multi", 1).exists()
    assert eight[3].tree("multi", 1).exists(), "rm is for this host only"
    listed = json.loads(gossipd("ls", "--json", "--config", one.config).stdout)
    assert {(row["name"], row["version"]) for row in listed["models"]} >= {("multi", 1), ("multi", 2)}
    missing = gossipd("path", "nothing", "--config", one.config, check=False)
    assert missing.returncode == 3


@pytest.mark.needs("nginx")
def test_refused_manifests_start_no_fetch_and_say_why(eight: Cluster, site: servers.Nginx, tmp_path: Path) -> None:
    model = make_model(site.root / "refused", shards=1, seed=6)
    url = f"{site.url.rstrip('/')}/refused/"
    never = shutil.copytree(model, site.root / "never")
    good = eight.publish(model, "refused", 5, "--source", url)
    altered = bytearray(_published(model, "altered@1", eight.key, tmp_path, f"{site.url.rstrip('/')}/never/"))
    eight.drop(good, eight[1])
    eight.wait_complete("refused", 5, at=eight[1], hosts=HOSTS)
    host = eight[6]
    until("node-6 trusts it too", lambda: host.deployment("refused", 5))
    stranger = tmp_path / "stranger.key"
    gossipd("keygen", stranger)
    publisher = SecretKey.from_text(eight.key.read_text())
    unsigned = _unsigned(bytes(altered))
    altered[len(altered) // 2] ^= 1
    model, url = never, f"{site.url.rstrip('/')}/never/"
    (model / "config.json").write_text("{}")
    cases = {
        "altered": (bytes(altered), "E_SIG_INVALID"),
        "stranger": (_published(model, "x@1", stranger, tmp_path, url), "E_KEY_UNKNOWN"),
        "older": (_published(model, "refused@4", eight.key, tmp_path, url), "E_ROLLBACK"),
        "equal": (_published(model, "refused@5", eight.key, tmp_path, url), "E_EQUIVOCATION"),
        "garbage": (b"not a manifest at all", "E_SCHEMA_VERSION"),
        "expired": (_crafted(publisher, created=1_700_000_000, expires=1_700_000_001), "E_EXPIRED"),
        "unsigned": (unsigned, "E_SIG_MISSING"),
        "absolute": (_crafted(publisher, files=[["/etc/passwd", 10, 0o644]]), "E_PATH_ABSOLUTE"),
        "dotted": (_crafted(publisher, files=[["a/../../b", 10, 0o644]]), "E_PATH_COMPONENT"),
    }
    for name, (content, _) in cases.items():
        (host.home / "inbox" / f"{name}.gmf").write_bytes(content)
    rejected = host.home / "inbox" / "rejected"
    for name, (_, code) in cases.items():
        reason = rejected / f"{name}.gmf.reason"
        until(f"{name} is refused", reason.exists)
        assert code in reason.read_text()
    assert not [one for one in site.accesses() if one.path.startswith("/never/")]
    until("all see each other", lambda: alive_count(host) == HOSTS)


@pytest.mark.needs("nginx")
def test_a_source_that_is_not_allowed_is_never_read(eight: Cluster, site: servers.Nginx) -> None:
    model = make_model(site.root / "forbidden", shards=1, seed=9)
    with servers.nginx(site.root, eight.base / "other-nginx") as other:
        manifest = eight.publish(model, "forbidden", 1, "--source", f"{other.url.rstrip('/')}/forbidden/")
        eight.drop(manifest, eight[1])
        for daemon in eight.daemons.values():
            until(f"{daemon.name} knows it", lambda one=daemon: one.deployment("forbidden", 1))  # type: ignore[misc]
        until(
            "status says what holds it up",
            lambda: any(
                host["reason"] not in ("", "not_heard")
                for host in (eight[1].deployment("forbidden", 1) or {"hosts": []})["hosts"]
            ),
        )
        assert [access for access in other.accesses() if access.path != "/"] == [], "the server's own start asks for /"
    assert gossipd("cancel", "forbidden@1", "--config", eight[1].config).returncode == 0
    until("it is cancelled everywhere", lambda: (eight[8].deployment("forbidden", 1) or {}).get("state") == "cancelled")


def _published(model: Path, label: str, key: Path, base: Path, url: str) -> bytes:
    name, _, version = label.partition("@")
    out = base / f"{label}.gmf"
    words: list[str | Path] = ["--name", name, "--version", version, "--key", key, "--out", out, "--source", url]
    gossipd("publish", model, *words)
    return out.read_bytes()


def _unsigned(envelope: bytes) -> bytes:
    """The same payload behind no signature at all."""
    at = 2 + len(ENVELOPE_TYPE)
    return envelope[:at] + b"\x00" + envelope[at + 1 + 16 + 64 :]


def _crafted(publisher: SecretKey, **wrong: object) -> bytes:
    """Well signed by a publisher who means harm: nothing but the manifest's own rules is left."""
    fields = payload_fields(**({"files": [["a.bin", 10, 0o644]], "hashes": fake_digests(1)} | wrong))
    return seal(ENVELOPE_TYPE, b"\x01" + msgpack.packb(fields, use_bin_type=True), [publisher])
