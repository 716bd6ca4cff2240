"""A deployment for some hosts, between real daemons: the others get no chunk and no word of who holds it."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from gossipd.config.keys import read_keys
from gossipd.config.load import load_config
from gossipd.control.trigger_client import Conversation
from gossipd.core.ids import DeploymentId
from gossipd.identity.keys import SecretKey
from gossipd.runtime.buffer_pool import BufferPool
from gossipd.runtime.rate_limit import RateLimit
from gossipd.transfer.client import BulkClient
from gossipd.transfer.credentials import tls_credentials
from gossipd.transfer.errors import PeerRefusedError
from gossipd.transfer.settings import BulkSettings, Encryption
from gossipd.wire import control
from gossipd.wire.control_frame import encode
from membership.member import NodeId, node_id
from tests.e2e.cluster import Cluster, Daemon, alive_count, cluster, same_tree, until, whole_lines
from tests.e2e.toy import make_model


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Hosts 1 and 2 in rack-1, which are the targets of a model that they have, and host 3 in rack-2; all read the
    model's own directory."""
    base = tmp_path_factory.mktemp("three")
    environment = {"GOSSIPD_SOURCES__ALLOW": json.dumps([f"file://{base}"])}
    with cluster(base, environment=environment) as made:
        for number, rack in ((1, "rack-1"), (2, "rack-1"), (3, "rack-2")):
            made.add(f"node-{number}", rack).start()
        made.wait_together()
        model = make_model(base / "some", shards=1)
        manifest = made.publish(model, "some", 1, "--source", f"file://{model}", "--targets", "rack=rack-1")
        made.drop(manifest, made[3])
        for number in (1, 2, 3):
            made.wait_complete("some", 1, at=made[number], hosts=2)
        yield made


def secret_of(daemon: Daemon) -> SecretKey:
    return read_keys(load_config(daemon.config)).node


def refusals(daemon: Daemon) -> list[dict[str, object]]:
    """What the audit log says of hosts that are no target."""
    records = [json.loads(line) for line in whole_lines(daemon.home / "audit.jsonl")]
    return [one for one in records if one.get("event") == "not a target refused"]


def test_a_host_that_is_no_target_gets_the_manifest_and_nothing_else(three: Cluster) -> None:
    row = three.wait_complete("some", 1, at=three[3], hosts=2)
    assert row["hosts_total"] == 2
    assert not three[3].tree("some", 1).exists()
    deployment = DeploymentId(bytes.fromhex(row["id"]))
    outsider, ring = secret_of(three[3]), read_keys(load_config(three[3].config)).cluster
    client = BulkClient(
        settings=BulkSettings(encryption=Encryption.TLS), pool=BufferPool(1 << 26), throttle=RateLimit(),
        credentials=tls_credentials(outsider, ring.keys),
    )  # fmt: skip
    holder = NodeId(node_id(secret_of(three[1]).public.ed25519))
    endpoint = ("127.0.0.1", three[1].port + 1)
    try:
        body = (three.base / "some-1.gmf").read_bytes()
        assert client.fetch_manifest(holder, endpoint, deployment, len(body), timeout_s=60.0) == body
        with pytest.raises(PeerRefusedError) as caught:
            client.fetch_chunk(holder, endpoint, deployment, 0, 1, timeout_s=60.0)
        assert caught.value.code == "E_NOT_A_TARGET"
    finally:
        client.close()
    found = until("the refusal is written down", lambda: refusals(three[1]))
    assert (found[0]["subject"], found[0]["deployment"]) == ("node-3", deployment.hex())


def test_a_host_that_is_no_target_is_told_no_holdings(three: Cluster) -> None:
    row = three.wait_complete("some", 1, at=three[1], hosts=2)
    server_key = secret_of(three[2]).public.curve25519
    outsider = secret_of(three[3])
    with Conversation("127.0.0.1", three[2].port, secret=outsider, server_key=server_key, timeout_s=60) as said:
        said._socket.send(encode(control.Subscribe(DeploymentId(bytes.fromhex(row["id"]))), number=7))
        said.ask(control.Ping(), control.Pong)
        found = until("the refusal is written down", lambda: refusals(three[2]))
    assert found[0]["subject"] == "node-3"


def test_a_host_that_is_no_target_any_more_keeps_what_it_has(three: Cluster) -> None:
    three.wait_complete("some", 1, at=three[1], hosts=2)
    assert three[2].stop() == 0
    three[2].environment["GOSSIPD_NODE__RACK"] = "rack-3"
    three[2].start()
    until("all see each other again", lambda: alive_count(three[1]) == 3)
    until("one target is left", lambda: (three[1].deployment("some", 1) or {}).get("hosts_total") == 1)
    assert same_tree(three.base / "some", three[2].tree("some", 1))
