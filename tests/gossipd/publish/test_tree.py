"""Which files make a model, and which make publishing stop."""

from __future__ import annotations

import errno
import os
import socket
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gossipd.core.errors import GossipdError
from gossipd.publish import tree as tree_module
from gossipd.publish.empty_directories import find_empty_directories
from gossipd.publish.selection import DEFAULT_EXCLUDES, Selection
from gossipd.publish.tree import find_files
from tests.gossipd.publish.trees import TREE, make_tree, published


def paths(root: Path, **patterns: tuple[str, ...]) -> list[str]:
    return [file.path for file in find_files(root, Selection(**patterns))]


def code_of(root: Path, **patterns: tuple[str, ...]) -> str:
    with pytest.raises(GossipdError) as caught:
        find_files(root, Selection(**patterns))
    return caught.value.code


def test_all_files_come_in_the_order_of_their_paths_hidden_ones_too(tmp_path: Path) -> None:
    make_tree(tmp_path)
    (tmp_path / ".gitattributes").write_text("x")
    assert paths(tmp_path) == sorted([*TREE, ".gitattributes"])


def test_one_file_is_a_model_too(tmp_path: Path) -> None:
    make_tree(tmp_path)
    assert paths(tmp_path / "config.json") == ["config.json"]


@pytest.mark.parametrize(
    ("include", "exclude", "found"),
    [
        (("*.json",), (), ["config.json", "tokenizer/vocab.json"]),
        (("tokenizer/*",), ("*/empty",), ["tokenizer/merges.txt", "tokenizer/vocab.json"]),
        (("tokenizer/",), (), ["tokenizer/empty", "tokenizer/merges.txt", "tokenizer/vocab.json"]),
        ((), ("tokenizer/", "model-*"), ["config.json"]),
        (("config.json",), ("*",), []),
        (("CONFIG.json",), (), []),
    ],
)
def test_patterns_choose(tmp_path: Path, include: tuple[str, ...], exclude: tuple[str, ...], found: list[str]) -> None:
    make_tree(tmp_path)
    if found:
        assert paths(tmp_path, include=include, exclude=exclude) == found
    else:
        assert code_of(tmp_path, include=include, exclude=exclude) == "E_EMPTY"


def test_what_tools_leave_is_left_out_by_default_at_any_depth_and_counted(tmp_path: Path) -> None:
    rubbish = [".git/config", "sub/.git/HEAD", ".cache/huggingface/download/m.incomplete", "__MACOSX/a", "x/.DS_Store"]
    make_tree(tmp_path, {"a": 1, ".gitattributes": 1, "my.git/a": 1} | dict.fromkeys(rubbish, 1))
    left_out: Counter[str] = Counter()
    found = find_files(tmp_path, Selection(defaults=DEFAULT_EXCLUDES, exclude=("x/",)), left_out)
    assert [file.path for file in found] == [".gitattributes", "a", "my.git/a"]
    assert left_out == {".git/": 2, "*.incomplete": 1, "__MACOSX/": 1}


def test_a_directory_is_left_out_as_a_whole_only_by_a_pattern_of_directories() -> None:
    selection = Selection(exclude=("a/", "b*", "*/c/"), defaults=(".git/", "*.part"))
    whole = ["a", "a/x", "x/c", "x/c/y", ".git", "x/.git/objects"]
    assert [path for path in [*whole, "b", "x", "ab", "my.git", "x.part"] if selection.leaves_out_below(path)] == whole


def test_links_pipes_and_sockets_are_refused_unless_left_out(tmp_path: Path) -> None:
    make_tree(tmp_path, {"a": 1})
    odd = tmp_path / "odd"
    makers: list[Callable[[], object]] = [
        lambda: odd.symlink_to("/nowhere"),
        lambda: odd.symlink_to("odd"),
        lambda: odd.symlink_to("/etc/hostname"),
        lambda: odd.symlink_to(tmp_path),
        lambda: os.mkfifo(odd),
        lambda: _listen(odd),
    ]
    for make in makers:
        make()
        assert code_of(tmp_path) == "E_FILE_TYPE"
        assert paths(tmp_path, exclude=("odd",)) == ["a"]
        odd.unlink()


