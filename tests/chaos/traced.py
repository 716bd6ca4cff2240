"""Children that strace kills or refuses at their n-th system call, many a second.

A child is forked from a process that has everything imported, stops itself, is attached to, and goes on: a tenth of
the cost of starting Python under strace each time. strace counts each system call by itself (``when=5`` of two kinds is
the fifth of either), so kinds are gone through one by one; the child has one thread, so that the n-th call
is the same call in every run.

The parent must not have started threads (BLAKE3 on all cores starts some): checks run in children too.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

# Every call with which the store changes what is on the disk, and those with which it looks for it.
CHANGING = (
    "pwrite64", "fdatasync", "fsync", "renameat", "renameat2", "openat2", "unlinkat", "mkdirat", "symlinkat",
    "ftruncate", "fallocate", "fchmod", "copy_file_range",
)  # fmt: skip


@dataclass(frozen=True)
class Outcome:
    """How a child ended: killed by strace, or with an exit code; what it wrote to its error output."""

    was_killed: bool
    code: int
    said: str


def run_traced(
    body: Callable[[], object], injection: str | None, *, summary: Path | None = None, kill_after_s: float | None = None
) -> Outcome:
    """Run ``body`` in a child under ``strace -e inject=<injection>``; None runs it freely, ``""`` only watched.

    Args:
        summary: where strace writes how often each call was made.
        kill_after_s: send SIGKILL after so long, if it is still there.
    """
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reader)
        _become_child(body, writer, stop=injection is not None)
    os.close(writer)
    tracer = _attach(pid, injection, summary) if injection is not None else None
    if kill_after_s is not None:
        select.select([reader], [], [], kill_after_s)  # readable when the child has ended
        os.kill(pid, signal.SIGKILL)  # our child until it is waited for, dead or alive
    with os.fdopen(reader, "rb") as pipe:
        said = pipe.read().decode(errors="replace")
    _, status = os.waitpid(pid, 0)
    if tracer is not None:
        tracer.wait()
        assert tracer.stderr is not None
        tracer.stderr.close()
    if os.WIFSIGNALED(status):
        return Outcome(os.WTERMSIG(status) == signal.SIGKILL, 128 + os.WTERMSIG(status), said)
    return Outcome(False, os.WEXITSTATUS(status), said)


def _become_child(body: Callable[[], object], writer: int, *, stop: bool) -> None:
    code = 1
    try:
        if stop:
            os.kill(os.getpid(), signal.SIGSTOP)
        body()
        code = 0
    except BaseException:  # noqa: BLE001 (told to the parent, whatever it is)
        os.write(writer, traceback.format_exc()[-4000:].encode())
    finally:
        sys.stdout.flush()
        os._exit(code)


def _attach(pid: int, injection: str, summary: Path | None) -> subprocess.Popen[bytes]:
    os.waitpid(pid, os.WUNTRACED)
    command = ["strace", "-f", "-p", str(pid), "-e", f"trace={','.join(CHANGING)}"]
    command += ["-e", f"inject={injection}"] if injection else []
    command += ["-c", "-o", str(summary)] if summary is not None else ["-o", "/dev/null"]
    tracer = subprocess.Popen(command, stderr=subprocess.PIPE)
    assert tracer.stderr is not None
    said = tracer.stderr.readline()
    assert b"attached" in said, said
    os.kill(pid, signal.SIGCONT)
    return tracer
