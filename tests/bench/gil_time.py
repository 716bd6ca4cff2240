"""How long processes hold their interpreter's lock: py-spy looks at them from outside, hundreds of times a second.

What lives here: one look of whole seconds at several processes. What does not: when to look (``pair_systems.daemons``).
Nothing is added to the processes and none is stopped, so a look at the lock and one at the stack may not belong
together; only the first one counts. Rejected: CPU time by thread, because hashing, encryption and system calls run
without the lock.
"""

from __future__ import annotations

import shutil
import subprocess
import sysconfig
from collections.abc import Sequence
from pathlib import Path

RATE_HZ = 400


class GilTimeError(Exception):
    """py-spy is not there or could not look, or the delivery was over before. Fault: the machine, or the model's size.
    Retry: corrected."""


def held_shares(pids: Sequence[int], directory: Path, *, seconds: int) -> list[float]:
    """Of each process, the share of the next ``seconds`` in which one of its threads held the lock. ``directory``: for
    what py-spy writes. Raises GilTimeError."""
    program = shutil.which("py-spy", path=sysconfig.get_path("scripts")) or shutil.which("py-spy")
    if program is None:
        raise GilTimeError("py-spy is not installed: pip install 'gossipd[bench]'")
    looks = []
    for pid in pids:
        command = [program, "record", "--gil", "--nonblocking", "--rate", str(RATE_HZ), "--duration", str(seconds)]
        told = directory / f"gil-{pid}.raw"
        command += ["--format", "raw", "--output", str(told), "--pid", str(pid)]
        looks.append((told, subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)))
    shares = []
    for told, process in looks:
        _, complaint = process.communicate(timeout=60 + seconds)
        if process.returncode:
            raise GilTimeError(f"py-spy ended with {process.returncode}: {complaint[-400:]}")
        shares.append(_samples(told) / (RATE_HZ * seconds))
    return shares


def _samples(told: Path) -> int:
    """All looks that found the lock held: a line has a stack, and how often it was seen."""
    return sum(int(line.rpartition(" ")[2]) for line in told.read_text().splitlines())
