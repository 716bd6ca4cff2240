"""What ``wait`` says on a terminal while it waits; a script's log has none of it."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from gossipd.api.client import TIMEOUT_S, DaemonUnreachableError, StatusClient
from gossipd.cli.wait import WaitTimeoutError, progress_words, wait_for
from tests.gossipd.api.fake_daemon import FakeDaemon, toy_row
from tests.gossipd.cli.daemons import running
from tests.gossipd.cli.large_clusters import deployment, host


def test_the_line_says_how_far_and_what_holds_hosts_up() -> None:
    hosts = [host(0), host(1, state="downloading", chunks=512, reason="no_space"), host(2, reason="")]
    assert progress_words("qwen@1", deployment(hosts)) == (
        "qwen@1  83.3 %  2/3 hosts  3 GiB/s  2m 10s to go; 1 no_space"
    )
    assert progress_words("qwen@1", None) == "qwen@1  not known here yet"


def test_the_line_counts_where_users_are_led_and_where_it_is_gone() -> None:
    hosts = [{**host(number), "current": number % 2} for number in range(3)] + [host(3, state="removed")]
    assert progress_words("qwen@1", {**deployment(hosts), "version": 1}, "current") == "qwen@1  current on 1/4 hosts"
    assert progress_words("qwen@1", deployment(hosts), "removed") == "qwen@1  removed from 1/4 hosts"


def waited(path: Path, stderr: int) -> None:
    words = [sys.executable, "-m", "gossipd", "wait", "org/toy@3", "--timeout", "0.1", "--socket", str(path)]
    assert subprocess.run(words, stderr=stderr, timeout=120, check=False).returncode == 5


def test_on_a_terminal_one_line_is_written_over_and_ended(tmp_path: Path) -> None:
    path = tmp_path / "gossipd.sock"
    with running(path, FakeDaemon()):
        ours, theirs = os.openpty()
        waited(path, theirs)
        os.close(theirs)
        text = ""
        with contextlib.suppress(OSError):  # at its end; what was written comes in pieces
            while part := os.read(ours, 65536):
                text += part.decode()
        os.close(ours)
        first, *rest = text.splitlines()
        assert "\r\x1b[Korg/toy@3  62.5 %  2/4 hosts" in first.replace("\r\r", "\r") or "62.5 %" in text
        assert any(line.startswith("E_TIMEOUT") for line in (first, *rest))


def test_a_log_file_has_only_the_end(tmp_path: Path) -> None:
    path = tmp_path / "gossipd.sock"
    with running(path, FakeDaemon()), (tmp_path / "log").open("wb") as log:
        waited(path, log.fileno())
    assert (tmp_path / "log").read_text().startswith("E_TIMEOUT")


def test_the_time_is_up_also_while_no_daemon_is_there(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "gossipd", "wait", "a@1", "--timeout", "1.2s", "--socket", str(tmp_path / "none")]
    begun = time.monotonic()
    ended = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
    assert time.monotonic() - begun >= 1.2
    assert ended.returncode == 4
    assert ended.stderr.count("waiting for it") == 1


def test_a_daemon_that_hangs_does_not_hold_the_end_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As one that is stopped: the kernel takes the connection, and nobody answers."""
    monkeypatch.setattr("gossipd.api.client.LATE_S", 0.05)
    path = tmp_path / "gossipd.sock"
    with socket.socket(socket.AF_UNIX) as stopped:
        stopped.bind(str(path))
        stopped.listen()
        begun = time.monotonic()
        with pytest.raises(
            WaitTimeoutError, match=r"after 0.1 s the daemon at .* has not answered; it is busy, hangs or"
        ) as told:
            wait_for(StatusClient(path), ("org/toy", 3), "here", 0.1)
        assert time.monotonic() - begun < TIMEOUT_S / 2
        assert told.value.exit_code == 5


def test_a_daemon_that_went_away_is_told_beside_what_it_said_last(tmp_path: Path) -> None:
    class Leaving(StatusClient):
        def wait_round(self, *asked: Any, **options: Any) -> dict[str, Any]:
            if answers:
                return answers.pop()
            raise DaemonUnreachableError("nobody is there")

    answers = [{"ready": False, "sentence": "toy@3 is on 1 of 2 hosts", "deployment": {}}]
    with pytest.raises(WaitTimeoutError, match=r"toy@3 is on 1 of 2 hosts, as heard last; nobody is there"):
        wait_for(Leaving(tmp_path / "s"), ("org/toy", 3), "here", 0.05)


def test_the_line_goes_on_while_it_waits(tmp_path: Path) -> None:
    """Rounds are short on a terminal, so that what changes is seen."""
    path, daemon = tmp_path / "gossipd.sock", FakeDaemon(rows=[])
    with running(path, daemon):
        ours, theirs = os.openpty()
        words = [sys.executable, "-m", "gossipd", "wait", "org/toy@3", "--hosts", "3", "--socket", str(path)]
        with subprocess.Popen(words, stderr=theirs) as waiting:
            os.close(theirs)
            text = ""
            for seen, complete in (("not known here yet", 2), ("2/4 hosts", 3)):
                while seen not in text:
                    text += os.read(ours, 65536).decode()
                daemon.rows = [toy_row(complete)]
            assert waiting.wait(120) == 0
        os.close(ours)
