"""Which files make a model, and which make publishing stop."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from gossipd.core.errors import GossipdError
from gossipd.publish import tree as tree_module
from gossipd.publish.selection import Selection
from gossipd.publish.tree import find_files
from tests.gossipd.publish.trees import TREE, make_tree


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


def test_links_pipes_and_sockets_are_refused_unless_left_out(tmp_path: Path) -> None:
    make_tree(tmp_path, {"a": 1})
    odd = tmp_path / "odd"
    makers: list[Callable[[], object]] = [
        lambda: odd.symlink_to("a"),
        lambda: odd.symlink_to("/nowhere"),
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
    (tmp_path / "model.safetensors").symlink_to("../blobs/x")
    with pytest.raises(GossipdError, match=r"model\.safetensors.*symbolic link.*hf download --local-dir"):
        find_files(tmp_path, Selection())


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


def test_a_name_that_is_not_utf_8_is_refused(tmp_path: Path) -> None:
    os.close(os.open(os.fsencode(tmp_path) + b"/\xff", os.O_CREAT, 0o644))
    assert code_of(tmp_path) == "E_PATH_UNICODE"


def test_too_many_files_are_refused_while_walking(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tree_module, "FILES_MAX", 5)
    make_tree(tmp_path)
    assert code_of(tmp_path) == "E_LIMIT"


def test_a_tree_without_end_is_refused(tmp_path: Path) -> None:
    make_tree(tmp_path, {"/".join("d" * 60) + "/file": 1})
    assert code_of(tmp_path) == "E_PATH_LENGTH"
