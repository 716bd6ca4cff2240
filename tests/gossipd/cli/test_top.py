"""``gossipd top`` against a socket: one frame where there is no terminal, keys where there is one."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from gossipd.cli.main import main
from gossipd.core.errors import ExitCode
from tests.gossipd.api.fake_daemon import FakeDaemon
from tests.gossipd.cli.daemons import running


def test_without_a_terminal_it_is_one_frame(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "s"
    with running(path, FakeDaemon()):
        assert main(["top", "--socket", str(path)]) == 0
        assert "RACK" in capsys.readouterr().out
        assert main(["top", "--json", "--socket", str(path)]) == 0
        told = json.loads(capsys.readouterr().out)
        assert main(["top", "--sort", "age", "--socket", str(path)]) == ExitCode.USAGE
    assert told["schema_version"] == 1
    assert (told["node"], list(told["peers"])) == ("node-1", ["aa" * 16])
    assert main(["top", "--socket", str(path)]) == ExitCode.DAEMON_UNREACHABLE


def test_on_a_terminal_s_sorts_and_q_quits_and_the_terminal_is_as_before(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with running(path, FakeDaemon()):
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        before = termios.tcgetattr(theirs)
        words = [sys.executable, "-m", "gossipd", "top", "--socket", str(path)]
        child = subprocess.Popen(
            words, stdin=theirs, stdout=theirs, stderr=theirs, env={**os.environ, "TERM": "xterm"}
        )  # fmt: skip
        seen = b""

        def until(what: Callable[[], bool]) -> None:
            nonlocal seen
            deadline = time.monotonic() + 120
            while not what() and time.monotonic() < deadline:
                seen += os.read(ours, 65536)

        until(lambda: b"sorted by in" in seen)
        os.write(ours, b"s")
        until(lambda: b"sorted by out" in seen)
        os.write(ours, b"q")
        assert child.wait(120) == 0
        assert termios.tcgetattr(theirs) == before
        os.close(theirs)
        os.close(ours)
