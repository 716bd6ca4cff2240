"""The processes of ``fsdp_job``, one for each host's daemon, as a scheduler starts and ends them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.e2e.cluster import PATIENCE_S, free_port_pair

_PROGRAM = Path(__file__).with_name("fsdp_job.py")


class Job:
    """The ranks of one start."""

    def __init__(self, homes: Sequence[Path], *, steps: int, every: int, width: int = 512, part: bool = False) -> None:
        """``homes``: the directory of each host, in which its daemon's socket lies. ``part``: each rank fetches first
        what it reads."""
        port = free_port_pair()
        self._ranks = [
            subprocess.Popen(
                [sys.executable, _PROGRAM, home / "gossipd.sock", home / "scratch", str(rank), str(len(homes)),
                 str(port), str(steps), str(every), str(width), str(int(part))],
                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=Path.cwd(),
                env={"PYTHONPATH": str(Path.cwd()), "PATH": "/usr/bin:/bin", "HOME": str(home)},
            )
            for rank, home in enumerate(homes)
        ]  # fmt: skip

    def kill_at(self, step: int) -> list[dict[str, Any]]:
        """Kill all ranks as soon as the first one is there, as a scheduler does when one host has died."""
        out = self._ranks[0].stdout
        assert out is not None
        told = []
        for line in out:
            told.append(json.loads(line))
            if told[-1]["event"] == "step" and told[-1]["step"] == step:
                break
        for process in self._ranks:
            process.kill()
        errors = [process.communicate()[1] for process in self._ranks]
        assert told and told[-1].get("step") == step, errors
        return told

    def told(self) -> list[dict[str, Any]]:
        """What rank 0 has told, when all have ended well."""
        outs = [process.communicate(timeout=4 * PATIENCE_S) for process in self._ranks]
        assert [process.returncode for process in self._ranks] == [0] * len(self._ranks), outs
        return [json.loads(line) for line in outs[0][0].splitlines()]


def of(told: list[dict[str, Any]], event: str) -> list[dict[str, Any]]:
    """The lines about one kind of event."""
    return [one for one in told if one["event"] == event]
