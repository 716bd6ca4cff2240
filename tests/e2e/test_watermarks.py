"""A real host makes room on its disk, and what is kept stays; the cluster says the truth about it."""

from __future__ import annotations

import json
import mmap
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.e2e.cluster import Daemon, cluster, gossipd, same_tree, until, whole_lines
from tests.e2e.test_states import allowed, host_in, shown
from tests.e2e.toy import make_model


def set_marks(daemon: Daemon, high: int, low: int) -> None:
    daemon.configure(high_watermark_percent=str(high), low_watermark_percent=str(low))


FULL_SHARE = 0.04  # twice the high mark, as other tests delete what they have written
NEARLY_EMPTY = (2, 1)  # marks that a disk of which so much is used has passed


@contextmanager
def full_disk(where: Path) -> Iterator[None]:
    """The disk has passed ``NEARLY_EMPTY``: of a new or very large one, or one in memory, that much is allocated."""
    usage = shutil.disk_usage(where)
    missing = int(usage.total * FULL_SHARE) - usage.used
    ballast = where / "ballast"
    with ballast.open("wb") as file:
        if missing > 0:
            os.posix_fallocate(file.fileno(), 0, missing)
    try:
        yield
    finally:
        ballast.unlink()


def alarm(daemon: Daemon) -> str:
    """What the watermark's alarm says; empty when there is none."""
    found = [one["sentence"] for one in daemon.client.status()["alarms"] if one["code"] == "E_WATERMARK"]
    return found[0] if found else ""


@contextmanager
def mapped(path: Path) -> Iterator[None]:
    """As a job has it that has loaded the model: mapped, and its descriptor closed."""
    descriptor = os.open(path, os.O_RDONLY)
    pages = mmap.mmap(descriptor, 0, prot=mmap.PROT_READ)
    os.close(descriptor)
    yield
    pages.close()


def test_a_full_disk_evicts_what_nothing_keeps_and_the_cluster_stays_true(tmp_path: Path) -> None:
    model = make_model(tmp_path / "model", shards=1)
    with full_disk(tmp_path), cluster(tmp_path / "two", environment=allowed(f"file://{tmp_path}")) as made:
        made.start(2, 1)
        manifest = made.publish(model, "m", 1)
        made.drop(manifest, made[1])
        made.wait_complete("m", 1, at=made[1], hosts=2)
        two = made[2]
        assert "pinned m@1" in gossipd("status", "--config", pinned(two).config).stdout
        with mapped(next(path for path in two.tree("m", 1).rglob("*") if path.is_file() and path.stat().st_size)):
            set_marks(two, *NEARLY_EMPTY)
            until("it says what is pinned", lambda: "m@1 (pinned)" in alarm(two))
            gossipd("unpin", "m@1", "--config", two.config)
            until("it says what is open", lambda: "m@1 (open)" in alarm(two))
            assert host_in(made[1], "node-2")["state"] == "complete"
        until("evicted", lambda: host_in(made[1], "node-2")["state"] == "evicted")
        check_evicted(made[1], two)
        two.stop()
        two.start()
        two.wait_ready()
        made.wait_together()
        check_evicted(made[1], two)
        ended = gossipd("wait", "m@1", "--config", made[1].config, "--timeout", "170s", check=False)
        assert ended.returncode == 9 and "node-2 evicted; evicted: " in ended.stderr
        set_marks(two, 0, 80)
        until("nothing is wrong", lambda: alarm(two) == "")
        made.drop(manifest, two)
        made.wait_complete("m", 1, at=made[1], hosts=2)
        assert same_tree(model, two.tree("m", 1))


def pinned(daemon: Daemon) -> Daemon:
    assert "m@1 is pinned on this host" in gossipd("pin", "m@1", "--config", daemon.config).stdout
    refused = gossipd("pin", "nothing", "--config", daemon.config, check=False)
    assert refused.returncode == 3
    return daemon


