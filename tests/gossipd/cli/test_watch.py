"""``gossipd watch``, as a process of its own beside a socket that is served later."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

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
