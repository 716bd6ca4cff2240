"""Environment and limits of a daemon are read from the process that listens; else from the unit's file, and our own."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

from gossipd.cli.daemon_environment import daemon_environment, environment_of_listener, process_of_listener
from gossipd.cli.host_readings import limits_of_daemon


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
        assert process_of_listener(path) == process.pid
        resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (77, 77))
        assert limits_of_daemon(path)["descriptors_max"] == 77
        process.communicate()
    assert environment_of_listener(path) is None
    assert process_of_listener(path) is None
    assert limits_of_daemon(path)["descriptors_max"] == resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    assert daemon_environment(path).get("HOME") == os.environ.get("HOME"), "its own, where no daemon runs"
