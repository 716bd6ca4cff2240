"""What ``wait`` says on a terminal while it waits; a script's log has none of it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from gossipd.cli.wait import CURRENT, REMOVED, progress_words
from tests.gossipd.api.fake_daemon import FakeDaemon
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
    assert progress_words("qwen@1", {**deployment(hosts), "version": 1}, CURRENT) == "qwen@1  current on 1/4 hosts"
    assert progress_words("qwen@1", deployment(hosts), REMOVED) == "qwen@1  removed from 1/4 hosts"


def waited(path: Path, stderr: int) -> None:
    words = [sys.executable, "-m", "gossipd", "wait", "org/toy@3", "--timeout", "0.1", "--socket", str(path)]
    assert subprocess.run(words, stderr=stderr, timeout=30, check=False).returncode == 5


def test_on_a_terminal_one_line_is_written_over_and_ended(tmp_path: Path) -> None:
    path = tmp_path / "gossipd.sock"
    with running(path, FakeDaemon()):
        ours, theirs = os.openpty()
        waited(path, theirs)
        os.close(theirs)
        text = os.read(ours, 65536).decode()
        os.close(ours)
        first, *rest = text.splitlines()
        assert "\r\x1b[Korg/toy@3  62.5 %  2/4 hosts" in first.replace("\r\r", "\r") or "62.5 %" in text
        assert any(line.startswith("E_TIMEOUT") for line in (first, *rest))


def test_a_log_file_has_only_the_end(tmp_path: Path) -> None:
    path = tmp_path / "gossipd.sock"
    with running(path, FakeDaemon()), (tmp_path / "log").open("wb") as log:
        waited(path, log.fileno())
    assert (tmp_path / "log").read_text().startswith("E_TIMEOUT")
