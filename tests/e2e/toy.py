"""A toy model in the form people use: safetensors shards, an index, a configuration, a tokenizer."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file


def make_model(directory: Path, *, shards: int = 3, shard_bytes: int = 4_000_000, seed: int = 1) -> Path:
    """Write the model and return its directory. The last shard is a little shorter, so that chunks are uneven."""
    directory.mkdir(parents=True)
    random = np.random.default_rng(seed)
    index = {}
    for number in range(shards):
        rows = shard_bytes // 4096 - (100 if number == shards - 1 else 0)
        name = f"model-{number + 1:05d}-of-{shards:05d}.safetensors"
        tensors = {f"layer.{number}.weight": random.integers(0, 255, (rows, 4096), dtype=np.uint8)}
        save_file(tensors, directory / name)
        index[f"layer.{number}.weight"] = name
    (directory / "model.safetensors.index.json").write_text(json.dumps({"weight_map": index}))
    (directory / "config.json").write_text('{"model_type": "toy"}')
    (directory / "tokenizer").mkdir()
    (directory / "tokenizer" / "vocab.txt").write_text("a\nb\n")
    (directory / "tokenizer" / "empty.txt").write_text("")
    return directory
