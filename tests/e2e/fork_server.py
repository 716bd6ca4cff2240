"""Daemons and commands without the imports that each would begin with: forked from one process that has done them.

What lives here: that process, and what it forks as children of this one. What does not: what a daemon is given
(``cluster``). A forked daemon is a process like any other, with its own arguments, environment and log; that the
command starts by itself is shown where ``Daemon.start`` is told the program.

A daemon is made this process's own child, so that its end can be waited for: the process between the server and it ends
at once, while this one takes orphans in (``PR_SET_CHILD_SUBREAPER``).
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from gossipd.cli.main import main as gossipd_main

_PR_SET_CHILD_SUBREAPER = 36
_REQUEST_BYTES_MAX = 1 << 20
_LOOK_S = 0.01
_STOP_SECONDS_MAX = 120.0


class Process(Protocol):
    """What tests do with a daemon's process; ``subprocess.Popen`` is one."""

    @property
    def pid(self) -> int: ...
    def poll(self) -> int | None: ...
    def send_signal(self, sig: int, /) -> None: ...
    def kill(self) -> None: ...
    def wait(self, timeout: float | None = None) -> int: ...


class ForkedProcess:
    """A child that this process has not started."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._code: int | None = None

    def poll(self) -> int | None:
        """The exit code, negative for a signal; None while it runs."""
        if self._code is None:
            ended, status = os.waitpid(self.pid, os.WNOHANG)
            if ended:
                self._code = os.waitstatus_to_exitcode(status)
        return self._code

    def send_signal(self, sig: int, /) -> None:
        if self.poll() is None:
            os.kill(self.pid, sig)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def wait(self, timeout: float | None = None) -> int:
        """The exit code. Raises ``subprocess.TimeoutExpired``."""
        deadline = time.monotonic() + (timeout if timeout is not None else float("inf"))
        while (code := self.poll()) is None:
            if time.monotonic() >= deadline:
                raise subprocess.TimeoutExpired(str(self.pid), timeout or 0.0)
            time.sleep(_LOOK_S)
        return code


class ForkServer:
    """The other end of the process that forks."""

    def __init__(self, server: socket.socket) -> None:
        self._server = server
        self._lock = threading.Lock()
        self._prctl = ctypes.CDLL(None, use_errno=True).prctl

    def start(self, words: Sequence[str], *, environment: Mapping[str, str], out: int, err: int) -> ForkedProcess:
        """``gossipd`` with these words and this environment; ``out`` and ``err`` are descriptors."""
        request = json.dumps({"words": list(words), "environment": dict(environment), "directory": str(Path.cwd())})
        with self._lock:
            assert self._prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0
            try:
                socket.send_fds(self._server, [request.encode()], [out, err])
                answer = self._server.recv(64)
            finally:
                self._prctl(_PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)
        assert answer, "the server has ended"
        return ForkedProcess(int(answer))

    def run(
        self, words: Sequence[str], *, environment: Mapping[str, str], timeout_s: float
    ) -> subprocess.CompletedProcess[str]:
        """The same to its end, as ``subprocess.run`` does with a command."""
        with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
            process = self.start(words, environment=environment, out=out.fileno(), err=err.fileno())
            try:
                code = process.wait(timeout_s)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                raise
            out.seek(0)
            err.seek(0)
            return subprocess.CompletedProcess(list(words), code, out.read(), err.read())


@contextmanager
def fork_server() -> Iterator[ForkServer]:
    """A server for the block; daemons may live longer."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        command = [sys.executable, "-m", "tests.e2e.fork_server", str(theirs.fileno())]
        root = Path(__file__).parents[2]
        nothing = subprocess.DEVNULL
        process = subprocess.Popen(command, cwd=root, stdin=nothing, stdout=nothing, pass_fds=[theirs.fileno()])
        theirs.close()
        try:
            yield ForkServer(ours)
        finally:
            ours.close()
            process.wait(_STOP_SECONDS_MAX)


def main(descriptor: int) -> int:
    """Serve until the other end is closed; in each daemon, be the daemon. The exit code of either."""
    _import_all()
    with socket.socket(fileno=descriptor) as client:
        while True:
            message, printed, _, _ = socket.recv_fds(client, _REQUEST_BYTES_MAX, 2)
            if not message:
                return 0
            daemon = _fork_orphan()
            if daemon == 0:
                break
            for one in printed:
                os.close(one)
            client.send(str(daemon).encode())
    return gossipd_main(_become(json.loads(message), printed))


def _import_all() -> None:
    importlib.import_module("gossipd.daemon.main")
    gc.collect()
    gc.freeze()  # else the first full collection in each daemon copies every page
    assert len(os.listdir("/proc/self/task")) == 1, "a fork takes one thread with it"


def _fork_orphan() -> int:
    """A process without a parent; 0 in it."""
    told, tells = os.pipe()
    between = os.fork()
    if between == 0:
        orphan = os.fork()
        if orphan:
            os.write(tells, str(orphan).encode())
            os._exit(0)
        os.close(told)
        os.close(tells)
        return 0
    os.close(tells)
    os.waitpid(between, 0)
    orphan = int(os.read(told, 64))
    os.close(told)
    return orphan


def _become(request: dict[str, Any], printed: Sequence[int]) -> list[str]:
    """Take over what ``exec`` would have set; the command's words."""
    for at, descriptor in enumerate(printed, 1):
        os.dup2(descriptor, at)
        os.close(descriptor)
    os.environ.clear()
    os.environ.update(request["environment"])
    time.tzset()
    os.chdir(request["directory"])
    words: list[str] = request["words"]
    sys.argv[1:] = words
    return words


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
