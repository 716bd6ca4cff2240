"""Pages that the machine's host has backed, freed as a receiver takes others: the same for every system.

In a virtual machine the first touch of a page that the host has not backed costs more than everything that is measured
here (0.66 CPU seconds per GB written against 0.19), for the call that meets it. So as many pages as a receiver will
write are touched before it begins and given back to the kernel a little ahead of it. They are those of a file without
blocks that is read once, so that nothing has to be written back. Rejected: to give them back all at once (the kernel
tells the host of free pages within two seconds, and the host takes them); to hold them in a memfd (its small pages are
not what the file system takes next: nothing was won); to write that file (0.24 s per GB, and gigabytes of dirty pages
beside what is measured); to read the unwritten blocks of the receiver's file, which only a receiver of the benchmark's
own has before it begins, and which spares it the making of pages that daemons pay for.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryFile

LOOK_S = 0.01
BLOCK_BYTES = 8 << 20
AHEAD_BYTES = 256 << 20  # a quarter of a second of writing at 1 GB/s


@contextmanager
def backed_pages(directory: str, nbytes: int) -> Iterator[int]:
    """A file of so many bytes in the page cache."""
    with TemporaryFile(dir=directory, buffering=0) as file:
        file.truncate(nbytes)
        block = bytearray(BLOCK_BYTES)
        while file.readinto(block):
            pass
        yield file.fileno()


@contextmanager
def handed_over(descriptor: int, writers: Sequence[int], *, look_s: float = LOOK_S) -> Iterator[None]:
    """Free the pages of ``descriptor`` as the processes ``writers`` make others dirty.

    Args:
        look_s: how often they are looked at; a part of what they take to write ``AHEAD_BYTES``.
    """
    paths = [Path(f"/proc/{pid}/io") for pid in writers]
    whole = os.fstat(descriptor).st_size
    early = sum(map(_written_bytes, paths))
    stop = threading.Event()

    def hand_over() -> None:
        left = whole
        while not stop.wait(look_s):
            keep = max(0, whole - AHEAD_BYTES - sum(map(_written_bytes, paths)) + early)
            if keep <= left - BLOCK_BYTES:
                os.truncate(descriptor, keep)
                left = keep

    thread = threading.Thread(target=hand_over)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def _written_bytes(path: Path) -> int:
    try:
        lines = path.read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):  # it has ended
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("write_bytes")), 0)
