"""The README's walk-through works as it is written, and so do the blocks of the manual that say so."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from gossipd.cli.help import page
from tests.e2e.cluster import free_port_pair

README = Path(__file__).resolve().parents[2] / "README.md"


def blocks(text: str, marker: str) -> list[str]:
    return re.findall(rf"<!-- {marker} -->\n```sh\n(.*?)```", text, re.DOTALL)


def test_the_walk_through_works_as_written(tmp_path: Path) -> None:
    *steps, stop = blocks(README.read_text(), "walk-through")
    assert len(steps) == 3
    of_manual = blocks(page("operations"), "runnable")
    assert len(of_manual) == 2
    script = "\n".join([*steps, *of_manual, stop])
    ports = {port: str(free_port_pair()) for port in ("7946", "7956", "7966")}  # others of this machine may have these
    script = re.sub("|".join(ports), lambda found: ports[found[0]], script).replace("--timeout 60s", "--timeout 10m")
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        cwd=tmp_path,
        env={**os.environ, "PATH": path, "GOSSIPD_STORE__ANY_FILE_SYSTEM": "true"},  # pytest's files may be in memory
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "complete" in done.stdout
    assert "model.bin" in done.stdout
    assert "warning" not in done.stderr, "a newcomer's first model is a good one"
    assert "E_SIG_INVALID" in done.stdout or "E_DECODE" in done.stdout
    assert re.search(r"toy@1: all \d+ chunks are good", done.stdout)
    assert "chain whole" in done.stdout
