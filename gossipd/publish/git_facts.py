"""Which commit a publisher stands on, for the lineage of what it publishes (``publish --about-git``).

What lives here: asking git. What does not: the other fields of ``about`` (``manifest.annotations``). Passwords in the
remote's address are cut out.
"""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from gossipd.publish.errors import PublishError

_GIT_S = 30.0  # ``git status`` of a large tree on a slow disk


def git_facts(directory: Path) -> dict[str, Any]:
    """``repo`` (where there is a remote), ``commit`` and ``dirty``. Raises PublishError ``E_SOURCE_READ``: no git, or
    no repository."""
    commit = _git(directory, "rev-parse", "--verify", "HEAD")
    if commit is None:
        raise PublishError(f"--about-git: {directory} is in no git repository with a commit, or there is no git")
    facts: dict[str, Any] = {"commit": commit, "dirty": bool(_git(directory, "status", "--porcelain"))}
    if remote := _git(directory, "remote", "get-url", "origin"):
        facts["repo"] = _without_password(remote)
    return facts


def _git(directory: Path, *words: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", *words], cwd=directory, capture_output=True, text=True, timeout=_GIT_S, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def _without_password(remote: str) -> str:
    parts = urlsplit(remote)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2])) if "://" in remote else remote