def _listen(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))


def test_a_refused_link_says_what_to_do(tmp_path: Path) -> None:
    make_tree(tmp_path, {"tree/a": 1, "blobs/x": 1})
    link = tmp_path / "tree" / "model.safetensors"
    link.symlink_to("../blobs/x")
    with pytest.raises(GossipdError, match=r"model\.safetensors.*symbolic link.*hf download --local-dir"):
        find_files(tmp_path / "tree", Selection())
    (tmp_path / "blobs" / "x").unlink()
    with pytest.raises(GossipdError, match=r"model\.safetensors.*leads nowhere.*download was cut off"):
        find_files(tmp_path / "tree", Selection())


def make_cache(cache: Path) -> Path:
    """A repository as huggingface_hub lays it out, with a config that two revisions share; gives the newer snapshot."""
    repository = cache / "models--org--name"
    make_tree(repository / "blobs", {"b0": 700, "b1": 200_000, "b2": 5})
    for revision, files in {"old": {"config.json": "b0"}, "new": {"config.json": "b0", "x/model.bin": "b1"}}.items():
        for path, blob in files.items():
            link = repository / "snapshots" / revision / path
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to("/".join([".."] * (path.count("/") + 2)) + f"/blobs/{blob}")
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("new")
    return repository / "snapshots" / "new"


def test_a_snapshot_of_the_hub_s_cache_is_its_blobs(tmp_path: Path) -> None:
    snapshot = make_cache(tmp_path)
    assert [(file.path, file.size) for file in find_files(snapshot, Selection())] == [
        ("config.json", 700), ("x/model.bin", 200_000),
    ]  # fmt: skip
    assert paths(snapshot / "x") == ["model.bin"]
    assert paths(snapshot / "config.json") == ["config.json"]


@pytest.mark.parametrize("target", ["../../refs/main", "../../../models--org--other/blobs/b0", "/etc/hostname"])
def test_a_snapshot_s_link_to_anything_but_its_blobs_is_refused_by_name(tmp_path: Path, target: str) -> None:
    make_tree(tmp_path / "models--org--other" / "blobs", {"b0": 1})
    snapshot = make_cache(tmp_path)
    (snapshot / "token.json").symlink_to(target)
    with pytest.raises(GossipdError, match=r"token\.json.*leads out of the tree"):
        find_files(snapshot, Selection())


def test_a_whole_repository_of_the_cache_is_refused_and_a_revision_named(tmp_path: Path) -> None:
    repository = make_cache(tmp_path).parent.parent
    with pytest.raises(GossipdError, match=r"2 revisions; publish one of them, as in 'snapshots/new' below it"):
        find_files(repository, Selection())


@pytest.mark.parametrize(
    ("at", "name"),
    [
        ("home/hub", "'models--org--name'"),
        ("home", "'hub/models--org--name'"),
        ("home/hub/models--org--name/snapshots", ""),
    ],
)
def test_a_cache_that_holds_repositories_is_refused_and_a_revision_named(tmp_path: Path, at: str, name: str) -> None:
    make_cache(tmp_path / "home" / "hub")
    with pytest.raises(GossipdError, match=rf"{name} is a Hugging Face cache with 2 revisions; publish one of them"):
        find_files(tmp_path / at, Selection())


def test_a_directory_that_is_only_named_like_a_repository_is_published(tmp_path: Path) -> None:
    make_tree(tmp_path, {"models--org--name/config.json": 1})
    assert paths(tmp_path) == ["models--org--name/config.json"]


def test_a_link_inside_the_tree_is_the_file_it_leads_to(tmp_path: Path) -> None:
    make_tree(tmp_path, {"deep/a": 10})
    (tmp_path / "b").symlink_to("deep/c")
    (tmp_path / "deep" / "c").symlink_to("a")
    found = {file.path: (file.location, file.size) for file in find_files(tmp_path, Selection())}
    assert found == dict.fromkeys(("b", "deep/a", "deep/c"), ("deep/a", 10))


