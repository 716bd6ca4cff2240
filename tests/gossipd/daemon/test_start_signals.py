"""Signals before and after a daemon serves: none ends it by itself, and none is lost."""

from __future__ import annotations

import subprocess
import sys

import pytest

SCRIPT = """
import os, signal, sys
from gossipd.daemon import start_signals

start_signals.hold()
os.kill(os.getpid(), getattr(signal, sys.argv[1]))
print("lives", flush=True)
taken = []
note = lambda number, frame: taken.append(number)
before = {one: signal.signal(one, note) for one in (signal.SIGTERM, signal.SIGHUP)}
start_signals.release()
print("took", *map(int, taken), flush=True)
for one, handler in before.items():
    signal.signal(one, handler)
os.kill(os.getpid(), signal.SIGHUP)
print("served", flush=True)
"""


def lines(name: str) -> tuple[int, list[str]]:
    """Exit code and output of a process that gets a signal while it starts."""
    ended = subprocess.run(
        [sys.executable, "-c", SCRIPT, name], capture_output=True, text=True, timeout=120, check=False
    )
    assert not ended.stderr
    return ended.returncode, ended.stdout.splitlines()


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT"])
def test_a_process_that_still_starts_ends_with_zero(name: str) -> None:
    assert lines(name) == (0, [])


def test_a_reload_waits_until_the_daemon_takes_it_and_is_ignored_afterwards() -> None:
    assert lines("SIGHUP") == (0, ["lives", "took 1", "served"])
