"""What it costs to judge a manifest that is at a limit, or beyond it, signed by a trusted publisher.

``python -m tests.bench.manifest_cost [--only LIMIT] [--json]``. Each limit has a process of its own, which judges as a
daemon does: in a worker thread, beside an event loop that wants to turn every millisecond. ``cpu_s`` is the whole
process's; ``memory_over_size_bytes`` the peak of its resident memory over what it had before, so without the envelope;
``lag_max_s`` by how much the loop was late at most. ``outcome`` is ``accepted`` or the code of the refusal.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgpack
import trio

from gossipd.daemon.manifest_judging import judge_manifest
from gossipd.identity.keys import SecretKey
from gossipd.manifest.chunk_layout import CHUNK_BYTES_MIN, CHUNKS_MAX, Layout
from gossipd.manifest.envelope import seal
from gossipd.manifest.errors import ManifestError
from gossipd.manifest.manifest import ENVELOPE_TYPE
from gossipd.manifest.paths import DEPTH_MAX, DIRECTORIES_MAX, FOLDED_CHARS_MAX
from gossipd.manifest.payload import CUTS_BYTES_MAX, DIGEST_BYTES, FILES_BYTES_MAX, FILES_MAX, FileEntry, root_hash
from gossipd.manifest.tensor_index import INFLATED_BYTES_MAX, TENSORS_MAX, Tensor, pack_index

PUBLISHER = SecretKey(b"a seed that signs for benches...")
_MODE = 0o644
_TICK_S = 0.001
Files = list[list[Any]]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.manifest_cost", description=__doc__)
    parser.add_argument("--only", choices=sorted(LIMITS))
    parser.add_argument("--judge", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    if options.judge is not None:
        print(json.dumps(measured(options.judge)))
        return
    with tempfile.TemporaryDirectory(prefix="gossipd-manifest-") as directory:
        for name in [options.only] if options.only else LIMITS:
            path = Path(directory, name)
            path.write_bytes(seal(ENVELOPE_TYPE, LIMITS[name](), [PUBLISHER]))
            done = subprocess.run(
                [sys.executable, "-m", "tests.bench.manifest_cost", "--judge", path], stdout=subprocess.PIPE, check=True
            )
            result = {"limit": name, **json.loads(done.stdout)}
            print(json.dumps(result) if options.json else " ".join(f"{key}={value}" for key, value in result.items()))


def measured(path: Path) -> dict[str, str | int | float]:
    """The row of one envelope, judged in this process."""
    envelope = path.read_bytes()
    return trio.run(_judged, envelope)


async def _judged(envelope: bytes) -> dict[str, str | int | float]:
    lag_max_s = 0.0

    async def turn() -> None:
        nonlocal lag_max_s
        while True:
            due = time.perf_counter() + _TICK_S
            await trio.sleep(_TICK_S)
            lag_max_s = max(lag_max_s, time.perf_counter() - due)

    await trio.to_thread.run_sync(lambda: None)  # the thread is there
    async with trio.open_nursery() as nursery:
        nursery.start_soon(turn)
        await trio.sleep(0.1)
        lag_max_s = 0.0
        Path("/proc/self/clear_refs").write_text("5")  # the peak begins now
        before, cpu_s = _memory_bytes("VmHWM"), time.process_time()
        try:
            kept = await judge_manifest(envelope, [PUBLISHER.public.ed25519])
        except ManifestError as error:
            outcome = error.code
            print(error.sentence, file=sys.stderr)
        else:
            outcome = "accepted"
            assert kept.envelope is envelope
        cpu_s, peak = time.process_time() - cpu_s, _memory_bytes("VmHWM")
        nursery.cancel_scope.cancel()
    return {
        "outcome": outcome,
        "envelope_bytes": len(envelope),
        "cpu_s": round(cpu_s, 3),
        "memory_over_size_bytes": peak - before,
        "lag_max_s": round(lag_max_s, 4),
    }


def _memory_bytes(field: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(field)).split()[1]) * 1024


def _payload(files: Files, *, chunks: int | None = None, **more: Any) -> bytes:
    """Of these files, the first made large enough for ``chunks``."""
    if chunks is not None:
        files[0][1] = (chunks - 1) * CHUNK_BYTES_MIN
    small = sum(size for _, size, *_ in files if size < CHUNK_BYTES_MIN)
    whole = sum(-(-size // CHUNK_BYTES_MIN) for _, size, *_ in files if size >= CHUNK_BYTES_MIN)
    hashes = bytes(DIGEST_BYTES) * (whole + -(-small // CHUNK_BYTES_MIN))
    root = root_hash([FileEntry(*one[:3]) for one in files], CHUNK_BYTES_MIN, hashes)
    fields = {
        "name": "org/model", "version": 1, "created": 1_790_000_000, "expires": None, "files": files,
        "chunk": CHUNK_BYTES_MIN, "hashes": hashes, "root": root, "sources": [], "racks": [], "names": [],
        "priority": 5, **more,
    }  # fmt: skip
    return b"\1" + bytes(msgpack.packb(fields))


def _files(paths: list[str]) -> Files:
    return [[path, 1, _MODE] for path in paths]


def _many() -> bytes:
    return _payload(
        _files([f"layers/{i % 97:03}/experts/{i % 31:02}/weight-{i:06}.safetensors" for i in range(FILES_MAX)])
    )


def _deep(count: int) -> list[str]:
    return [f"{i:x}/" + "d/" * (DEPTH_MAX - 2) + "f" for i in range(count)]


def _nested_paths() -> list[str]:
    """As many files as there may be, as deep as they may be, in as many directories."""
    deep = _deep(DIRECTORIES_MAX // (DEPTH_MAX - 1))
    return deep + [f"{deep[i % len(deep)][:-1]}g{i}" for i in range(FILES_MAX - len(deep))]


def _filled(paths: list[str], *, bytes_beyond: int = 0) -> Files:
    """Longer names, in upper case, until the list has all the bytes that it may have."""
    files = _files(paths)
    room = FILES_BYTES_MAX - len(msgpack.packb(files)) - 16 + bytes_beyond
    each = room // len(paths) - 2
    return _files([path + "L" * each for path in paths])


def _alike() -> list[str]:
    """The same until near their ends, which is slow to sort."""
    return [f"{'A' * 80}/{i % 1013:04}/{i * 7919 % FILES_MAX:025}" for i in range(FILES_MAX)]


def _longest() -> list[str]:
    return ["/".join(["N" * 200] * 5) + f"{i:012}" for i in range(FILES_BYTES_MAX // 1030)]


def _unusual(form: str, folds_to: int, *, beyond: int = 0) -> list[str]:
    each = 75 * folds_to + 5  # characters of one folded path
    return [f"{form * 75}{i:05}" for i in range(FOLDED_CHARS_MAX // each + beyond)]


def _second(files: Files, *, cuts: list[Any] | None = None, directories: Sequence[str] = (), **more: Any) -> bytes:
    """In schema 2, with hashes and a root that fit."""
    layout = Layout([size for _, size, *_ in files], CHUNK_BYTES_MIN, cuts)
    hashes = bytes(DIGEST_BYTES) * layout.chunk_count
    entries = [FileEntry(*one[:3]) for one in files]
    known: Any = None if cuts is None else tuple(None if one is None else tuple(one) for one in cuts)
    root = root_hash(entries, CHUNK_BYTES_MIN, hashes, cuts=known, directories=directories)
    more |= {"directories": list(directories)} | ({} if cuts is None else {"cuts": cuts})
    return b"\2" + _payload(files, hashes=hashes, root=root, **more)[1:]


def _cut_lengths(bytes_each: int) -> list[int]:
    """As many as fit, each packed in ``bytes_each`` bytes."""
    smallest = {2: 0x80, 3: 0x100, 5: 0x10000}[bytes_each]
    return [smallest] * ((CUTS_BYTES_MAX - 64) // bytes_each)


def _cuts(bytes_each: int) -> bytes:
    lengths = _cut_lengths(bytes_each)
    return _second([["model.safetensors", sum(lengths), _MODE]], cuts=[lengths])


def _cut_chunks() -> bytes:
    """As many chunks as there may be, all in one file with cuts."""
    size = (CHUNKS_MAX - 1) * CHUNK_BYTES_MIN
    return _second([["model.safetensors", size, _MODE]], cuts=[[CHUNK_BYTES_MIN, size - CHUNK_BYTES_MIN]])


def _tensors(count: int = TENSORS_MAX) -> bytes:
    names = (f"model.layers.{i % 97}.mlp.experts.{i}.down_proj.weight" for i in range(count))
    return pack_index(Tensor(0, name, "BF16", (0, 1), 9, 9) for name in names)


def _long_names() -> bytes:
    """All the bytes that an index may have, inflated."""
    count = INFLATED_BYTES_MAX // 1020
    return pack_index(Tensor(0, f"{i:06}" + "n" * 1000, "U8", (0,), 9, 9) for i in range(count))


def _everything() -> bytes:
    files = _filled(_nested_paths())
    lengths = _cut_lengths(5)[len(files) :]  # each other file has a nil
    files[0][1] = sum(lengths)
    files[1][1] = (CHUNKS_MAX - 70_000) * CHUNK_BYTES_MIN - sum(lengths)
    cuts = [lengths, *[None] * (len(files) - 1)]
    about = b'{"a":[' + b"0," * 8000 + b"0]}"
    return _second(files, cuts=cuts, index=_tensors(), about=about, labels={f"k{i}": "v" * 256 for i in range(64)})


LIMITS: dict[str, Callable[[], bytes]] = {
    "files": _many,
    "depth": lambda: _payload(_files(_nested_paths())),
    "depth-beyond": lambda: _payload(_files(_deep(FILES_MAX))),
    "path-bytes": lambda: _payload(_filled(_alike())),
    "path-bytes-each": lambda: _payload(_files(_longest())),
    "path-bytes-beyond": lambda: _payload(_filled(_alike(), bytes_beyond=4 * FILES_MAX)),
    "path-script": lambda: _payload(_files([f"模型权重/第{i % 97}层/专家的参数文件_{i}" for i in range(FILES_MAX)])),
    "path-normalised": lambda: _payload(_files(_unusual("\uffa1", 1))),
    "path-normalised-wide": lambda: _payload(_files(_unusual("\ufdfa", 18))),
    "path-normalised-beyond": lambda: _payload(_files(_unusual("\uffa1", 1, beyond=1))),
    "chunks": lambda: _payload(_files(["model.bin"]), chunks=CHUNKS_MAX),
    "all": lambda: _payload(_filled(_nested_paths()), chunks=CHUNKS_MAX - 10),
    "unknown-field": lambda: _payload(_files(["a"]), more=[[]] * 190_000),
    "unknown-field-beyond": lambda: _payload(_files(["a"]), more=[[[]] * 500_000] * 100),
    "cuts-bytes-of-2": lambda: _cuts(2),
    "cuts-bytes-of-3": lambda: _cuts(3),
    "cuts-bytes-of-5": lambda: _cuts(5),
    "cuts-chunks": _cut_chunks,
    "tensors": lambda: _second([["a", CHUNK_BYTES_MIN, _MODE]], index=_tensors()),
    "tensors-beyond": lambda: _second([["a", CHUNK_BYTES_MIN, _MODE]], index=_tensors(TENSORS_MAX + 1)),
    "index-inflated": lambda: _second([["a", CHUNK_BYTES_MIN, _MODE]], index=_long_names()),
    "index-bomb": lambda: _second([["a", CHUNK_BYTES_MIN, _MODE]], index=zlib.compress(bytes(4 << 30 >> 4), 9)),
    "index-nested": lambda: _second([["a", CHUNK_BYTES_MIN, _MODE]], index=zlib.compress(b"\x91" * (30 << 20), 9)),
    "directories": lambda: _second([["a", 1, _MODE]], directories=[f"d{i:05}" for i in range(60_000)]),
    "about": lambda: _second([["a", 1, _MODE]], about=b'{"a":' * 2700 + b"1" + b"}" * 2700),
    "all-of-2": _everything,
    "unknown-in-file": lambda: _payload([["a", 1, _MODE, [[]] * (FILES_BYTES_MAX - 100)]]),
}


if __name__ == "__main__":
    main()
