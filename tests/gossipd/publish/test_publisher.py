"""From a tree to a signed manifest, and everything that must stop on the way."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gossipd.core.errors import GossipdError
from gossipd.core.targets import Targets
from gossipd.publish import publisher
from gossipd.publish.errors import PublishError
from gossipd.publish.extents import FileExtent
from gossipd.publish.file_reading import LocalFiles
from gossipd.publish.output import write_whole
from tests.gossipd.publish.trees import CHUNK, KEY, TREE, make_tree, published


def code_of(source: Path | str, out: Path, **options: object) -> str:
    with pytest.raises(GossipdError) as caught:
        published(source, out, **options)
    assert not out.is_file(), "nothing is written by a refusal"
    assert "\n" not in caught.value.sentence
    return caught.value.code


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    return make_tree(tmp_path / "tree")


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "model.manifest"


def test_a_manifest_says_what_was_asked_for(tree: Path, out: Path) -> None:
    targets = Targets(("r1",), ("gpu-*",))
    result, manifest = published(tree, out, version=7, priority=9, targets=targets, expires_s=1_900_000_000)
    assert (manifest.name, manifest.version, manifest.priority) == ("org/model", 7, 9)
    assert (manifest.created_s, manifest.expires_s, manifest.targets) == (1_790_000_000, 1_900_000_000, targets)
    assert [entry.path for entry in manifest.files] == sorted(TREE)
    assert manifest.sources == (f"file://{tree}/",)
    assert (result.deployment, result.root) == (manifest.id, manifest.root)
    assert (result.file_count, result.bytes_total) == (len(TREE), sum(TREE.values()))
    assert (result.chunk_bytes, result.chunk_count) == (CHUNK, manifest.chunk_count)
    assert result.manifest_bytes == out.stat().st_size
    assert not list(out.parent.glob(".*")), "no temporary file is left"


def test_the_chunk_size_follows_the_model_s_unless_it_is_given(tree: Path, out: Path) -> None:
    assert published(tree, out, chunk_bytes=None)[0].chunk_bytes == 256 * 1024
    assert code_of(tree, out.with_name("x"), chunk_bytes=100_000) == "E_CHUNK_LAYOUT"


def test_a_new_version_with_a_changed_config_shares_every_other_chunk(tree: Path, out: Path) -> None:
    _, old = published(tree, out)
    (tree / "config.json").write_text("{}" * 500)
    _, new = published(tree, out, version=2)
    large = old.layout.packed_chunk
    assert [old.digest(chunk) for chunk in range(large)] == [new.digest(chunk) for chunk in range(large)]
    assert old.digest(large) != new.digest(large)


def test_a_single_file_is_published_from_its_directory(tree: Path, out: Path) -> None:
    result, manifest = published(tree / "tokenizer" / "vocab.json", out)
    assert [entry.path for entry in manifest.files] == ["vocab.json"]
    assert result.sources == (f"file://{tree}/tokenizer/",)


def test_a_file_url_is_a_path(tree: Path, out: Path) -> None:
    assert published(f"file://{tree}", out)[1].root == published(tree, out)[1].root


def test_a_directory_with_an_odd_name_has_a_proper_address(tmp_path: Path, out: Path) -> None:
    odd = make_tree(tmp_path / "a b%20?#é", {"x": 1})
    assert published(odd, out)[1].sources == (f"file://{tmp_path}/a%20b%2520%3F%23%C3%A9/",)


def test_seeds_may_read_elsewhere(tree: Path, out: Path) -> None:
    sources = ("http://storage.example/m", "s3://bucket/m/")
    assert published(tree, out, sources=sources)[1].sources == ("http://storage.example/m/", "s3://bucket/m/")
    single = published(tree / "config.json", out, sources=("http://storage.example/m/config.json",))
    assert single[1].sources == ("http://storage.example/m/",)
    for wrong in ("storage.example/m", "http://user:pw@storage.example/", "http://storage.example/?key=x"):
        assert code_of(tree, out.with_name("x"), sources=(wrong,)) == "E_SOURCE_FORBIDDEN"


def test_a_web_server_s_directory_cannot_be_listed_and_the_way_round_is_named(tree: Path, out: Path) -> None:
    for url in ("http://storage.example/m/", "https://storage.example/m"):
        with pytest.raises(GossipdError, match=r"--source https?://HOST/PATH/") as caught:
            published(url, out)
        assert caught.value.code == "E_SOURCE_LISTING"


def test_names_paths_and_kinds_are_checked_before_anything_is_hashed(
    tree: Path, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unexpected(*_: object) -> bytes:
        raise AssertionError("hashed")

    monkeypatch.setattr(publisher, "hash_chunks", unexpected)
    assert code_of(tree, out, name="a/b/c") == "E_NAME"
    assert code_of(tree, out.parent / "nowhere" / "x") == "E_OUTPUT"
    (tree / "Config.json").write_text("x")
    assert code_of(tree, out) == "E_PATH_COLLISION"
    (tree / "Config.json").rename(tree / "model.part")
    assert code_of(tree, out) == "E_PATH_RESERVED"
    (tree / "model.part").rename(tree / "a\nb")
    assert code_of(tree, out) == "E_PATH_CHAR"


def test_names_that_differ_only_in_case_are_published_when_that_is_allowed(tree: Path, out: Path) -> None:
    assert published(tree, out, allow_case_collisions=True)[1].schema == 1, "there are none"
    (tree / "Config.json").write_text("x")
    with pytest.raises(GossipdError, match="--allow-case-collisions") as caught:
        published(tree, out)
    assert caught.value.code == "E_PATH_COLLISION"
    manifest = published(tree, out, allow_case_collisions=True)[1]
    assert manifest.case_matters and manifest.schema == 2
    assert {"Config.json", "config.json"} <= {entry.path for entry in manifest.files}
    (tree / "Tokenizer").mkdir()
    assert code_of(tree, out.with_name("x")) == "E_PATH_COLLISION", "an empty directory, too"
    (tree / "ﬁsh").write_text("x")
    (tree / "fish").write_text("x")
    assert code_of(tree, out.with_name("x"), allow_case_collisions=True) == "E_PATH_COLLISION", "one in NFKC"


@pytest.mark.parametrize("change", ["added", "removed", "written"])
def test_a_tree_that_changes_after_its_files_were_hashed_is_refused(
    tree: Path, out: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    real = LocalFiles.hash_extent

    def meddling(self: LocalFiles, run: FileExtent) -> bytes:
        digests = real(self, run)
        if run.segments[0].file_index == 1:
            if change == "added":
                (tree / "late").write_text("x")
            elif change == "removed":
                (tree / "tokenizer" / "empty").unlink()
            else:
                (tree / "tokenizer" / "empty").write_text("x")
        return digests

    monkeypatch.setattr(LocalFiles, "hash_extent", meddling)
    assert code_of(tree, out) == "E_SOURCE_CHANGED"


def test_nothing_but_a_file_gives_way_to_a_manifest(tree: Path, out: Path) -> None:
    os.mkfifo(out.parent / "pipe")
    (out.parent / "link").symlink_to("nowhere")
    for name in ("pipe", "link"):
        with pytest.raises(PublishError):
            write_whole(out.parent / name, b"")
        assert code_of(tree, out.parent / name) == "E_OUTPUT"
    assert (out.parent / "pipe").is_fifo() and (out.parent / "link").is_symlink()
    assert sorted(path.name for path in out.parent.iterdir() if path != tree) == ["link", "pipe"]


def test_an_older_manifest_of_that_name_is_replaced_whole_or_not_at_all(
    tree: Path, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    published(tree, out)
    old = out.read_bytes()
    monkeypatch.setattr("os.fsync", _full_disk)
    with pytest.raises(GossipdError, match="No space left") as caught:
        published(tree, out, version=2)
    assert caught.value.code == "E_OUTPUT"
    assert out.read_bytes() == old
    assert not list(out.parent.glob(".*"))


def _full_disk(descriptor: int) -> None:
    raise OSError(28, "No space left on device")


def test_it_is_signed_by_the_publisher_s_key(tree: Path, out: Path) -> None:
    assert published(tree, out)[1].signer == KEY.public.ed25519
