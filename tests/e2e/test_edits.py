"""Edited models on real daemons: what was equal is not fetched again, and empty directories arrive."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.bench import edits
from tests.e2e.cluster import cluster, gossipd

MIB = 64  # of smaller models the last chunk of a grown tensor is more than a hundredth
SHARE_MAX = 0.01


@pytest.fixture(scope="module")
def rows() -> dict[str, dict[str, Any]]:
    """Of each edit what was fetched, all by one pair of daemons."""
    return {row["edit"]: row for row in edits.measured(sorted(edits.EDITS), MIB, "tensors")}


@pytest.mark.parametrize("edit", sorted(edits.EDITS))
def test_an_edit_fetches_again_a_hundredth_of_the_bytes_at_most(edit: str, rows: dict[str, dict[str, Any]]) -> None:
    row = rows[edit]
    assert row["share_read_again"] <= SHARE_MAX
    assert row["share_fetched_again"] <= SHARE_MAX
    assert row["share_new_in_manifest"] <= SHARE_MAX


def test_a_step_arrives_with_its_empty_directories_and_is_shown_by_its_daemon(tmp_path: Path) -> None:
    tree = edits.write(tmp_path / "sources" / "step-300", edits.model(8), shards=2)
    (tree / "logs" / "events").mkdir(parents=True)
    (tmp_path / "about.json").write_text('{"run": "r7", "parents": ["%s"]}' % ("ab" * 32))
    environment = {"GOSSIPD_SOURCES__ALLOW": json.dumps([f"file://{tmp_path / 'sources'}/"])}
    with cluster(tmp_path / "cluster", environment=environment) as made:
        made.start(2, 1)
        out = tmp_path / "run.manifest"
        words = ("--name", "run-7", "--step", "300", "--attempt", "2", "--keep-last", "3", "--out", out)
        gossipd("publish", tree, *words, "--about", tmp_path / "about.json", "--key", made.key)
        made.drop(out, made[1])
        version = 2 << 32 | 300
        for daemon in (made[1], made[2]):
            made.wait_complete("run-7", version, at=daemon, hosts=2)
        for daemon in made.daemons.values():
            assert (daemon.tree("run-7", version) / "logs" / "events").is_dir()
        config = made[2].config
        assert "run-7@300.2  complete" in gossipd("status", "--config", config).stdout
        assert "run r7, step 300, attempt 2" in gossipd("ls", "--long", "--config", config).stdout
        assert '"run": "r7"' in gossipd("show", "run-7@300.2", "--config", config).stdout
        assert "abababababababab  not known here" in gossipd("lineage", "run-7", "--config", config).stdout
        assert gossipd("verify", "run-7@300.2", "--config", config).returncode == 0
        assert gossipd("pin", "run-7@300.2", "--config", config).stdout == "run-7@300.2 is pinned on this host\n"
        assert "pinned run-7@300.2" in gossipd("status", "--config", config).stdout
        kept = gossipd("prune", "--dry-run", "--config", config).stdout
        assert "run-7@300.2" in kept and str(version) not in kept
        assert gossipd("untrust", "run-7@300.2", "--config", config).stdout.startswith("run-7@300.2 is no longer")
