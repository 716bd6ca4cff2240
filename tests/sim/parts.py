"""Expert parallelism in the simulator: every host takes the experts of its rank, and all the rest of the model.

    python -m tests.sim.parts [--hosts 64] [--ranks 16] [--scale 16] [--chunk-kib 1024] [--aligned] [--json]

What lives here: a model shaped as DeepSeek-V3 (58 layers of 256 experts beside dense parts; names sorted as
``save_pretrained`` does; ``--scale`` divides bytes and rates, not the number of tensors), the wants ``ep:R/RANKS`` by
the product's own function, one run, and its figures. What does not: the model of the network (``gossipd.sim``).

Figures: bytes that a host takes over those it needs; bytes from storage over those that any host wants; the time over
the bound, which is the longest of: storage sending what is wanted once, a host's link taking its part, all links
together. A run of 64 hosts takes some minutes of CPU, and tells its progress.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass

from gossipd.core.chunkset import ChunkSet
from gossipd.identity.keys import SecretKey
from gossipd.manifest.chunk_borders import cuts_of
from gossipd.manifest.chunk_layout import Layout
from gossipd.manifest.manifest import FileEntry, Manifest, ManifestDraft, open_manifest, seal_manifest
from gossipd.manifest.tensor_index import Tensor, pack_index
from gossipd.parts.part import choose_part
from gossipd.parts.want import parse_want
from gossipd.sim.scenario import Scenario
from gossipd.sim.world import World

PUBLISHER = SecretKey(b"publisher's seed of 32 bytes....")
LAYERS, DENSE_LAYERS, EXPERTS, FILES = 61, 3, 256, 158
EXPERT_BYTES = 7168 * 2048  # one of three matrices, a byte each
HEADER_BYTES = 80_000
RATE = 1.25e9


@dataclass(frozen=True)
class Figures:
    """Of one run. ``over_need``: the mean over hosts."""

    over_need: float
    external: float
    over_bound: float
    seconds: float
    chunks: int


def tensors_of_model(scale: int) -> list[tuple[str, int]]:
    """Names and bytes, in the order of files."""
    found: dict[str, int] = {"model.embed_tokens.weight": 129_280 * 7168, "lm_head.weight": 129_280 * 7168}
    for layer in range(LAYERS):
        prefix = f"model.layers.{layer}."
        found |= {f"{prefix}self_attn.{name}.weight": 7168 * 3200 for name in "abcdefgh"}
        if layer < DENSE_LAYERS:
            found |= {f"{prefix}mlp.{name}.weight": 7168 * 18_432 for name in ("down_proj", "gate_proj", "up_proj")}
            continue
        for name in ("down_proj", "gate_proj", "up_proj"):
            found[f"{prefix}mlp.shared_experts.{name}.weight"] = EXPERT_BYTES
            for expert in range(EXPERTS):
                found[f"{prefix}mlp.experts.{expert}.{name}.weight"] = EXPERT_BYTES
    return [(name, size // scale) for name, size in sorted(found.items())]


def manifest_of_model(*, scale: int, chunk_bytes: int, aligned: bool) -> Manifest:
    """The signed manifest, with invented digests."""
    listed = tensors_of_model(scale)
    most = sum(size for _, size in listed) // FILES
    rows: list[Tensor] = []
    sizes: list[int] = []
    at = most + 1
    for name, size in listed:
        if at > most:
            sizes.append(HEADER_BYTES // scale)
            at = 0
        rows.append(Tensor(len(sizes) - 1, name, "U8", (size,), sizes[-1], sizes[-1] + size))
        sizes[-1] += size
        at += size
    lengths: list[list[int]] = [[] for _ in sizes]
    for row in rows:
        lengths[row.file_index].append(row.end - row.begin)
    cuts = [cuts_of(HEADER_BYTES // scale, one, chunk_bytes) for one in lengths] if aligned else None
    count = Layout(sizes, chunk_bytes, cuts).chunk_count
    files = tuple(FileEntry(f"model-{number:05}.safetensors", size, 0o644) for number, size in enumerate(sizes))
    digests = b"".join(number.to_bytes(32, "big") for number in range(count))
    draft = ManifestDraft(
        "acme/v3", 1, 1_790_000_000, files, chunk_bytes, digests, (), cuts=cuts, index=pack_index(rows)
    )
    return open_manifest(seal_manifest(draft, PUBLISHER), [PUBLISHER.public.ed25519])


def needs(manifest: Manifest, ranks: int) -> int:
    """The bytes of the tensors that one rank admits; of all ranks alike."""
    total = 0
    for row in manifest.tensors():
        share = ranks if ".experts." in row.name else 1
        total += (row.end - row.begin) // share
    return total


def play(
    *, hosts: int, ranks: int, racks: int, scale: int, chunk_bytes: int, aligned: bool,
    on_progress: Callable[[int], None] | None = None,
) -> Figures:  # fmt: skip
    """One run to its end. ``on_progress``: is told each per cent of all that hosts want."""
    manifest = manifest_of_model(scale=scale, chunk_bytes=chunk_bytes, aligned=aligned)
    parts = [choose_part(manifest, parse_want([f"ep:{rank}/{ranks}"])).wanted for rank in range(ranks)]
    wants = [parts[index * ranks // hosts if hosts < ranks else index % ranks] for index in range(hosts)]
    lengths = [manifest.chunk_length(chunk) for chunk in range(manifest.chunk_count)]
    taken = [sum(lengths[chunk] for chunk in part) for part in parts]
    scenario = Scenario(
        hosts=hosts,
        racks=racks,
        size=manifest.bytes_total,
        chunks=manifest.chunk_count,
        link=RATE / scale,
        external=4 * RATE / scale,
    )
    world = World(scenario, wants=wants, on_progress=on_progress)
    world.run()
    for host, want in zip(world.hosts, wants, strict=True):
        assert host.done_s is not None and host.held == want.bits, "a host has not what it wants, or more than that"
    union = ChunkSet(manifest.chunk_count)
    for part in parts:
        union |= part
    mean = sum(map(len, wants)) * scenario.chunk_bytes
    bound_s = max(
        len(union) * scenario.chunk_bytes / scenario.external,
        max(map(len, wants)) * scenario.chunk_bytes / scenario.link,
        mean / (scenario.external + hosts * scenario.link),
    )
    seconds = max(host.done_s or 0.0 for host in world.hosts)
    return Figures(
        sum(taken) / ranks / needs(manifest, ranks), world.external_chunks / len(union), seconds / bound_s, seconds,
        manifest.chunk_count,
    )  # fmt: skip


def main(arguments: list[str]) -> int:
    """Print the figures; 1 when one is beyond its bar."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--hosts", type=int, default=64)
    parser.add_argument("--ranks", type=int, default=16)
    parser.add_argument("--racks", type=int, default=4)
    parser.add_argument("--scale", type=int, default=16)
    parser.add_argument("--chunk-kib", type=int, default=1024)
    parser.add_argument("--aligned", action="store_true")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args(arguments)
    figures = play(
        hosts=given.hosts, ranks=given.ranks, racks=given.racks, scale=given.scale,
        chunk_bytes=given.chunk_kib << 10, aligned=given.aligned, on_progress=_tell_progress,
    )  # fmt: skip
    if given.json:
        print(json.dumps({name: round(value, 4) for name, value in asdict(figures).items()}))
    else:
        print(
            f"chunks {figures.chunks}, bytes over need {figures.over_need:.3f}, from storage {figures.external:.3f}, "
            f"time over bound {figures.over_bound:.3f} ({figures.seconds:.1f} s)"
        )
    is_good = (
        figures.over_need <= (1.05 if given.aligned else 1.15)
        and figures.external <= 1.01
        and figures.over_bound <= 1.10
    )
    return 0 if is_good else 1


def _tell_progress(percent: int) -> None:
    if percent % 10 == 0:
        print(f"{percent} %", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
