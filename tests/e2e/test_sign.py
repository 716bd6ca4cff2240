"""A publisher's key is replaced, then a host: the new host fetches the old model, which nobody hashes again."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.e2e.cluster import Cluster, cluster, gossipd, same_tree, until
from tests.e2e.toy import make_model


def trust(hosts: Cluster, name: str, key: Path) -> None:
    """The host trusts ``key`` alone."""
    shutil.copy(key, hosts.daemons[name].home / "trust" / "publisher.key.pub")


def test_a_replaced_host_fetches_what_a_retired_key_had_signed(tmp_path: Path) -> None:
    model = make_model(tmp_path / "model", shards=1, shard_bytes=1_000_000)
    with cluster(tmp_path / "c", environment={"GOSSIPD_SOURCES__ALLOW": f'["file://{model}"]'}) as hosts:
        hosts.start(2, 1)
        manifest = hosts.publish(model, "toy", 1)
        hosts.drop(manifest, hosts[1])
        hosts.wait_complete("toy", 1, at=hosts[1], hosts=2)
        kept = tmp_path / "kept"
        model.rename(kept)
        gossipd("keygen", tmp_path / "new.key")
        for name, daemon in hosts.daemons.items():
            trust(hosts, name, tmp_path / "new.key.pub")
            assert gossipd("reload", "--config", daemon.config).stdout == "applied security.trust\n"
        late = hosts.add("late", "rack-1")
        trust(hosts, "late", tmp_path / "new.key.pub")
        late.start()
        hosts.wait_together()
        again = tmp_path / "again.manifest"
        gossipd("sign", manifest, "--key", tmp_path / "new.key", "--trust", f"{hosts.key}.pub", "--out", again)
        hosts.drop(again, late)
        until("the late host has it", lambda: same_tree(kept, late.tree("toy", 1)) or None)
        row = hosts.wait_complete("toy", 1, at=late, hosts=3)
        assert row["hosts_failed"] == 0
