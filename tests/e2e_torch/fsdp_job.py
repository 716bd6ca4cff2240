"""One rank of a job: FSDP2 and AdamW on gloo, with a daemon of its own. Run by ``job``, not by hand.

``python fsdp_job.py SOCKET DIR RANK RANKS PORT STEPS SAVE_EVERY WIDTH PART``: goes on from the newest version of
``run``, of which it fetches first what it reads where PART is 1; trains to STEPS; saves every SAVE_EVERY steps into
DIR. It prints JSON lines, each with its moment on CLOCK_MONOTONIC: what it loaded, each loss, and a digest of all
weights and moments at each save and load.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.fsdp import fully_shard

from gossipd.client import Client
from gossipd.torch import GossipdReader, newest, save_shards

PATIENCE_S = 180.0


def digest(tree: Any) -> str:
    """Over every tensor, whole, in the order of its name."""
    hasher = hashlib.sha256()

    def add(path: str, value: Any) -> None:
        if isinstance(value, dict):
            for key in sorted(value, key=str):
                add(f"{path}.{key}", value[key])
        elif isinstance(value, torch.Tensor):
            whole = value.full_tensor() if hasattr(value, "full_tensor") else value
            hasher.update(path.encode() + whole.detach().cpu().contiguous().numpy().tobytes())
        elif isinstance(value, list):
            for number, one in enumerate(value):
                add(f"{path}.{number}", one)

    add("", tree)
    return hasher.hexdigest()


def say(**fields: Any) -> None:
    print(json.dumps({"at_s": time.monotonic(), **fields}), flush=True)


def main() -> None:
    socket, directory = sys.argv[1], Path(sys.argv[2])
    rank, ranks, port, steps, every, width, part = map(int, sys.argv[3:])
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo", rank=rank, world_size=ranks)
    model = torch.nn.Sequential(*(torch.nn.Linear(width, width) for _ in range(6)))
    for layer in model:
        fully_shard(layer)
    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    client, begun = Client(socket), 0
    version = newest("run", client=client, timeout=PATIENCE_S, fetch=not part)
    if version is not None:
        model(torch.zeros(1, width)).sum().backward()
        optimizer.step()  # so that there are moments to be loaded into
        optimizer.zero_grad()
        weights, moments = get_state_dict(model, optimizer)
        state: dict[str, Any] = {"model": weights, "optimizer": moments, "step": 0}
        with GossipdReader("run", version, client=client, timeout=PATIENCE_S, part=bool(part)) as reader:
            dcp.load(state, storage_reader=reader)
        set_state_dict(model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
        begun = state["step"]
        weights, moments = get_state_dict(model, optimizer)
        say(event="loaded", step=begun, version=version, digest=digest({"m": weights, "o": moments}))
    for step in range(begun + 1, steps + 1):
        torch.manual_seed(step)
        loss = (model(torch.randn(8, width)) ** 2).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        say(event="step", step=step, loss=float(loss))
        if step % every == 0:
            weights, moments = get_state_dict(model, optimizer)
            state = {"model": weights, "optimizer": moments, "step": step}
            made = save_shards(state, directory / f"step-{step}", name="run", step=step, client=client, keep_last=3)
            say(event="saved", step=step, version=made.version, digest=digest({"m": weights, "o": moments}))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
