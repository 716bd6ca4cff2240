"""The environment of a daemon is read from the process that listens, or from the unit's file."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from gossipd.cli.daemon_environment import daemon_environment, environment_of_listener


def test_credentials_are_those_of_the_process_that_listens(tmp_path: Path) -> None:
    path = tmp_path / "s"
    listen = "import socket, sys; s = socket.socket(socket.AF_UNIX); s.bind(sys.argv[1]); s.listen(); print(flush=True)"
    process = subprocess.Popen(
        [sys.executable, "-c", f"{listen}; sys.stdin.read()", path], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        env={"AWS_ACCESS_KEY_ID": "theirs"},
    )  # fmt: skip
    with process:
        assert process.stdout is not None and process.stdout.readline()
        assert daemon_environment(path)["AWS_ACCESS_KEY_ID"] == "theirs"
        assert "HOME" not in daemon_environment(path)
        process.communicate()
    assert environment_of_listener(path) is None
    assert daemon_environment(path).get("HOME") == os.environ.get("HOME"), "its own, where no daemon runs"
