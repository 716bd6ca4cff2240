"""One program of the operator, from its start to its end or its abandonment.

What lives here: the process, its bounds, and how it failed in words. What does not: which one runs, and when
(``hook_queue``), and for what (``hooks``).

The fact goes to its standard input; its standard output is dropped. Of what it says on standard error the last
``SAID_BYTES_MAX`` are kept, however much it writes. What it leaves running may go on, but a pipe that such a child
still holds is closed ``REST_S`` after the program's end. A program that is not over in time is killed with its session.
One that even then does not end (it has become root by sudo, or waits for a dead file server) is left alone: neither the
next hook nor the daemon's own end waits for it. There are at most ``ABANDONED_MAX`` of those; while they live, no other
program is started.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Sequence
from contextlib import suppress

import trio
from msgspec import Struct

SAID_BYTES_MAX = 2000  # a traceback's last frames; one record of the log
ABANDONED_MAX = 4
REST_S = 0.2
KILL_S = 2.0  # for the kernel; a process that can be killed needs milliseconds
_READ_BYTES = 65_536
_READ_S = 0.01  # after each read: one that writes without end waits, and the daemon goes on


class ProgramEnd(Struct, frozen=True):
    """``trouble``: how it failed; None is success. ``said``: the end of what it wrote to standard error."""

    trouble: str | None
    said: str = ""


class HookPrograms:
    """Runs one program after the other."""

    def __init__(self) -> None:
        self.abandoned: list[trio.Process] = []
        """Not ended when they were looked at last."""

    async def run(self, command: Sequence[str], fact: bytes, timeout_s: float) -> ProgramEnd:
        """Run one program to its end, or kill it ``timeout_s`` after its start."""
        self.abandoned = [process for process in self.abandoned if process.returncode is None]
        if len(self.abandoned) >= ABANDONED_MAX:
            numbers = ", ".join(str(process.pid) for process in self.abandoned)
            return ProgramEnd(f"{command[0]} was not started: earlier programs cannot be killed ({numbers})")
        try:
            process = await trio.lowlevel.open_process(
                command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            return ProgramEnd(f"{command[0]}: {error.strerror or error}")
        said = bytearray()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_tell, process, fact)
            nursery.start_soon(_listen, process, said)
            trouble = await self._end_of(process, timeout_s)
            nursery.cancel_scope.deadline = trio.current_time() + REST_S
        words = said.decode(errors="replace").strip()
        return ProgramEnd(None if trouble is None else f"{command[0]} {trouble}", words)

    async def _end_of(self, process: trio.Process, timeout_s: float) -> str | None:
        """Wait until it has ended or is abandoned, also where the daemon ends; how it failed."""
        try:
            with trio.move_on_after(timeout_s):
                code = await process.wait()
                return f"ended with {code}" if code else None
        finally:
            if process.returncode is None:
                with suppress(ProcessLookupError, PermissionError):
                    os.killpg(process.pid, signal.SIGKILL)
                with trio.move_on_after(KILL_S, shield=True):
                    await process.wait()
            if process.returncode is None:
                self.abandoned.append(process)
        after = f"did not end within {timeout_s:g} s and"
        return f"{after} cannot be killed" if process.returncode is None else f"{after} was killed"


async def _tell(process: trio.Process, fact: bytes) -> None:
    assert process.stdin is not None
    async with process.stdin as stream:
        with suppress(trio.BrokenResourceError):  # it need not read
            await stream.send_all(fact)


async def _listen(process: trio.Process, said: bytearray) -> None:
    assert isinstance(process.stderr, trio.lowlevel.FdStream)
    async with process.stderr as stream:
        while part := await stream.receive_some(_READ_BYTES):
            said += part
            del said[:-SAID_BYTES_MAX]
            await trio.sleep(_READ_S)
