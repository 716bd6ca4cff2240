"""A toy model of any size: a tree like Hugging Face's, with the same bytes every time.

A safetensors file is the header's length in eight bytes (little-endian), the header (JSON, padded with blanks so that
data begins on a multiple of eight), and the tensors' bytes. The bytes are an AES-CTR key stream, which is fast and not
compressible, and makes all chunks different.
"""

from __future__ import annotations

import json
from pathlib import Path

from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CTR

SHARD_BYTES_MAX = 64 * 1024 * 1024  # several files at once at the default size
TENSOR_BYTES_MAX = 8 * 1024 * 1024
_BLOCK_BYTES = 1024 * 1024
_ELEMENT_BYTES = 2  # BF16
_ROW_ELEMENTS = 1024


def write_toy_model(directory: Path, size_bytes: int) -> int:
    """Write about ``size_bytes`` into the new directory ``directory``. Returns the exact number."""
    directory.mkdir(parents=True)
    shards = max(2, -(-size_bytes // SHARD_BYTES_MAX))
    weights: dict[str, str] = {}
    for number in range(shards):
        share = size_bytes // shards
        name = f"model-{number + 1:05}-of-{shards:05}.safetensors"
        tensors = _tensors(number, share)
        _write_shard(directory / name, tensors, seed=number)
        weights |= dict.fromkeys(tensors, name)
    total = sum(path.stat().st_size for path in directory.iterdir())
    index = {"metadata": {"total_size": total}, "weight_map": weights}
    (directory / "model.safetensors.index.json").write_text(json.dumps(index, indent=1))
    config = {"architectures": ["ToyForCausalLM"], "hidden_size": _ROW_ELEMENTS, "num_hidden_layers": len(weights)}
    (directory / "config.json").write_text(json.dumps(config, indent=1))
    vocabulary = {f"token-{number}": number for number in range(2000)}
    (directory / "tokenizer.json").write_text(json.dumps({"version": "1.0", "model": {"vocab": vocabulary}}))
    return sum(path.stat().st_size for path in directory.iterdir())


def _tensors(shard: int, share: int) -> dict[str, int]:
    """Name and bytes of each tensor of a shard, in whole rows."""
    row_bytes = _ROW_ELEMENTS * _ELEMENT_BYTES
    sizes: dict[str, int] = {}
    left = max(row_bytes, share // row_bytes * row_bytes)
    while left:
        size = min(left, TENSOR_BYTES_MAX)
        sizes[f"model.layers.{shard}.{len(sizes)}.weight"] = size
        left -= size
    return sizes


def _write_shard(path: Path, tensors: dict[str, int], *, seed: int) -> None:
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    at = 0
    for name, size in tensors.items():
        shape = [size // _ELEMENT_BYTES // _ROW_ELEMENTS, _ROW_ELEMENTS]
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    stream = Cipher(AES(b"gossipd toy mdl."), CTR(seed.to_bytes(16, "big"))).encryptor()
    zeros = bytes(_BLOCK_BYTES)
    with path.open("xb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        while at:
            step = min(at, _BLOCK_BYTES)
            file.write(stream.update(zeros[:step]))
            at -= step
