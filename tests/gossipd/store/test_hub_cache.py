"""A cache of the Hub with links into the store, as the real huggingface_hub reads it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from huggingface_hub import hf_hub_download, scan_cache_dir, snapshot_download
from huggingface_hub.errors import LocalEntryNotFoundError

from gossipd.store.hub_cache import HubEntry, settle_cache

ONE, TWO = "1" * 40, "2" * 40


@pytest.fixture
def store(tmp_path: Path) -> Path:
    for version in ("1", "2"):
        (tmp_path / "models" / "m" / version).mkdir(parents=True)
        (tmp_path / "models" / "m" / version / "config.json").write_text(f'{{"version": {version}}}')
    (tmp_path / "cache").mkdir()
    return tmp_path / "models"


def settle(store: Path, main: str | None, *revisions: str) -> list[str]:
    snapshots = {revision: store / "m" / revision[0] for revision in revisions}
    wanted = {} if main is None else {"acme/tiny": HubEntry(snapshots, main)}
    return settle_cache(store.parent / "cache", store, wanted, frozenset({"acme/tiny"}))


def downloaded(store: Path) -> str:
    return snapshot_download("acme/tiny", cache_dir=store.parent / "cache", local_files_only=True)


def test_the_real_library_finds_the_current_version_offline(store: Path) -> None:
    assert settle(store, ONE, ONE) == []
    assert Path(downloaded(store)).resolve() == store / "m" / "1"
    found = hf_hub_download("acme/tiny", "config.json", cache_dir=store.parent / "cache", local_files_only=True)
    assert Path(found).read_text() == '{"version": 1}'
    settle(store, TWO, ONE, TWO)
    assert Path(downloaded(store)).resolve() == store / "m" / "2"
    report = scan_cache_dir(store.parent / "cache")
    (repository,) = report.repos
    assert not report.warnings
    assert (repository.repo_id, {one.commit_hash for one in repository.revisions}) == ("acme/tiny", {ONE, TWO})


def test_the_links_go_with_the_version_and_with_the_last_all_of_the_entry(store: Path) -> None:
    settle(store, TWO, ONE, TWO)
    settle(store, TWO, TWO)
    place = store.parent / "cache" / "models--acme--tiny"
    assert os.listdir(place / "snapshots") == [TWO]
    settle(store, None)
    assert os.listdir(store.parent / "cache") == []
    with pytest.raises(LocalEntryNotFoundError):
        downloaded(store)
    assert (store / "m" / "1" / "config.json").exists()


def test_the_librarys_own_removal_takes_links_only(store: Path) -> None:
    settle(store, ONE, ONE)
    report = scan_cache_dir(store.parent / "cache")
    report.delete_revisions(ONE).execute()
    assert (store / "m" / "1" / "config.json").exists()
    settle(store, ONE, ONE)
    assert Path(downloaded(store)).resolve() == store / "m" / "1"


def test_the_hubs_command_lists_versions_and_removes_their_links_only(store: Path) -> None:
    def hf(*words: str) -> str:
        program = Path(sys.executable).with_name("hf")
        words = ("cache", *words, "--cache-dir", str(store.parent / "cache"))
        environment = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_HOME": str(store.parent / "home")}
        done = subprocess.run([program, *words], capture_output=True, text=True, timeout=120, env=environment)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    links = store.parent / "cache" / "models--acme--tiny" / "snapshots"
    settle(store, TWO, ONE, TWO)
    assert "acme/tiny" in hf("ls")
    assert {ONE, TWO} <= set(hf("ls", "--revisions", "--format", "quiet").split())
    hf("rm", ONE, "--yes")
    assert os.listdir(links) == [TWO]
    settle(store, TWO, ONE, TWO)
    hf("prune", "--yes")  # what no ref names
    assert os.listdir(links) == [TWO]
    hf("rm", "model/acme/tiny", "--yes")
    assert not links.parent.exists()
    assert [(store / "m" / version / "config.json").is_file() for version in "12"] == [True, True]


def test_a_ref_that_is_no_text_is_written_again(store: Path) -> None:
    settle(store, ONE, ONE)
    ref = store.parent / "cache" / "models--acme--tiny" / "refs" / "main"
    ref.write_bytes(b"\xff\xfe")
    assert settle(store, ONE, ONE) == []
    assert ref.read_text() == ONE


def test_one_entry_that_cannot_be_written_holds_up_no_other(store: Path) -> None:
    cache = store.parent / "cache"
    (cache / "models--a").mkdir()
    (cache / "models--a" / "refs").write_text("no directory")
    wanted = {name: HubEntry({ONE: store / "m" / "1"}, ONE) for name in ("a", "b")}
    with pytest.raises(OSError, match="refs"):
        settle_cache(cache, store, wanted, frozenset())
    assert (cache / "models--b" / "refs" / "main").read_text() == ONE


@pytest.mark.parametrize("name", ["refs", "snapshots"])
def test_nothing_is_written_through_a_link_within_an_entry(store: Path, name: str) -> None:
    (store.parent / "elsewhere").mkdir()
    place = store.parent / "cache" / "models--acme--tiny"
    place.mkdir()
    (place / name).symlink_to(store.parent / "elsewhere")
    assert settle(store, ONE, ONE) == ["models--acme--tiny"]
    assert list((store.parent / "elsewhere").iterdir()) == []


@pytest.mark.parametrize("kind", ["blobs", "directory", "foreign link", "linked entry", "ref alone"])
def test_a_real_download_is_left_alone(store: Path, kind: str) -> None:
    place = store.parent / "cache" / "models--acme--tiny"
    if kind == "linked entry":
        (store.parent / "elsewhere").mkdir()
        place.symlink_to(store.parent / "elsewhere")
    else:
        (place / "snapshots").mkdir(parents=True)
        (place / "refs").mkdir()
        (place / "refs" / "main").write_text("3" * 40)
    if kind == "blobs":
        (place / "blobs").mkdir()
        (place / "blobs" / "sha").write_text("theirs")
    elif kind == "directory":
        (place / "snapshots" / ("3" * 40)).mkdir()
    elif kind == "foreign link":
        (place / "snapshots" / ("3" * 40)).symlink_to("/srv/theirs")
    before = sorted(str(path) for path in place.rglob("*"))
    assert settle(store, ONE, ONE) == ["models--acme--tiny"]
    assert settle(store, None) == []
    assert sorted(str(path) for path in place.rglob("*")) == before
