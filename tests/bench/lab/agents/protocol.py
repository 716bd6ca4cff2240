"""What every agent does the same: ready, go, answer, stay until stdin closes."""

from __future__ import annotations

import json
import sys
import time


def ready() -> None:
    """Say so, and wait for the word."""
    print("ready", flush=True)
    sys.stdin.readline()


def answer(**fields: object) -> None:
    """The result; then stay to be measured."""
    print(json.dumps({"done_s": time.monotonic(), **fields}), flush=True)
    sys.stdin.read()
