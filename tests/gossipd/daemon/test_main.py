"""How a daemon that cannot run ends, as a process: its cause is in the log and the exit code, however slow the end."""

from __future__ import annotations

import subprocess
import sys

import pytest

SCRIPT = """
import contextlib, sys, time
from types import SimpleNamespace
import trio
from zmq import ZMQError
from gossipd.daemon import main
from gossipd.core.errors import LocalError
from gossipd.runtime.worker_threads import run_blocking
from gossipd.store.errors import StoreLockedError, StoreModeError

cause = {"mode": StoreModeError("the store's directory belongs to another user"),
         "locked": StoreLockedError("another daemon uses the store"),
         "zmq": ZMQError(24),
         "system": OSError(28, "No space left on device", "state/boot")}[sys.argv[1]]

class App:
    def __init__(self, config, keys, nursery):
        self.reports = SimpleNamespace(bugs=None)

    @contextlib.asynccontextmanager
    async def serving(self, *, ending):
        try:
            async with trio.open_nursery():
                await trio.sleep(0.01)
                raise cause
            yield
        finally:
            ending()
            if sys.argv[2] == "hangs":
                await run_blocking(time.sleep, 60)
            if sys.argv[2] == "fails":
                raise LocalError("the end failed, too")

main.App, main.STOP_S = App, 0.3 if sys.argv[2] == "hangs" else 60.0
log, node = SimpleNamespace(format="text", level="info"), SimpleNamespace(name="a")
main.load_checked = lambda path: (SimpleNamespace(log=log, node=node), None)
sys.exit(main.main("x"))
"""


READY = """
import contextlib, gc, signal, sys
from types import SimpleNamespace
from gossipd.daemon import main

class App:
    def __init__(self, config, keys, nursery):
        self.reports = SimpleNamespace(bugs=None)

    @contextlib.asynccontextmanager
    async def serving(self, *, ending):
        signal.raise_signal(signal.SIGTERM)
        yield
        print("frozen", gc.get_freeze_count(), flush=True)
        ending()

main.App = App
node, net = SimpleNamespace(name="a", rack="r"), SimpleNamespace(port=1)
settings = SimpleNamespace(log=SimpleNamespace(format="text", level="info"), node=node, net=net)
main.load_checked = lambda path: (settings, None)
sys.exit(main.main("x"))
"""


STARTS = """
import contextlib, signal, sys, time
from types import SimpleNamespace
import trio
from gossipd.daemon import main
from gossipd.runtime.worker_threads import run_blocking

class App:
    def __init__(self, config, keys, nursery):
        self.reports = SimpleNamespace(bugs=None)
        self.reloader = SimpleNamespace(reload=self.reload)

    async def reload(self):
        print("reloads", flush=True)
        signal.raise_signal(signal.SIGTERM)
        await (trio.sleep_forever() if sys.argv[1] == "reload" else trio.sleep(0))

    @contextlib.asynccontextmanager
    async def serving(self, *, ending):
        try:
            if sys.argv[1] in ("waits", "blocks"):
                signal.raise_signal(signal.SIGTERM)
                await (trio.sleep_forever() if sys.argv[1] == "waits" else run_blocking(time.sleep, 60))
            signal.raise_signal(signal.SIGHUP)
            yield
        finally:
            ending()
            print("closed", flush=True)

main.App, main.STOP_S = App, 60.0 if sys.argv[1] in ("waits", "serves") else 0.3
node, net = SimpleNamespace(name="a", rack="r"), SimpleNamespace(port=1)
settings = SimpleNamespace(log=SimpleNamespace(format="text", level="info"), node=node, net=net)
main.load_checked = lambda path: (settings, None)
sys.exit(main.main("x"))
"""


CHECKS_SLOWLY = """
import functools, io, sys, time
from pathlib import Path
from gossipd.core.errors import LocalError
from gossipd.daemon import main

words = sys.stderr = io.StringIO()

def load_checked(path):
    until_s = time.monotonic() + 20
    while not words.getvalue() and time.monotonic() < until_s:
        time.sleep(0.001)
    raise LocalError("that is all")

main.load_checked = load_checked
main.told_if_slow = functools.partial(main.told_if_slow, wait_s=0.01)
main.main("x.toml")
print(words.getvalue())
"""


def test_a_start_whose_directories_do_not_answer_a_first_look_says_so() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", CHECKS_SLOWLY], capture_output=True, text=True, timeout=120, check=False
    )
    waits, ends, *_ = ended.stdout.splitlines()
    assert waits.startswith("the start waits for ") and "/x.toml" in waits and "; cure: " in waits
    assert "that is all" in ends


@pytest.mark.parametrize(
    ("at", "code", "said", "closes"),
    [
        ("waits", 0, "stopped", True),
        ("serves", 0, "stopped", True),
        ("blocks", 1, "not stopped in time", False),
        ("reload", 1, "not stopped in time", False),
    ],
)
def test_a_signal_ends_a_start_or_a_reload_that_would_last(at: str, code: int, said: str, closes: bool) -> None:
    ended = subprocess.run([sys.executable, "-c", STARTS, at], capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == code, ended.stdout + ended.stderr
    lines = ended.stdout.splitlines()
    assert said in ended.stdout + ended.stderr
    assert ("closed" in lines) == closes
    assert ("reloads" in lines) == (at in ("serves", "reload"))


def test_no_collection_of_garbage_goes_through_what_the_start_has_made() -> None:
    ended = subprocess.run([sys.executable, "-c", READY], capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    [count] = [int(line.split()[1]) for line in ended.stdout.splitlines() if line.startswith("frozen ")]
    assert count > 10_000


@pytest.mark.parametrize("end", ["well", "hangs", "fails"])
@pytest.mark.parametrize(
    ("cause", "code", "words"),
    [
        ("mode", 2, "E_STORE_MODE"),
        ("locked", 3, "E_STORE_LOCKED"),
        ("system", 1, "state/boot: No space left on device"),
        ("zmq", 1, "E_HANDLES"),
    ],
)
def test_a_start_that_fails_names_its_first_cause_though_its_end_is_slow_or_fails_too(
    end: str, cause: str, code: int, words: str
) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", SCRIPT, cause, end], capture_output=True, text=True, timeout=120, check=False
    )
    assert ended.returncode == code, ended.stdout + ended.stderr
    said = ended.stdout + ended.stderr
    assert said.count(words) == 1
    assert "Traceback" not in said
    assert ("not stopped in time" in said) == (end == "hangs")


def test_a_start_under_too_low_limits_is_refused_before_it_opens_anything() -> None:
    lower = "import resource\nresource.setrlimit(resource.RLIMIT_NOFILE, (40, 40))\nsys.exit("
    script = READY.replace("sys.exit(", lower)
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == 2
    assert "E_HANDLES" in ended.stderr and "40 descriptors" in ended.stderr
    assert "frozen" not in ended.stdout
