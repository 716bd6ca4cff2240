"""Which commit a publisher stands on, for the lineage of what it publishes (``publish --about-git``).

What lives here: asking git. What does not: the other fields of ``about`` (``manifest.annotations``). Passwords in the
remote's address are cut out.
"""

from __future__ import annotations

import os
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from gossipd.core.errors import UsageError

_GIT_S = 30.0  # ``git status`` of a large tree on a slow disk


def git_facts(directory: Path) -> dict[str, Any]:
    """``repo`` (where there is a remote), ``commit`` and ``dirty``. Raises UsageError: no git, no repository, none that
    git opens for this user, no commit, or no answer in time."""
    commit = _git(directory, "rev-parse", "--verify", "HEAD")
    facts: dict[str, Any] = {"commit": commit, "dirty": bool(_git(directory, "status", "--porcelain"))}
    with suppress(UsageError):
        facts["repo"] = _without_password(_git(directory, "remote", "get-url", "origin"))
    return facts


def _git(directory: Path, *words: str) -> str:
    try:
        done = subprocess.run(
            ["git", *words], cwd=directory, capture_output=True, text=True, timeout=_GIT_S, check=False,
            env={**os.environ, "LC_ALL": "C"},
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise UsageError(f"--about-git: git {words[0]} did not end within {_GIT_S:g} s in {directory}") from None
    except OSError as error:
        raise UsageError(f"--about-git: git cannot be run ({error.strerror}): install it, or use --about") from None
    if done.returncode:
        raise UsageError(f"--about-git: {_refusal(directory, done.stderr)}")
    return done.stdout.strip()


def _refusal(directory: Path, said: str) -> str:
    """Why git gave no answer, and what helps. Its own words are not shown: they hold addresses."""
    if "dubious ownership" in said:
        return f"{directory} is another user's: git config --global --add safe.directory DIRECTORY, of its repository"
    if "not a git repository" in said:
        return f"{directory} is in no git repository: run publish in one, or use --about"
    return f"the repository of {directory} has no commit that git can read: commit first, or use --about"


def _without_password(remote: str) -> str:
    parts = urlsplit(remote)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2])) if "://" in remote else remote
