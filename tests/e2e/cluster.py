"""Real daemons as processes on loopback, for tests: made with ``gossipd init``, asked over their status sockets.

What lives here: starting, stopping, killing, waiting with a deadline. Waiting looks every 50 ms, because another
process has no event to wait for; no test asserts on how long it took. What travels from one host to another, or from a
daemon's memory to its files, is waited for at the host that is asked: ``until`` it holds, not once.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from gossipd.api.client import StatusClient
from gossipd.cli.main import main
from tests.e2e.fork_server import ForkServer, Process, fork_server
from tests.servers import claim_port, free_port

LOOK_S = 0.05
PATIENCE_S = 180.0  # two cores that run eight daemons and the test, beside other work; a good run needs seconds
TOLD_S, TOLD_CHARS = 10.0, 4_000
PROGRAM = ("-m", "gossipd")
_fork_server: ContextVar[ForkServer | None] = ContextVar("fork server", default=None)


@contextmanager
def forking() -> Iterator[None]:
    """Daemons and commands of the block are forked, and need no second of imports. Not for what is measured."""
    with fork_server() as server:
        before = _fork_server.set(server)
        try:
            yield
        finally:
            _fork_server.reset(before)


def until(what: str, condition: Callable[[], Any], *, patience_s: float = PATIENCE_S) -> Any:
    """The first true value of ``condition``."""
    deadline = time.monotonic() + patience_s
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < deadline, f"not within {patience_s:g} s: {what}"
        time.sleep(LOOK_S)


def gossipd(
    *words: str | Path, check: bool = True, env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """One command, as a user runs it; in ``forking``, forked."""
    command, environment = [str(word) for word in words], {**os.environ, **(env or {})}
    server = _fork_server.get()
    if server is not None:
        done = server.run(command, environment=environment, timeout_s=PATIENCE_S)
    else:
        command = [sys.executable, "-m", "gossipd", *command]
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, env=environment)
    assert not check or done.returncode == 0, f"{words}: {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done


def wait_in_vain(daemon: Daemon, *words: str, seconds: int = 3) -> str:
    """What ``gossipd wait`` says when its time is over; asked again where the daemon has not answered in that time."""

    def said() -> str | None:
        done = gossipd("wait", *words, "--config", daemon.config, "--timeout", f"{seconds}s", check=False)
        assert done.returncode != 0, done.stderr
        return done.stderr if done.returncode == 5 and "has not answered" not in done.stderr else None

    told: str = until("a wait that ends by time", said)
    return told


def set_up(*words: str | Path) -> None:
    """One command in this process: the same code, without a second of imports for each host."""
    with contextlib.redirect_stdout(io.StringIO()) as out:
        code = main([str(word) for word in words])
    assert code == 0, f"{words}: {code}\n{out.getvalue()}"


class Daemon:
    """One host's directory, and its process while it runs."""

    def __init__(self, home: Path, name: str, rack: str, port: int, environment: dict[str, str]) -> None:
        self.home, self.name, self.rack, self.port = home, name, rack, port
        self.environment = environment
        self.process: Process | None = None
        self.client = StatusClient(home / "gossipd.sock", timeout_s=PATIENCE_S)

    @property
    def config(self) -> Path:
        return self.home / "gossipd.toml"

    def configure(self, **settings: str) -> None:
        """Set keys of its file, each of one section only; a daemon that runs has taken them when this returns."""
        text = self.config.read_text()
        for key, value in settings.items():
            text, count = re.subn(f"(?m)^#?{key} = .*", f"{key} = {value}", text)
            assert count == 1, f"{count} lines of {key} in {self.config}"
        self.config.write_text(text)
        if self.process is not None:
            set_up("reload", "--config", self.config)

    def start(self, program: tuple[str, ...] | None = None, python: str = sys.executable) -> None:
        """Its process: of that program of ``python``; without one, in ``forking``, forked."""
        assert self.process is None
        environment = {**os.environ, **self.environment}
        words = ["run", "--config", str(self.config)]
        server = _fork_server.get() if program is None and "LD_PRELOAD" not in environment else None
        with (self.home / "log").open("ab") as log:
            if server is not None:
                self.process = server.start(words, environment=environment, out=log.fileno(), err=log.fileno())
            else:
                command = [python, *(program or PROGRAM), *words]
                self.process = subprocess.Popen(command, stdout=log, stderr=log, env=environment)

    def wait_ready(self) -> None:
        until(f"{self.name} is ready", lambda: self.try_status() is not None)

    def try_status(self, name: str | None = None, version: int | None = None) -> dict[str, Any] | None:
        """None while nobody answers, or while the named deployment is unknown."""
        assert self.process is None or self.process.poll() is None, f"{self.name} ended:\n{self.log()[-4000:]}"
        with contextlib.suppress(Exception):
            return self.client.status(name, version)
        return None

    def deployment(self, name: str, version: int) -> dict[str, Any] | None:
        """The row of status, None while it is unknown here."""
        status = self.try_status(name, version) or {"deployments": []}  # all rows of a large cluster cost the daemon
        return next(iter(status["deployments"]), None)

    def kill(self) -> None:
        """SIGKILL: no goodbye, nothing flushed."""
        assert self.process is not None
        self.process.kill()
        self.process.wait(PATIENCE_S)
        self.process = None

    def stop(self) -> int:
        """SIGTERM; the exit code."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(PATIENCE_S)
        self.process = None
        return code

    def tree(self, name: str, version: int) -> Path:
        return self.home / "models" / name / str(version)

    def log(self) -> str:
        path = self.home / "log"
        return path.read_text(errors="replace") if path.exists() else ""


class Cluster:
    """Daemons that share a cluster key and trust one publisher."""

    def __init__(self, base: Path, *, environment: dict[str, str] | None = None) -> None:
        self.base = base
        # Where the machine has its temporary files is no business of most tests: many have them in memory.
        self.environment = {"GOSSIPD_STORE__ANY_FILE_SYSTEM": "true", **(environment or {})}
        self.daemons: dict[str, Daemon] = {}
        self.key = base / "publisher.key"
        set_up("keygen", self.key)

    def add(self, name: str, rack: str, **environment: str) -> Daemon:
        """A new host, not started; it joins through the first two."""
        home = self.base / name
        words: list[str | Path] = ["init", home, "--name", name, "--rack", rack, "--bind", "127.0.0.1"]
        port = free_port_pair()
        words += ["--port", str(port), "--trust", f"{self.key}.pub"]
        known = list(self.daemons.values())[:2]
        for other in known:
            words += ["--join", f"127.0.0.1:{other.port}"]
        if known:
            words += ["--cluster-key", known[0].home / "cluster.key"]
        set_up(*words)
        daemon = Daemon(home, name, rack, port, {**self.environment, **environment})
        self.daemons[name] = daemon
        return daemon

    def start(self, hosts: int, racks: int) -> None:
        """``node-1`` to ``node-N``, racks filled in turn, all seeing each other."""
        for number in range(1, hosts + 1):
            self.add(f"node-{number}", f"rack-{(number - 1) % racks + 1}").start()
        self.wait_together()

    def wait_together(self) -> None:
        running = [daemon for daemon in self.daemons.values() if daemon.process is not None]
        for daemon in running:
            daemon.wait_ready()
            until(f"{daemon.name} sees {len(running)}", lambda one=daemon: alive_count(one) >= len(running))  # type: ignore[misc]

    def __getitem__(self, number: int) -> Daemon:
        return self.daemons[f"node-{number}"]

    def publish(
        self, source: Path | str, name: str, version: int, *more: str, env: dict[str, str] | None = None
    ) -> Path:
        """A signed manifest in a file."""
        out = self.base / f"{name.replace('/', '-')}-{version}.gmf"
        words = ["publish", source, "--name", name, "--version", str(version), "--key", self.key, "--out", out, *more]
        gossipd(*words, env=env)
        return out

    def drop(self, manifest: Path, into: Daemon) -> None:
        """Copy it as a user would, not atomically."""
        shutil.copy(manifest, into.home / "inbox" / manifest.name)

    def wait_complete(self, name: str, version: int, *, at: Daemon, hosts: int) -> dict[str, Any]:
        """The row of status once that many hosts have it."""

        def complete() -> dict[str, Any] | None:
            row = at.deployment(name, version)
            return row if row is not None and row["hosts_complete"] >= hosts else None

        found: dict[str, Any] = until(f"{name}@{version} on {hosts} hosts, as {at.name} sees it", complete)
        return found

    def tell(self) -> None:
        """Print the status and the end of the log of every host: a fault that shows once must name its cause."""
        for daemon in self.daemons.values():
            print(f"== {daemon.name} ({daemon.rack}, port {daemon.port})")
            if daemon.process is not None and daemon.process.poll() is None:
                with contextlib.suppress(Exception):
                    told = StatusClient(daemon.home / "gossipd.sock", timeout_s=TOLD_S).status()
                    print(
                        json.dumps(
                            {key: told[key] for key in ("members", "deployments", "alarms", "warm") if key in told}
                        )
                    )
            print(daemon.log()[-TOLD_CHARS:])

    def close(self) -> None:
        for daemon in self.daemons.values():
            if daemon.process is not None:
                daemon.kill()


def alive_count(daemon: Daemon) -> int:
    status = daemon.try_status() or {"members": []}
    return sum(member["state"] == "alive" for member in status["members"])


@contextmanager
def cluster(base: Path, *, environment: dict[str, str] | None = None) -> Iterator[Cluster]:
    """Empty; whatever was started is killed at the end. A test that fails in it prints what every host knew."""
    base.mkdir(parents=True, exist_ok=True)
    made = Cluster(base, environment=environment)
    try:
        yield made
    except BaseException:
        made.tell()
        raise
    finally:
        made.close()


@contextmanager
def publishing_cluster(base: Path) -> Iterator[Cluster]:
    """Its daemons sign what a job publishes through them, with the cluster's publisher key."""
    with cluster(base, environment={"GOSSIPD_PUBLISH__KEYS": f'["{base}/publisher.key"]'}) as made:
        yield made


def free_port_pair() -> int:
    """A port that is free together with the next one, see ``free_port``."""
    while not claim_port((port := free_port()) + 1):
        pass
    return port


def whole_lines(path: Path) -> list[str]:
    """Of a file that a daemon appends to: of the last line perhaps only the beginning is there."""
    return path.read_text(errors="replace").rpartition("\n")[0].splitlines() if path.exists() else []


def same_tree(original: Path, copy: Path) -> bool:
    """Every file of ``original`` is in ``copy`` with the same bytes, and nothing else is."""

    def files(root: Path) -> dict[str, Path]:
        return {str(path.relative_to(root)): path for path in root.rglob("*") if path.is_file()}

    ours, theirs = files(original), files(copy)
    return ours.keys() == theirs.keys() and all(ours[name].read_bytes() == theirs[name].read_bytes() for name in ours)
