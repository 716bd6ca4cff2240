"""Read every tensor of a model that gossipd has put on this host.

    python load_model.py qwen            the current version
    python load_model.py qwen@3          this version

Asks the daemon for the directory (GOSSIPD_SOCKET says where its socket is), then reads the safetensors files in it, one
tensor at a time: into torch, or into numpy where torch is not installed, which it says. Needs the package safetensors.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from safetensors import safe_open


def directory_of(model: str) -> Path:
    """Where the model lies on this host. Raises CalledProcessError: 3 is not complete here, 4 no daemon answers."""
    answer = subprocess.run(["gossipd", "path", model], check=True, stdout=subprocess.PIPE, text=True)
    return Path(answer.stdout.strip())


def tensors(directory: Path, *, framework: str) -> Iterator[tuple[str, Any]]:
    """Name and value of each tensor; ``framework`` is ``pt`` or ``np``."""
    for file in sorted(directory.glob("*.safetensors")):
        with safe_open(file, framework=framework) as opened:
            for name in opened.keys():
                yield name, opened.get_tensor(name)


def main() -> int:
    framework = "pt" if find_spec("torch") else "np"
    if framework == "np":
        print("torch is not installed: tensors are read into numpy", file=sys.stderr)
    try:
        directory = directory_of(sys.argv[1])
    except subprocess.CalledProcessError as error:
        return error.returncode
    count = elements = 0
    for _, tensor in tensors(directory, framework=framework):
        count += 1
        elements += int(tensor.numel() if framework == "pt" else tensor.size)
    print(f"{count} tensors with {elements} elements from {directory}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
