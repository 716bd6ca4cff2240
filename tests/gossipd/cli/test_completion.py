"""Names of deployments and hosts in a shell: asked of a daemon, through click and through a real bash."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gossipd.cli import completion
from gossipd.cli.main import main
from tests.gossipd.api.fake_daemon import FakeDaemon
from tests.gossipd.cli.daemons import running


def completed(path: Path, words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """What click offers for the last of ``words``."""
    monkeypatch.setenv("COMP_WORDS", f"gossipd {words}")
    monkeypatch.setenv("COMP_CWORD", str(len(f"gossipd {words}".split(" ")) - 1))
    monkeypatch.setenv("_GOSSIPD_COMPLETE", "bash_complete")
    monkeypatch.setenv("GOSSIPD_SOCKET", str(path))
    with pytest.raises(SystemExit):
        main([])
    return [line.partition(",")[2] for line in capsys.readouterr().out.splitlines() if line]


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("wait ", ["org/toy@3"]),
        ("wait org", ["org/toy@3"]),
        ("wait nothing", []),
        ("status ", ["org/toy", "org/toy@3"]),
        ("status org/toy@", ["org/toy@3"]),
        ("why org/toy@3 --host node-", ["node-1", "node-2", "node-3", "node-4"]),
        ("forget node-4", ["node-4"]),
        ("latest o", ["org/toy"]),
        ("rollback org/toy@", ["org/toy@3"]),
        ("publish . --targets ", ["rack=", "name="]),
        ("publish . --targets rack=", ["rack=r1", "rack=r0"]),
        ("publish . --targets rack=r0,name=node-4", ["rack=r0,name=node-4"]),
    ],
)
def test_names_are_completed_from_the_daemon(
    words: str, offered: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "s"
    monkeypatch.setattr(completion, "ASKED_S", 30.0)  # not how quick this machine is
    with running(path, FakeDaemon()):
        assert completed(path, words, monkeypatch, capsys) == offered


def test_without_a_daemon_nothing_is_offered_and_nothing_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert completed(tmp_path / "none", "wait ", monkeypatch, capsys) == []
    assert completed(tmp_path / "none", "wait --config /nothing/g.toml ", monkeypatch, capsys) == []
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("line", "reply"), [("gossipd wait ", "org/toy@3"), ("gossipd wait org/toy@", "3"), ("gossipd wai", "wait")]
)
def test_bash_completes_a_version_behind_the_at_sign(line: str, reply: str, tmp_path: Path) -> None:
    path = tmp_path / "s"
    script = subprocess.run(
        [sys.executable, "-m", "gossipd", "assets", "completion", "bash"], capture_output=True, text=True, check=True
    ).stdout
    (tmp_path / "gossipd").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m gossipd "$@"\n')
    (tmp_path / "gossipd").chmod(0o755)
    (tmp_path / "script").write_text(
        f'{script}\nCOMP_LINE="{line}" COMP_POINT={len(line)}\n_gossipd_completion gossipd\n'
        'printf "%s\\n" "${COMPREPLY[@]}"\n'
    )
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "GOSSIPD_SOCKET": str(path)}
    with running(path, FakeDaemon()):
        words = ["bash", "--norc", str(tmp_path / "script")]
        told = subprocess.run(words, capture_output=True, text=True, env=environment, timeout=60, check=False)
    assert (told.stdout.splitlines(), told.stderr) == ([reply], "")
