"""Processes that a hook leaves to process 1 are waited for, and those of the daemon's own parts are not."""

from __future__ import annotations

import os
import subprocess
import sys

PROGRAM = """
import ctypes, os, subprocess, time
from gossipd.daemon.orphans import Orphans, _ended_children

assert ctypes.CDLL(None).prctl(36, 1, 0, 0, 0) == 0  # PR_SET_CHILD_SUBREAPER: as process 1 is
subprocess.run(["sh", "-c", "(true &) ; (true &)"], check=True)
own = subprocess.Popen(["false"])
until_s = time.monotonic() + 60
while len(_ended_children()) < 3:
    assert time.monotonic() < until_s
    time.sleep(0.01)
orphans = Orphans()
orphans.look()
assert own.wait() == 1, "its own part waits for it"
assert len(_ended_children()) == 2
orphans.look()
assert _ended_children() == []
orphans.look()
"""


def test_what_nobody_waits_for_is_waited_for_at_the_second_look() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr


async def test_a_daemon_that_is_not_process_one_looks_after_nobody() -> None:
    from gossipd.daemon.orphans import Orphans

    assert os.getpid() != 1
    await Orphans().run()
