"""A publisher's key is rotated and all daemons are started again: nothing that was accepted is lost."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from tests.e2e.cluster import Daemon, cluster, gossipd, same_tree, until
from tests.e2e.toy import make_model


def reason_of_refusal(daemon: Daemon) -> str:
    reasons = list((daemon.home / "inbox" / "rejected").glob("*.reason"))
    return reasons[0].read_text() if reasons else ""


def test_models_of_a_key_that_is_rotated_stay_usable_also_after_a_restart_of_all(tmp_path: Path) -> None:
    source = tmp_path / "source"
    with cluster(tmp_path / "hosts", environment={"GOSSIPD_SOURCES__ALLOW": json.dumps([f"file://{source}"])}) as made:
        made.start(2, 2)
        model = make_model(source / "good", shards=2)
        made.drop(made.publish(model, "good", 1, "--source", f"file://{model}/"), made[1])
        made.wait_complete("good", 1, at=made[2], hosts=2)
        second = made.publish(model, "good", 2, "--source", f"file://{model}/")

        old_key, made.key = made.key, tmp_path / "new.key"
        gossipd("keygen", made.key)
        for daemon in (made[1], made[2]):
            assert daemon.stop() == 0
            daemon.configure(trust=json.dumps([f"{made.key}.pub"]))
        for daemon in (made[1], made[2]):
            daemon.start()
        made.wait_together()
        kept = tmp_path / "kept"
        shutil.copytree(model, kept)
        shutil.rmtree(source)

        late = made.add("node-3", "rack-1")
        late.configure(trust=json.dumps([f"{made.key}.pub", f"{old_key}.pub"]))
        late.start()
        made.wait_complete("good", 1, at=late, hosts=3)
        assert same_tree(kept, late.tree("good", 1)), "served by hosts that no longer trust the key"
        for daemon in (made[1], made[2]):
            config = daemon.config
            assert gossipd("path", "good", "--config", config).stdout.strip().endswith("/models/good/1")
            assert gossipd("verify", "good@1", "--config", config).returncode == 0
            assert "good@1" in gossipd("ls", "--config", config).stdout
        made.drop(second, made[1])
        until("the old key's next version is refused", lambda: "E_KEY_UNKNOWN" in reason_of_refusal(made[1]))
        gossipd("rm", "good@1", "--config", made[1].config)
        assert not made[1].tree("good", 1).exists()
        assert made[2].tree("good", 1).exists()
