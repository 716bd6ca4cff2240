"""One check for the start, a reload and ``config check``: all problems of file, keys and directories at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from gossipd.cli.main import main
from gossipd.config.check import load_checked
from gossipd.config.load import ConfigError

ANYWHERE = {"GOSSIPD_STORE__ANY_FILE_SYSTEM": "true"}


@pytest.fixture
def home(tmp_path: Path) -> Path:
    assert (
        main(["init", str(tmp_path / "a"), "--name", "a", "--rack", "r", "--bind", "127.0.0.1", "--port", "7946"]) == 0
    )
    return tmp_path / "a"


def test_a_directory_of_init_has_nothing_wrong(home: Path) -> None:
    config, keys = load_checked(home, ANYWHERE)
    assert config.node.name == "a"
    assert keys.publishers == ()


def test_keys_and_places_are_named_together(home: Path) -> None:
    (home / "node.key").chmod(0o644)
    (home / "cluster.key").unlink()
    with pytest.raises(ConfigError) as refused:
        load_checked(home, {**ANYWHERE, "GOSSIPD_STORE__MODELS_GROUP": "nobody-at-all"})
    keys = [problem.key for problem in refused.value.problems]
    assert keys == ["security.node_key", "security.cluster_key", "store.models_group"]
