"""A directory of public keys stands for the keys in it."""

from __future__ import annotations

from pathlib import Path

import pytest

from gossipd.config.changes import diff
from gossipd.config.key_directories import KEYS_MAX, KeyDirectoryError, key_files_of
from gossipd.config.load import ConfigError, load_config
from tests.gossipd.config.test_config import LEAST


def test_a_directory_stands_for_its_public_keys_in_order(tmp_path: Path) -> None:
    for name in ("b.pub", "a.pub", "README", "a.pub~", ".hidden.pub"):
        (tmp_path / name).touch()
    assert key_files_of([tmp_path]) == (tmp_path / "a.pub", tmp_path / "b.pub")


def test_files_stay_and_each_is_read_once(tmp_path: Path) -> None:
    (tmp_path / "a.pub").touch()
    missing = tmp_path / "missing.pub"
    assert key_files_of([missing, tmp_path / "a.pub", tmp_path]) == (missing, tmp_path / "a.pub")


def test_links_of_a_mounted_config_map_are_followed(tmp_path: Path) -> None:
    (tmp_path / "..2026_11").mkdir()
    (tmp_path / "..2026_11" / "a.pub").touch()
    (tmp_path / "..data").symlink_to("..2026_11")
    (tmp_path / "a.pub").symlink_to("..data/a.pub")
    assert key_files_of([tmp_path]) == (tmp_path / "a.pub",)


def test_more_keys_than_the_bound_are_refused(tmp_path: Path) -> None:
    for number in range(KEYS_MAX + 1):
        (tmp_path / f"{number}.pub").touch()
    with pytest.raises(KeyDirectoryError, match=f"1001 files of public keys, at most {KEYS_MAX}"):
        key_files_of([tmp_path])


def test_a_reload_takes_a_key_that_was_put_into_the_directory(tmp_path: Path) -> None:
    (tmp_path / "trust").mkdir()
    (tmp_path / "trust" / "a.pub").touch()
    limited = 'trust_names = {"trust/a.pub" = ["prod/*"]}'
    (tmp_path / "gossipd.toml").write_text(f'{LEAST}[security]\ntrust = ["trust"]\n{limited}\n')
    before = load_config(tmp_path / "gossipd.toml", {})
    (tmp_path / "trust" / "b.pub").touch()
    after = load_config(tmp_path / "gossipd.toml", {})
    assert [path.name for path in after.security.trust] == ["a.pub", "b.pub"]
    changed, needing_restart = diff(before, after)
    assert ([one.key for one in changed], needing_restart) == (["security.trust"], ())
    (tmp_path / "trust" / "a.pub").unlink()
    with pytest.raises(ConfigError, match=r"not in security\.trust"):
        load_config(tmp_path / "gossipd.toml", {})


def test_a_directory_with_too_many_keys_is_named_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "clients").mkdir()
    for number in range(KEYS_MAX + 1):
        (tmp_path / "clients" / f"{number}.pub").touch()
    (tmp_path / "gossipd.toml").write_text(f'{LEAST}[security]\nclients = ["clients"]\n')
    with pytest.raises(ConfigError, match=r"gossipd.toml:\d+: security.clients .*clients has 1001 files") as caught:
        load_config(tmp_path / "gossipd.toml", {})
    assert [problem.key for problem in caught.value.problems] == ["security.clients"]
