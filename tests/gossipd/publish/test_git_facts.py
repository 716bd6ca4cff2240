"""Which commit a publisher stands on, asked of a real repository."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from gossipd.publish.errors import PublishError
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


def test_no_repository_is_said(tmp_path: Path) -> None:
    with pytest.raises(PublishError, match="--about-git"):
        git_facts(tmp_path)
