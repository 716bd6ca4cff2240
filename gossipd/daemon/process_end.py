"""The end of another process of this host, as the kernel tells it: a ``pidfd`` becomes readable.

What lives here: naming a process so that the name outlasts this daemon, and waiting. What does not: what follows.

A name is ``PID.BOOT``: no process of an earlier run of the kernel is taken for one of this. A number that was given to
another process while no daemon ran is; then that one is waited for, which is late and harms nothing. Rejected: looking
into ``/proc``, where a hardened unit sees its own user's processes alone and takes the others for ended.

A process that is out of sight, as from a container with process numbers of its own, has a name by chance, and is known
by a descriptor alone. A daemon that starts again has none: then it is never taken for ended.
"""

from __future__ import annotations

import os
import secrets

import trio

from gossipd.store.clock import Clock

_BOOT_CHARS = 8
_UNSEEN = "unseen"  # no boot has such a name: those are hexadecimal
_CHANCES = 10**9


def process_name(pid: int) -> str:
    """The name of a process, for as long as it lives. ``pid``: 0 is out of sight."""
    return f"{pid}.{_boot()}" if pid > 0 else f"{secrets.randbelow(_CHANCES) + 1}.{_UNSEEN}"


async def wait_process_end(name: str, descriptor: int | None = None) -> None:
    """Return when the process has ended; at once when it had. Where the kernel cannot tell, never. ``descriptor``: of
    the process, where that is known; it is closed."""
    pid, _, boot = name.partition(".")
    if descriptor is None and boot == _UNSEEN:
        await trio.sleep_forever()
    if descriptor is None and boot != _boot():
        return
    try:
        descriptor = os.pidfd_open(int(pid)) if descriptor is None else descriptor
    except (ProcessLookupError, OverflowError):  # a number of a damaged file, which no kernel has
        return
    except OSError:  # no descriptor is left, or the kernel has no such call
        await trio.sleep_forever()
        raise
    try:
        await trio.lowlevel.wait_readable(descriptor)
    finally:
        os.close(descriptor)


def _boot() -> str:
    return Clock().boot[:_BOOT_CHARS]
