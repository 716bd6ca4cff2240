"""``gossipd watch``, as a process of its own beside a socket that is served later."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from gossipd.api.client import DaemonUnreachableError
from gossipd.cli.main import main
from gossipd.client import Client
from tests.gossipd.api.fake_daemon import FakeDaemon
from tests.gossipd.cli.daemons import guarded


def test_a_daemon_that_starts_later_is_told_of_and_waited_for(tmp_path: Path) -> None:
    (tmp_path / "run" / "step-7").mkdir(parents=True)
    (tmp_path / "run" / "step-7" / ".metadata").write_bytes(b"m")
    program = [sys.executable, "-m", "gossipd", "watch"]
    command = [*program, str(tmp_path / "run"), "--name", "m", "--socket", str(tmp_path / "s")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stderr is not None
            assert process.stderr.readline().endswith("; waiting for it\n")
            with guarded(tmp_path / "s", FakeDaemon()):
                assert process.stdout.readline().startswith("m@1  step-7  ")
        finally:
            process.kill()
    once = subprocess.run([*command, "--once"], capture_output=True, text=True, check=False)
    assert once.returncode == 4, once.stderr


def test_once_ends_with_the_code_of_a_step_that_was_refused(tmp_path: Path) -> None:
    (tmp_path / "run" / "step-7").mkdir(parents=True)
    (tmp_path / "run" / "step-7" / ".metadata").write_bytes(b"m")
    command = [sys.executable, "-m", "gossipd", "watch", str(tmp_path / "run"), "--name", "nothing", "--once"]
    with guarded(tmp_path / "s", FakeDaemon()):
        ended = subprocess.run([*command, "--socket", str(tmp_path / "s")], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout) == (3, ""), ended.stderr
    assert "step-7: E_NOT_FOUND: nothing is not deployed here" in ended.stderr


def test_once_ends_with_the_code_of_a_daemon_that_went_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def go_away(*_: object, **__: object) -> None:
        raise DaemonUnreachableError("the connection broke")

    (tmp_path / "run" / "step-7").mkdir(parents=True)
    (tmp_path / "run" / "step-7" / ".metadata").write_bytes(b"m")
    monkeypatch.setattr(Client, "publish", go_away)
    with guarded(tmp_path / "s", FakeDaemon()):
        assert main(["watch", str(tmp_path / "run"), "--name", "m", "--once", "--socket", str(tmp_path / "s")]) == 4


def test_a_directory_that_is_away_for_a_while_is_told_of_and_waited_for(tmp_path: Path) -> None:
    run = tmp_path / "run"

    def save(step: int) -> None:
        (run / f"step-{step}").mkdir(parents=True)
        (run / f"step-{step}" / ".metadata").write_bytes(b"m")

    save(7)
    command = [sys.executable, "-m", "gossipd", "watch", str(run), "--name", "m", "--socket", str(tmp_path / "s")]
    with (
        guarded(tmp_path / "s", FakeDaemon()),
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process,
    ):
        try:
            assert process.stdout is not None
            assert process.stderr is not None
            assert process.stdout.readline().split()[1] == "step-7"
            run.rename(tmp_path / "aside")
            assert process.stderr.readline() == f"{run}: No such file or directory; waiting for it\n"
            (tmp_path / "aside").rename(run)
            save(8)
            assert process.stdout.readline().split()[1] == "step-8"
        finally:
            process.kill()
    gone = subprocess.run([*command[:4], str(tmp_path / "typo"), *command[5:]], capture_output=True, text=True)
    assert gone.returncode == 3, gone.stderr