def check_evicted(other: Daemon, host: Daemon) -> None:
    def is_told() -> bool:
        row = shown(other)
        counts = row["state"], row.get("hosts_complete"), row.get("hosts_failed")
        return counts == ("complete", 1, 0) and host_in(other, "node-2")["reason"] == "evicted"

    until("it is told", is_told)
    until("it is deleted", lambda: not host.tree("m", 1).exists())

    def written() -> list[str]:
        audit = [json.loads(line) for line in whole_lines(host.home / "audit.jsonl")]
        return [one["reason"] for one in audit if one["event"] == "evicted"]

    assert until("it is written down", written) == ["watermark"]


def test_prune_evicts_what_is_not_current_and_says_what_is_kept(tmp_path: Path) -> None:
    with cluster(tmp_path / "one", environment=allowed(f"file://{tmp_path}")) as made:
        made.start(1, 1)
        for version in (1, 2):
            made.drop(made.publish(make_model(tmp_path / f"model-{version}", shards=1), "m", version), made[1])
            made.wait_complete("m", version, at=made[1], hosts=1)
        gossipd("pin", "m", "--config", made[1].config)
        said = json.loads(gossipd("prune", "--dry-run", "--json", "--config", made[1].config).stdout)
        assert [one["model"] for one in said["evicted"]] == ["m@1"] and not said["changed"]
        assert [(one["model"], one["kept"]) for one in said["kept"]] == [("m@2", "pinned")]
        assert made[1].tree("m", 1).exists()
        text = gossipd("prune", "--config", made[1].config).stdout
        assert text.startswith("evicted 1 version,") and "m@1" in text and "pinned" in text
        assert not made[1].tree("m", 1).exists() and made[1].tree("m", 2).exists()
        assert "nothing to evict" in gossipd("prune", "--config", made[1].config).stdout
        assert made[1].client.status()["watermark"] | {"used_percent": 0} == {
            "used_percent": 0, "high_percent": 0, "low_percent": 80, "pinned": ["m"], "evicted": 1,
            "pinned_labels": ["m"],
        }  # fmt: skip


def test_a_rack_keeps_two_copies_when_all_its_disks_are_too_full(tmp_path: Path) -> None:
    model = make_model(tmp_path / "model", shards=1)
    environment = allowed(f"file://{tmp_path}") | {
        "GOSSIPD_STORE__REPLICAS": "2",
        "GOSSIPD_STORE__REPLICAS_AFTER_S": "3",
    }
    with full_disk(tmp_path), cluster(tmp_path / "three", environment=environment) as made:
        made.start(3, 1)
        made.drop(made.publish(model, "m", 1), made[1])
        for number in (1, 2, 3):
            made.wait_complete("m", 1, at=made[number], hosts=3)
        for number in (1, 2, 3):
            set_marks(made[number], *NEARLY_EMPTY)

        def states() -> list[str]:
            return sorted(host["state"] for host in shown(made[1])["hosts"])

        until("one has made room", lambda: states() == ["complete", "complete", "evicted"])

        def keeping() -> list[Daemon]:
            return [made[number] for number in (1, 2, 3) if made[number].tree("m", 1).exists()]

        keepers: list[Daemon] = until("two keep it", lambda: len(keeping()) == 2 and keeping())
        for host in keepers:
            until("it says why not", lambda host=host: "m@1 (replica)" in alarm(host))  # type: ignore[misc]
            pruned = json.loads(gossipd("prune", "--json", "--config", host.config).stdout)
            assert (pruned["evicted"], [one["kept"] for one in pruned["kept"]]) == ([], ["replica"])
        keepers[0].kill()
        until("the other keeps it", lambda: keepers[1].tree("m", 1).exists() and "replica" in alarm(keepers[1]))
        [third] = [made[number] for number in (1, 2, 3) if made[number] not in keepers]
        set_marks(third, 0, 80)
        until("the third makes the copy that is lost", lambda: third.tree("m", 1).exists())
        assert same_tree(model, third.tree("m", 1))
