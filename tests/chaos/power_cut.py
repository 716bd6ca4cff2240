"""Power cuts of a real store on a real ext4 file system, by copying what its disk holds.

``python -m tests.chaos.power_cut [--images N] [--json]`` (as root). A store works on an ext4 image behind a loop
device, with its threads and its windows; at random moments its process is stopped and the image's file is copied:
that is what the disk would hold if the power failed now, as what only the page cache has is not in it. The copy is
mounted (ext4 replays its journal), a store is started on it as after a reboot, and its claims are compared with every
byte.

``committed_lost`` counts chunks that were durable by the store's word and are not held; ``false_claims`` chunks that
are held and wrong; ``visible_partial`` versions that users see and that are not whole. ``lost_bytes_max`` is what
one cut cost, ``unsynced_bytes_max`` the most the store had written and not yet synced, which bounds it. A copy
during which the loop device was written to is not a moment in time: it is thrown away and taken again.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from gossipd.core.ids import SOURCE
from gossipd.store.settings import MIB, StoreSettings
from tests.chaos.store_workload import judge, make_models, open_store
from tests.gossipd.store.small_models import Model

IMAGE_BYTES = 96 * MIB
SETTINGS = StoreSettings(reserve_bytes=0, scrub_bytes_per_s=0, window_s=0.2, window_bytes=MIB)
QUIET_S = 0.01  # nothing reached the device for so long: what the stop had interrupted is over
PACE_S = 0.001  # between two chunks, so that a round has some windows


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.power_cut", description=__doc__)
    parser.add_argument("--images", type=int, default=120)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--directory", default=None, help="where the images are; not in memory, if that matters to you")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--live", nargs=2, metavar=("ROOT", "DIARY"), help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.live:
        live_for_ever(Path(options.live[0]), Path(options.live[1]))
    row = run(options.images, options.seed, options.directory)
    print(json.dumps(row) if options.json else "\n".join(f"{name:20} {value}" for name, value in row.items()))
    return 1 if row["false_claims"] or row["committed_lost"] or row["visible_partial"] or row["problems"] else 0


def _models() -> tuple[Model, Model]:
    return make_models(shard_chunks=60, shards=3)


def live_for_ever(root: Path, diary: Path) -> None:
    """The process that is stopped: deliver two versions, remove them, again; every step goes into the diary."""
    models = _models()
    random = Random()
    with diary.open("ab", buffering=0) as book:
        store = open_store(root, background=True, settings=SETTINGS)
        while True:
            for model in models:
                version = model.manifest.version
                held = store.open(model.manifest)
                order = [chunk for chunk in range(len(model.chunks)) if chunk not in held]
                random.shuffle(order)
                for chunk in order:
                    store.put(model.manifest.id, chunk, model.chunks[chunk], SOURCE, 0.0)
                    unsynced = sum(one.uncommitted_bytes for one in store.statistics().models.values())
                    book.write(f"put {version} {chunk} {unsynced}\n".encode())
                    if random.random() < 0.03:
                        book.write(b"committing\n")
                        store.commit()
                        book.write(b"committed\n")
                    time.sleep(PACE_S)
                store.finish(model.manifest.id)
                book.write(f"finished {version}\n".encode())
            book.write(b"removing\n")
            store.remove("m", 2)
            store.remove("m", 1)
            book.write(b"removed\n")


@dataclass
class Diary:
    """What the process had been told by its store when it was stopped."""

    written: dict[int, set[int]] = field(default_factory=lambda: {1: set(), 2: set()})
    committed: dict[int, set[int]] = field(default_factory=lambda: {1: set(), 2: set()})
    is_removing: bool = False
    unsynced_bytes: int = 0

    @classmethod
    def read(cls, text: str, models: tuple[Model, Model]) -> Diary:
        """Of all rounds, the last one counts."""
        diary, before = cls(), cls()
        for line in text.splitlines():
            words = line.split()
            if words[0] == "put":
                diary.written[int(words[1])].add(int(words[2]))
                diary.unsynced_bytes = int(words[3])
            elif words[0] == "committing":
                before.written = {version: set(chunks) for version, chunks in diary.written.items()}
            elif words[0] == "committed":
                diary.committed = {
                    version: chunks | diary.committed[version] for version, chunks in before.written.items()
                }
            elif words[0] == "finished":
                model = models[int(words[1]) - 1]
                diary.committed[int(words[1])] = set(range(len(model.chunks)))
            elif words[0] == "removing":
                diary = cls(is_removing=True)
            elif words[0] == "removed":
                diary = cls()
        return diary


def run(images: int, seed: int, directory: str | None) -> dict[str, object]:
    """The row."""
    begun = time.monotonic()
    totals = {"images": 0, "false_claims": 0, "committed_lost": 0, "visible_partial": 0}
    lost_bytes_max = unsynced_bytes_max = copies_thrown_away = 0
    problems: list[str] = []
    random = Random(seed)
    models = _models()
    with tempfile.TemporaryDirectory(prefix="gossipd-power-", dir=directory) as name:
        work = Path(name)
        with _working_store(work) as (process, device):
            while totals["images"] < images:
                time.sleep(random.uniform(0.02, 0.25))
                # A file of its own: a loop device that was let go a moment ago shows what it had of the last one.
                copy = work / f"copy-{totals['images'] + copies_thrown_away}.img"
                text = _cut(process, device, work, copy)
                if text is None:
                    copies_thrown_away += 1
                    copy.unlink()
                    continue
                diary = Diary.read(text, models)
                with _mounted(copy, work / "copy") as root:
                    shutil.rmtree(root / "lost+found")
                    verdict = judge(
                        root / "models",
                        models,
                        killed=False,
                        written=diary.written,
                        committed={} if diary.is_removing else diary.committed,
                    )
                copy.unlink()
                totals["images"] += 1
                totals["false_claims"] += verdict.false_claims
                totals["committed_lost"] += verdict.requested_again
                totals["visible_partial"] += verdict.visible_partial
                problems += verdict.problems
                if not diary.is_removing:
                    lost_bytes_max = max(lost_bytes_max, verdict.lost_bytes)
                    unsynced_bytes_max = max(unsynced_bytes_max, diary.unsynced_bytes)
                    if verdict.lost_bytes > diary.unsynced_bytes:
                        problems.append(f"lost {verdict.lost_bytes} bytes, {diary.unsynced_bytes} were not synced")
    return {
        **totals,
        "lost_bytes_max": lost_bytes_max,
        "unsynced_bytes_max": unsynced_bytes_max,
        "copies_thrown_away": copies_thrown_away,
        "problems": problems[:10],
        "seconds": round(time.monotonic() - begun, 1),
    }


@contextmanager
def _working_store(work: Path) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    image = work / "disk.img"
    with image.open("wb") as file:
        file.truncate(IMAGE_BYTES)
    subprocess.run(["mkfs.ext4", "-q", "-F", image], check=True)
    with _mounted(image, work / "disk") as root:
        (root / "models").mkdir(mode=0o700)
        (work / "diary").touch()
        device = subprocess.run(
            ["findmnt", "-n", "-o", "SOURCE", root], check=True, capture_output=True, text=True
        ).stdout.strip()
        command = [sys.executable, "-m", "tests.chaos.power_cut", "--live", str(root / "models"), str(work / "diary")]
        process = subprocess.Popen(command)
        try:
            while not (work / "diary").stat().st_size:
                assert process.poll() is None, "the store's process ended"
                time.sleep(0.01)
            yield process, Path(device).name
        finally:
            process.send_signal(signal.SIGCONT)
            process.kill()
            process.wait()


@contextmanager
def _mounted(image: Path, at: Path) -> Iterator[Path]:
    at.mkdir(exist_ok=True)
    subprocess.run(["mount", "-o", "loop", image, at], check=True)
    try:
        yield at
    finally:
        subprocess.run(["umount", at], check=True)


def _cut(process: subprocess.Popen[bytes], device: str, work: Path, copy: Path) -> str | None:
    """Stop the process, copy the disk, let it go on; the diary, or None when the copy is not of one moment."""
    assert process.poll() is None, "the store's process ended"
    process.send_signal(signal.SIGSTOP)
    try:
        written = _bytes_written(device)
        while True:
            time.sleep(QUIET_S)
            now = _bytes_written(device)
            if now == written:
                break
            written = now
        subprocess.run(["cp", "--sparse=always", work / "disk.img", copy], check=True)
        return (work / "diary").read_text() if _bytes_written(device) == written else None
    finally:
        process.send_signal(signal.SIGCONT)


def _bytes_written(device: str) -> tuple[int, int]:
    """Sectors written to the loop device, and requests in flight."""
    words = Path(f"/sys/block/{device}/stat").read_text().split()
    return int(words[6]), int(words[8])


if __name__ == "__main__":
    os.environ.setdefault("PATH", "")
    os.environ["PATH"] += ":/usr/sbin:/sbin"  # mkfs
    sys.exit(main())
