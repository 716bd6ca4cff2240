"""``gossipd web`` as a process: where it listens, what it refuses, how it ends."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from urllib.request import urlopen

import pytest

from tests.gossipd.web.unix_daemon import status_of, unix_daemon


def start(*words: str | Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "gossipd", "web", *map(str, words)]
    return subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM])
def test_it_says_where_it_is_asks_the_read_socket_only_and_ends_at_a_signal(
    tmp_path: Path, ending: signal.Signals
) -> None:
    with unix_daemon(tmp_path / "gossipd-read.sock", {"/v1/status?hosts_max=0": status_of(2, 1)}) as daemon:
        process = start("--socket", tmp_path / "gossipd.sock", "--listen", "127.0.0.1:0")
        try:
            assert process.stderr is not None
            line = process.stderr.readline()
            assert line.startswith("the page is at http://127.0.0.1:")
            with urlopen(line.split()[-1] + "page/status", timeout=120) as answer:
                assert b"gpu-0000" in answer.read()
            assert daemon.asked == ["/v1/status?hosts_max=0"]
            process.send_signal(ending)
            assert process.wait(120) == 0
        finally:
            process.kill()
            process.communicate()


def test_an_open_address_without_protection_is_wrong_usage(tmp_path: Path) -> None:
    process = start("--socket", tmp_path / "s", "--listen", "0.0.0.0:0")
    _, said = process.communicate(timeout=120)
    assert process.returncode == 2
    assert said.startswith("E_USAGE: --listen 0.0.0.0: others could read the page there; give --tls-cert")
