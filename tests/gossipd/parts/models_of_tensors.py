"""Small models of real safetensors files with an index of their tensors, as a publisher makes them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import safetensors.numpy
from blake3 import blake3
from msgspec.structs import replace

from gossipd.identity.keys import SecretKey
from gossipd.manifest.chunk_layout import Layout
from gossipd.manifest.manifest import FileEntry, Manifest, ManifestDraft, open_manifest, seal_manifest
from gossipd.manifest.tensor_index import Tensor, pack_index
from gossipd.publish.safetensors_header import HeaderReader

CHUNK = 64 * 1024
PUBLISHER = SecretKey(b"publisher's seed of 32 bytes....")

Tensors = Mapping[str, "np.ndarray[Any, Any]"]


def shard(tensors: Tensors, *, metadata: dict[str, str] | None = None) -> bytes:
    """A file as the real library writes it."""
    return bytes(safetensors.numpy.save(dict(tensors), metadata=metadata))


def filled(name: str, size: int) -> np.ndarray[Any, Any]:
    """A tensor of ``size`` bytes, none of them zero, that no other name has."""
    seed = int.from_bytes(blake3(name.encode()).digest()[:4], "little")
    return np.random.default_rng(seed).integers(1, 256, size, dtype=np.uint8)


def rows_of(files: Mapping[str, bytes]) -> list[Tensor]:
    """What the headers say, in the order of an index."""
    found = []
    for at, (path, body) in enumerate(files.items()):
        if path.endswith(".safetensors"):
            header = HeaderReader(len(body), partial(_piece, body)).header()
            found += [Tensor(at, one.name, one.dtype, one.shape, one.begin, one.end) for one in header.tensors]
    return found


def _piece(body: bytes, offset: int, length: int) -> bytes:
    return body[offset : offset + length]


def manifest_of(
    files: Mapping[str, bytes], *, rows: Sequence[Tensor] | None = None, chunk_bytes: int = CHUNK, **fields: Any
) -> Manifest:
    """The signed manifest; ``rows``: the index, None for a true one; an empty one is left out."""
    layout = Layout([len(body) for body in files.values()], chunk_bytes)
    bodies = list(files.values())
    digests = b"".join(
        blake3(b"".join(bodies[s.file_index][s.offset : s.offset + s.length] for s in layout.segments(chunk))).digest()
        for chunk in range(layout.chunk_count)
    )
    found = rows_of(files) if rows is None else rows
    entries = tuple(FileEntry(path, len(body), 0o644) for path, body in files.items())
    draft = ManifestDraft("acme/moe", 1, 1_790_000_000, entries, chunk_bytes, digests, (), index=None)
    draft = replace(draft, index=pack_index(found) if found else None, **fields)
    return open_manifest(seal_manifest(draft, PUBLISHER), [PUBLISHER.public.ed25519])


def expert_model(*, layers: int = 4, experts: int = 8, expert_bytes: int = 40_000) -> dict[str, bytes]:
    """Two shards of layers with experts, sorted by name as ``save_pretrained`` does, and the files beside them."""
    tensors: dict[str, np.ndarray[Any, Any]] = {"model.embed_tokens.weight": filled("embed", 9000)}
    for layer in range(layers):
        tensors[f"model.layers.{layer}.input_layernorm.weight"] = filled(f"n{layer}", 64)
        tensors[f"model.layers.{layer}.mlp.shared_experts.up_proj.weight"] = filled(f"s{layer}", 5000)
        for expert in range(experts):
            name = f"model.layers.{layer}.mlp.experts.{expert}.down_proj.weight"
            tensors[name] = filled(name, expert_bytes)
    tensors["model.norm.weight"] = filled("norm", 64)
    tensors["lm_head.weight"] = filled("head", 9000)
    names = sorted(tensors)
    half = len(names) // 2
    shards = {"model-1.safetensors": names[:half], "model-2.safetensors": names[half:]}
    weight_map = {name: path for path, listed in shards.items() for name in listed}
    files = {
        path: shard({name: tensors[name] for name in listed}, metadata={"format": "pt"})
        for path, listed in shards.items()
    }
    files["config.json"] = b'{"model_type": "toy"}'
    files["model.safetensors.index.json"] = json.dumps({"metadata": {}, "weight_map": weight_map}, indent=2).encode()
    return files
