"""The end of another process of this host, as the kernel tells it: a ``pidfd`` that becomes readable.

What lives here: naming a process so that the name outlasts this daemon, and waiting. What does not: what follows.

A name is ``PID.BOOT``: no process of an earlier run of the kernel is taken for one of this. A number that was given to
another process while no daemon ran is; then that one is waited for, which is late and harms nothing. Rejected: looking
into ``/proc``, where a hardened unit sees its own user's processes alone and takes the others for ended.
"""

from __future__ import annotations

import os

import trio

from gossipd.store.clock import Clock

_BOOT_CHARS = 8


def process_name(pid: int) -> str:
    """The name of a process, for as long as it lives; empty for one that this daemon cannot see, as from a container
    that shares no process numbers with it (``pid`` 0)."""
    return f"{pid}.{_boot()}" if pid > 0 else ""


async def wait_process_end(name: str) -> None:
    """Return when the process has ended; at once when it had. Where the kernel cannot tell, never."""
    pid, _, boot = name.partition(".")
    if boot != _boot():
        return
    try:
        descriptor = os.pidfd_open(int(pid))
    except ProcessLookupError:
        return
    except OSError:  # no descriptor is left, or the kernel has no such call
        await trio.sleep_forever()
    try:
        await trio.lowlevel.wait_readable(descriptor)
    finally:
        os.close(descriptor)


def _boot() -> str:
    return Clock().boot[:_BOOT_CHARS]
