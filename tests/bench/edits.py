"""What a new version shares with the old one, published and delivered for real.

``python -m tests.bench.edits [--json] [--mib N] [--borders tensors|plain]``: two daemons get a model of four
safetensors shards, then an edited one; for each edit the share of its bytes that they read from storage again, the
share that a host fetched again from anywhere, and the share that the manifest says is new. ``--cases N``: no daemons,
but N random headers and N pairs of files against the rules on chunks.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from gossipd.identity.key_files import read_secret_key
from gossipd.manifest.manifest import Manifest, open_manifest
from tests.e2e.cluster import Cluster, cluster, same_tree
from tests.gossipd.manifest.test_chunk_borders import C, M, check_chunks_of, check_same_tensor

Tensors = dict[str, np.ndarray]
HOSTS = 2
LAYERS = 12
COLUMNS = 1024


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.edits", description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--mib", type=int, default=160, help="size of the model")
    parser.add_argument("--borders", choices=["tensors", "plain"], default="tensors")
    parser.add_argument("--only", action="append", choices=sorted(EDITS))
    parser.add_argument("--cases", type=int, help="try the rules on this many random headers instead")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    if options.cases is not None:
        rows = [rules_hold(options.cases, options.seed)]
    else:
        rows = measured(options.only or list(EDITS), options.mib, options.borders)
    for row in rows:
        print(
            json.dumps(row) if options.json else "  ".join(f"{key}={value}" for key, value in row.items()), flush=True
        )


def rules_hold(cases: int, seed: int) -> dict[str, Any]:
    """Raises AssertionError at the first case that breaks a rule."""
    rng = random.Random(seed)
    for _ in range(cases):
        check_chunks_of(_length(rng, least=8), _lengths(rng))
        around = [(_length(rng, least=8), _lengths(rng), _lengths(rng)) for _ in range(2)]
        run = [rng.randrange(M // 4) for _ in range(rng.randrange(4))]
        check_same_tensor(around[0], around[1], rng.randrange(M, 4 * C), run)
    return {"cases": cases, "seed": seed, "hold": True}


def _lengths(rng: random.Random) -> list[int]:
    return [_length(rng) for _ in range(rng.randrange(20))]


def _length(rng: random.Random, *, least: int = 0) -> int:
    edge = rng.choice([0, 1, M - 1, M, M + 1, C - M, C, C + M - 1, C + M, 2 * C])
    return max(least, rng.choice([edge, rng.randrange(2 * M), rng.randrange(4 * C)]))


def model(mib: int, *, rows: int = 0, prefix: str = "") -> Tensors:
    """An embedding and a head of about a tenth each, layers of three matrices, a norm and a bias, in bf16's size.
    ``rows``: more rows of vocabulary."""
    each = mib * 1024 * 1024 // 2 // COLUMNS
    vocabulary, matrix = each // 10, each * 8 // 10 // (3 * LAYERS)

    def drawn(seed: int, count: int) -> np.ndarray:
        return np.random.default_rng(seed).integers(0, 2**16, (count, COLUMNS), dtype=np.uint16)

    def grown(seed: int) -> np.ndarray:
        return np.concatenate([drawn(seed, vocabulary), drawn(seed + 500, rows)]) if rows else drawn(seed, vocabulary)

    found = {f"{prefix}a.embed.weight": grown(1)}
    for layer in range(LAYERS):
        name = f"{prefix}layers.{layer:02}"
        for number, part in enumerate(("down", "gate", "up")):
            found[f"{name}.{part}.weight"] = drawn(1000 + 10 * layer + number, matrix)
        found[f"{name}.norm.weight"] = drawn(1007 + 10 * layer, 1)
        found[f"{name}.up.bias"] = drawn(1008 + 10 * layer, 1)
    return found | {f"{prefix}z.head.weight": grown(2)}


def write(directory: Path, tensors: Tensors, *, shards: int = 4, metadata: dict[str, str] | None = None) -> Path:
    """As ``save_pretrained`` does: tensors in order of name, each shard about as large."""
    directory.mkdir(parents=True)
    limit = sum(one.nbytes for one in tensors.values()) / shards
    parts: list[Tensors] = [{}]
    for name, one in sorted(tensors.items()):
        if sum(each.nbytes for each in parts[-1].values()) >= limit and len(parts) < shards:
            parts.append({})
        parts[-1][name] = one
    for number, part in enumerate(parts, start=1):
        save_file(part, directory / f"model-{number:05}-of-{len(parts):05}.safetensors", metadata=metadata)
    (directory / "config.json").write_text(json.dumps({"shards": len(parts)}))
    return directory


def lengthened(directory: Path) -> Path:
    """Each header one byte longer: a blank at its end. The library itself fills up to eight bytes."""
    for path in directory.glob("*.safetensors"):
        body = path.read_bytes()
        length = int.from_bytes(body[:8], "little")
        path.write_bytes((length + 1).to_bytes(8, "little") + body[8 : 8 + length] + b" " + body[8 + length :])
    return directory


EDITS: dict[str, Callable[[Path, int], Path]] = {
    "reshard-4-to-2": lambda at, mib: write(at, model(mib), shards=2, metadata={"v": ""}),
    "header-one-byte": lambda at, mib: lengthened(write(at, model(mib), metadata={"v": ""})),
    "rows-8-more": lambda at, mib: write(at, model(mib, rows=8), metadata={"v": ""}),
    "tensors-renamed": lambda at, mib: write(at, model(mib, prefix="model."), metadata={"v": ""}),
}


def measured(edits: Sequence[str], mib: int, borders: str) -> list[dict[str, Any]]:
    """One row an edit."""
    base = Path(tempfile.mkdtemp(prefix="gossipd-edits-"))
    try:
        write(base / "sources" / "old", model(mib), metadata={"v": ""})
        environment = {"GOSSIPD_SOURCES__ALLOW": json.dumps([f"file://{base / 'sources'}/"])}
        with cluster(base / "cluster", environment=environment) as made:
            made.start(HOSTS, 1)
            return [one(made, base / "sources", edit, mib, borders) for edit in edits]
    finally:
        shutil.rmtree(base, ignore_errors=True)


def one(made: Cluster, sources: Path, edit: str, mib: int, borders: str) -> dict[str, Any]:
    """Deliver the old model and the edited one under a name of the edit's own; the share that storage gave again."""
    name = f"m-{edit}-{borders}"
    changed = EDITS[edit](sources / name, mib)
    manifests: list[Manifest] = []
    key = read_secret_key(made.key)
    for version, tree in ((1, sources / "old"), (2, changed)):
        file = made.publish(tree, name, version, "--chunk-borders", borders)
        manifests.append(open_manifest(file.read_bytes(), [key.public.ed25519]))
        made.drop(file, made[version])
        row = made.wait_complete(name, version, at=made[1], hosts=HOSTS)
    for daemon in made.daemons.values():
        assert same_tree(changed, daemon.tree(name, 2)), f"{daemon.name} has other bytes"
    shutil.rmtree(changed)
    for version in (1, 2):
        for daemon in made.daemons.values():
            daemon.client.order("rm", name=name, version=version)
    peers = row["peer_bytes_same_rack"] + row["peer_bytes_cross_rack"]
    return {
        "edit": edit, "borders": borders, "bytes": row["bytes_total"], "chunks": manifests[1].chunk_count,
        "share_read_again": round(row["source_bytes"] / row["bytes_total"], 4),
        "share_fetched_again": round((row["source_bytes"] + peers) / row["bytes_total"] / HOSTS, 4),
        "share_new_in_manifest": round(share_of_new(*manifests), 4),
    }  # fmt: skip


def share_of_new(old: Manifest, new: Manifest) -> float:
    """Of the bytes of ``new``, those in chunks that ``old`` has not."""
    held = {old.digest(chunk) for chunk in range(old.chunk_count)}
    fresh = [new.chunk_length(chunk) for chunk in range(new.chunk_count) if new.digest(chunk) not in held]
    return sum(fresh) / new.bytes_total


if __name__ == "__main__":
    main()