def test_the_directory_that_is_named_may_be_a_link(tmp_path: Path) -> None:
    make_tree(tmp_path / "7", {"a": 1})
    (tmp_path / "current").symlink_to("7")
    assert paths(tmp_path / "current") == ["a"]


def test_modes_are_those_of_git(tmp_path: Path) -> None:
    make_tree(tmp_path, {"plain": 1, "script": 1, "odd": 1})
    (tmp_path / "plain").chmod(0o600)
    (tmp_path / "script").chmod(0o711)
    (tmp_path / "odd").chmod(0o4644)
    assert {file.path: file.mode for file in find_files(tmp_path, Selection())} == {
        "plain": 0o644,
        "script": 0o755,
        "odd": 0o644,
    }


def test_what_is_not_there_or_empty_or_no_file_is_refused(tmp_path: Path) -> None:
    assert code_of(tmp_path / "nowhere") == "E_SOURCE_READ"
    assert code_of(tmp_path) == "E_EMPTY"
    assert code_of(Path("/dev/null")) == "E_FILE_TYPE"


@pytest.mark.parametrize(
    ("name", "code"),
    [
        (b"\xff.bin", "E_PATH_UNICODE"), (b"d\xff/x", "E_PATH_UNICODE"), (b"a\nb", "E_PATH_CHAR"),
        (b"x\\y'\"", "E_PATH_CHAR"), ("cafe\u0301".encode(), "E_PATH_UNICODE"), (b"x[1]*?", "E_PATH_CHAR"),
        (b"\xff" + b"y" * 100, "E_PATH_UNICODE"), (b"A.BIN", "E_PATH_COLLISION"), (b"con", "E_PATH_RESERVED"),
        (b"empty\xff/", "E_PATH_UNICODE"),
    ],
)  # fmt: skip
def test_a_name_that_no_manifest_takes_is_refused_with_a_pattern_that_leaves_it_out(
    tmp_path: Path, name: bytes, code: str
) -> None:
    tree, out = make_tree(tmp_path / "tree", {"a.bin": 10, "more": 10}), tmp_path / "out"
    path = os.fsencode(tree) + b"/" + name
    os.makedirs(os.path.dirname(path), exist_ok=True)
    if not name.endswith(b"/"):
        os.close(os.open(path, os.O_CREAT, 0o644))
    with pytest.raises(GossipdError) as caught:
        published(tree, out)
    assert caught.value.code == code
    pattern = caught.value.sentence.rpartition("--exclude ")[2].strip("'")
    _, manifest = published(tree, out, selection=Selection(exclude=(pattern,)))
    assert len(manifest.files) == 2


def test_what_is_left_out_as_a_whole_need_not_be_readable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``lost+found`` of a file system of the models' own is root's."""
    make_tree(tmp_path, {"a.bin": 10, "lost+found/x": 10, "/".join(["deep", *"d" * 60, "x"]): 10})
    scandir = os.scandir

    def refuse(path: str) -> Iterator[os.DirEntry[str]]:
        if str(path).endswith("lost+found"):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refuse)
    for find in (find_files, find_empty_directories):
        with pytest.raises(GossipdError, match=r": Permission denied$"):  # a long path is cut
            find(tmp_path, Selection(exclude=("deep/",)))
    chosen = Selection(exclude=("deep/",), defaults=("lost+found/",))
    assert [file.path for file in find_files(tmp_path, chosen)] == ["a.bin"]
    assert find_empty_directories(tmp_path, chosen) == ()


def test_too_many_files_are_refused_while_walking(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tree_module, "FILES_MAX", 5)
    make_tree(tmp_path)
    assert code_of(tmp_path) == "E_LIMIT"


def test_a_tree_without_end_is_refused(tmp_path: Path) -> None:
    make_tree(tmp_path, {"/".join("d" * 60) + "/file": 1})
    assert code_of(tmp_path) == "E_PATH_LENGTH"
