"""A real store whose disk refuses at every n-th call, and writes less than it was asked to.

``python -m tests.chaos.disk_errors [--stride N] [--json]``. strace makes the n-th call of each kind fail with ENOSPC,
EIO, EROFS or EMFILE, once, or every one from the n-th to the tenth after it; the process must go on by itself to
the end of its work and every byte must be right. Short writes come from a library that is loaded before libc and
lets ``pwrite64`` write a part, at each call in turn and at every call. A point fails when the process ends, hangs,
needs a restart or publishes a wrong byte.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from tests.chaos.store_workload import make_models, open_store, persist
from tests.chaos.traced import run_traced
from tests.gossipd.store.small_models import Model

# Which refusals a call can meet. A probe's own calls are refused like any others.
REFUSED = {
    "pwrite64": ("ENOSPC", "EIO", "EROFS"),
    "fdatasync": ("EIO", "ENOSPC"),
    "fsync": ("EIO",),
    "fallocate": ("ENOSPC", "EIO"),
    "openat2": ("EMFILE", "EROFS", "EIO"),
    "renameat": ("ENOSPC", "EIO", "EROFS"),
    "renameat2": ("ENOSPC", "EIO", "EROFS"),
    "mkdirat": ("ENOSPC", "EROFS"),
    "symlinkat": ("ENOSPC",),
    "unlinkat": ("EIO",),
    "ftruncate": ("EIO", "ENOSPC"),
    "copy_file_range": ("ENOSPC", "EIO"),
}
_SHIM = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <unistd.h>
static long calls, short_at = -1;
void short_writes_from(long at) { calls = 0; short_at = at; }
static ssize_t some(int fd, const void *body, size_t size, off_t at) {
    static ssize_t (*real)(int, const void *, size_t, off_t);
    if (!real) real = (ssize_t (*)(int, const void *, size_t, off_t))dlsym(RTLD_NEXT, "pwrite64");
    long number = ++calls;
    if (size > 1 && short_at >= 0 && (short_at == 0 || number == short_at)) size = size / 3 + 1;
    return real(fd, body, size, at);
}
ssize_t pwrite64(int fd, const void *body, size_t size, off_t at) { return some(fd, body, size, at); }
ssize_t pwrite(int fd, const void *body, size_t size, off_t at) { return some(fd, body, size, at); }
"""


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.disk_errors", description=__doc__)
    parser.add_argument("--stride", type=int, default=1, help="only every n-th point")
    parser.add_argument("--shard-chunks", type=int, default=4)
    parser.add_argument("--directory", default="/dev/shm")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    if "GOSSIPD_TEST_SHIM" not in os.environ:
        return _again_with_shim(sys.argv[1:] if arguments is None else list(arguments))
    row = run(Path(options.directory), options.stride, options.shard_chunks)
    print(json.dumps(row) if options.json else "\n".join(f"{name:20} {value}" for name, value in row.items()))
    return 1 if row["processes_that_failed"] else 0


def _again_with_shim(arguments: list[str]) -> int:
    """Run this module again with the library that writes short loaded first."""
    with tempfile.TemporaryDirectory(prefix="gossipd-shim-") as directory:
        library = Path(directory) / "shim.so"
        subprocess.run(
            ["gcc", "-shared", "-fPIC", "-O2", "-x", "c", "-", "-o", library, "-ldl"], input=_SHIM.encode(), check=True
        )
        environment = {**os.environ, "LD_PRELOAD": str(library), "GOSSIPD_TEST_SHIM": str(library)}
        return subprocess.run([sys.executable, "-m", "tests.chaos.disk_errors", *arguments], env=environment).returncode


def run(directory: Path, stride: int, shard_chunks: int) -> dict[str, object]:
    """The row."""
    models = make_models(shard_chunks=shard_chunks, shards=2)
    begun = time.monotonic()
    by_fault: dict[str, int] = {}
    failures: list[str] = []
    for fault, point in [*_refusals(directory, models, stride), *_short_writes(directory, models, stride)]:
        by_fault[fault] = by_fault.get(fault, 0) + 1
        problem = point()
        if problem:
            failures.append(problem)
    return {
        "points": sum(by_fault.values()),
        "by_fault": by_fault,
        "processes_that_failed": len(failures),
        "problems": failures[:10],
        "seconds": round(time.monotonic() - begun, 1),
    }


def _refusals(directory: Path, models: tuple[Model, Model], stride: int) -> Iterator[tuple[str, Callable[[], str]]]:
    # A daemon whose disk refuses when it starts does not start, and says why: points come after that.
    at_start = count_calls(directory, open_store)
    counts = count_calls(directory, lambda root: persist(root, models))
    for call, errors in REFUSED.items():
        first = at_start[call] + 1
        for error in errors:
            for number in range(first, counts[call] + 1, stride):
                yield error, _point(directory, models, f"{call}:error={error}:when={number}")
            for number in range(first, counts[call] + 1, 5 * stride):
                yield (
                    f"{error} for a while",
                    _point(directory, models, f"{call}:error={error}:when={number}..{number + 10}"),
                )


def _short_writes(directory: Path, models: tuple[Model, Model], stride: int) -> Iterator[tuple[str, Callable[[], str]]]:
    count = count_calls(directory, lambda root: persist(root, models))["pwrite64"]
    for number in [0, *range(1, count + 1, stride)]:
        yield "short write", _short_point(directory, models, number)


def _point(directory: Path, models: tuple[Model, Model], injection: str | None) -> Callable[[], str]:
    def run_point() -> str:
        root = Path(tempfile.mkdtemp(prefix="gossipd-errors-", dir=directory))
        try:
            outcome = run_traced(lambda: persist(root, models), injection)
        finally:
            shutil.rmtree(root)
        return f"{injection}: {outcome.said[-600:]}" if outcome.code else ""

    return run_point


def _short_point(directory: Path, models: tuple[Model, Model], number: int) -> Callable[[], str]:
    def run_point() -> str:
        root = Path(tempfile.mkdtemp(prefix="gossipd-short-", dir=directory))

        def body() -> None:
            ctypes.CDLL(None).short_writes_from(ctypes.c_long(number))
            persist(root, models)

        try:
            outcome = run_traced(body, None)
        finally:
            shutil.rmtree(root)
        return f"short write {number}: {outcome.said[-600:]}" if outcome.code else ""

    return run_point


def count_calls(directory: Path, body: Callable[[Path], object]) -> dict[str, int]:
    """How often ``body`` makes each call without faults, by strace's own count."""
    root = Path(tempfile.mkdtemp(prefix="gossipd-count-", dir=directory))
    summary = root / "summary"
    (root / "store").mkdir()
    try:
        outcome = run_traced(lambda: body(root / "store"), "", summary=summary)
        assert not outcome.code, outcome.said
        counts = dict.fromkeys(REFUSED, 0)
        for line in summary.read_text().splitlines():
            words = line.split()
            if words and words[-1] in counts:
                counts[words[-1]] = int(words[3])
        return counts
    finally:
        shutil.rmtree(root)


if __name__ == "__main__":
    sys.exit(main())
