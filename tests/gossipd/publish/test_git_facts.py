"""Which commit a publisher stands on, asked of a real repository."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from gossipd.core.errors import UsageError
from gossipd.publish.git_facts import git_facts


def git(directory: Path, *words: str) -> str:
    named = ("-c", "user.name=a", "-c", "user.email=a@b")
    return subprocess.run(["git", *named, *words], cwd=directory, check=True, capture_output=True, text=True).stdout


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    git(tmp_path, "init", "-q")
    (tmp_path / "train.py").write_text("1")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "first")
    return tmp_path


def test_a_clean_commit_is_named_without_a_remote(repository: Path) -> None:
    assert git_facts(repository) == {"commit": git(repository, "rev-parse", "HEAD").strip(), "dirty": False}


def test_a_changed_file_makes_it_dirty_and_passwords_are_cut_out(repository: Path) -> None:
    (repository / "train.py").write_text("2")
    git(repository, "remote", "add", "origin", "https://me:secret@git.example:8443/x.git")
    facts = git_facts(repository)
    assert facts["dirty"] is True
    assert facts["repo"] == "https://git.example:8443/x.git"


def said_of(directory: Path) -> str:
    with pytest.raises(UsageError, match="--about-git") as caught:
        git_facts(directory)
    return str(caught.value)


def test_what_is_missing_is_said_with_what_helps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "is in no git repository: run publish in one" in said_of(tmp_path)
    git(tmp_path, "init", "-q")
    assert "commit first" in said_of(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "git cannot be run (No such file or directory): install it" in said_of(tmp_path)


def test_a_repository_of_another_user_is_told_as_that(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")
    assert "safe.directory" in said_of(repository)


def test_a_tree_that_git_cannot_look_through_is_not_told_as_clean(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (repository / ".git" / "index").write_bytes(b"no index")
    assert "--about" in said_of(repository)
