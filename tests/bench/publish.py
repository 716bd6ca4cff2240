"""Publishing beside hashing alone: how much of the machine's BLAKE3 speed a publisher gets.

``python -m tests.bench.publish [--gb 2] [--repeat 5] [--cold] [--json]``. Each repetition publishes a Hugging Face
style tree (walk, lay out, hash every chunk, look again, sign, write durably) and hashes the same files with blake3
alone in two ways: each file with ``update_mmap`` on all cores, and a file per core. ``reference_gbytes_per_s`` is the
faster of the two, so the bar is the harder one. Files are in page cache, or with ``--cold`` dropped from it before each
run. ``ratio_reference`` is the median over repetitions of the ratio within one repetition; ``rss_bytes`` is the peak
after the first, mapped pages of the files counted in.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from blake3 import blake3

from gossipd.identity.keys import SecretKey
from gossipd.publish.publisher import PublishOrder, publish

SHARDS = 5  # not a multiple of the cores: the last files must not leave a core idle
SMALL_FILES = 12  # config, tokenizer and so on
BLOCK_BYTES = 16 << 20


class _Unwatched:
    def found(self, file_count: int, bytes_total: int) -> None: ...

    def hashed(self, count: int) -> None: ...


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.publish", description=__doc__)
    parser.add_argument("--gb", type=float, default=2.0, help="size of the tree in GB")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--cold", action="store_true", help="drop the files from the page cache before each run")
    parser.add_argument("--directory", default=None, help="where the tree is made")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="gossipd-publish-", dir=options.directory) as root:
        result = measure(Path(root), int(options.gb * 1e9), options.repeat, cold=options.cold)
    if options.json:
        print(json.dumps(result))
        return
    for name, value in result.items():
        print(f"{name:28} {value:.4g}" if isinstance(value, float) else f"{name:28} {value}")


def measure(root: Path, bytes_total: int, repeat: int, *, cold: bool) -> dict[str, float | int | bool]:
    """The row, from a tree that is made for it."""
    tree = root / "tree"
    files = make_tree(tree, bytes_total)
    size = sum(file.stat().st_size for file in files)
    systems: dict[str, Callable[[], None]] = {
        "gossipd": lambda: _publish(tree, root / "out.manifest"),
        "all cores": lambda: _hash_each_on_all_cores(files),
        "file per core": lambda: _hash_one_per_core(files),
    }
    seconds: dict[str, list[float]] = {name: [] for name in systems}
    rss_bytes = 0
    for _ in range(repeat):
        for name, system in systems.items():
            if cold:
                _drop(files)
            began = time.perf_counter()
            system()
            seconds[name].append(time.perf_counter() - began)
            rss_bytes = rss_bytes or resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    best = [min(pair) for pair in zip(seconds["all cores"], seconds["file per core"], strict=True)]
    ratios = [reference / own for own, reference in zip(seconds["gossipd"], best, strict=True)]
    return {
        "bytes": size,
        "files": len(files),
        "cores": len(os.sched_getaffinity(0)),
        "cold": cold,
        "seconds": statistics.median(seconds["gossipd"]),
        "gbytes_per_s": size / statistics.median(seconds["gossipd"]) / 1e9,
        "reference_gbytes_per_s": size / statistics.median(best) / 1e9,
        "ratio_reference": statistics.median(ratios),
        "rss_bytes": rss_bytes,
    }


def make_tree(tree: Path, bytes_total: int) -> list[Path]:
    """Shards of unequal size and a handful of small files, durable, so that no write-back runs meanwhile."""
    (tree / "tokenizer").mkdir(parents=True)
    block = os.urandom(BLOCK_BYTES)
    files = []
    for index in range(SHARDS):
        files.append(tree / f"model-{index + 1:05d}-of-{SHARDS:05d}.safetensors")
        left = bytes_total * (index + 8) // sum(range(8, 8 + SHARDS))
        with files[-1].open("wb") as file:
            while left:
                left -= file.write(block[: min(left, BLOCK_BYTES)])
            os.fsync(file.fileno())
    for index in range(SMALL_FILES):
        files.append(tree / "tokenizer" / f"part-{index}.json")
        files[-1].write_bytes(block[: 10_000 * (index + 1)])
    return files


def _publish(tree: Path, out: Path) -> None:
    order = PublishOrder(
        source=str(tree), name="bench", version=1, secret=SecretKey(bytes(32)), out=out, created_s=1_700_000_000
    )
    publish(order, _Unwatched())


def _hash_each_on_all_cores(files: Sequence[Path]) -> None:
    for file in files:
        blake3(max_threads=blake3.AUTO).update_mmap(file).digest()


def _hash_one_per_core(files: Sequence[Path]) -> None:
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        for _ in pool.map(lambda file: blake3().update_mmap(file).digest(), files):
            pass


def _drop(files: Sequence[Path]) -> None:
    for file in files:
        descriptor = os.open(file, os.O_RDONLY)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


if __name__ == "__main__":
    main()
