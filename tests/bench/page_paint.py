"""How long the page takes to repaint a deployment on many hosts, in a real Chromium.

``python -m tests.bench.page_paint [--hosts 1000] [--racks 20] [--repaints 40] [--json]``. A daemon's answers are made
up: each second every host has other chunks. The page paints each answer, 64 cells for every host, as it does for an
operator: hosts over time with racks closed, the same with all racks opened, and by chunk. Prints, for each, the least,
the median and the 95th percentile of what ``performance`` measured around a repaint, and how busy the machine was: what
was measured beside other work says little. Needs the ``test`` extra and Debian's chromium.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import sys
import tempfile
import threading
from base64 import b64encode
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

from playwright.sync_api import Page, sync_playwright

from gossipd.core.sketch import BINS, SHARE_MAX
from tests.bench.lab.process import MachineCpu
from tests.e2e.cluster import PATIENCE_S, until
from tests.gossipd.web.unix_daemon import UnixDaemon, answers_about, page_server, status_of, unix_daemon

EVERY_S = 0.5  # the page asks once a second: each answer is another
PAINTED = "performance.getEntriesByName('paint').map((one) => one.duration)"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.page_paint", description=__doc__)
    parser.add_argument("--hosts", type=int, default=1000)
    parser.add_argument("--racks", type=int, default=20)
    parser.add_argument("--repaints", type=int, default=40, help="in each way of looking at it")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    program = shutil.which("chromium")
    if program is None:
        print("page_paint: there is no chromium; apt-get install chromium", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory(prefix="gossipd-paint-") as root, sync_playwright() as playwright:
        # No sandbox: as root there is none. Only our own page is opened.
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1280, "height": 800})
        page.set_default_timeout(1000 * PATIENCE_S)
        rows = measure(Path(root), page, options)
        browser.close()
    for row in rows:
        print(json.dumps(row) if options.json else "  ".join(f"{name} {value}" for name, value in row.items()))
    return 0


def measure(root: Path, page: Page, options: argparse.Namespace) -> list[dict[str, Any]]:
    """A row for each way of looking at it."""
    socket = root / "s"
    with (
        unix_daemon(socket, answers_of(Random(1), options.hosts, options.racks)) as daemon,
        changing(daemon, options.hosts, options.racks),
        page_server(socket) as server,
    ):
        page.goto(f"{server.url}#/deployment/org%2Fllama/3")
        rows = [painted(page, "racks closed", options)]
        grid = page.get_by_role("application")
        grid.focus()
        page.keyboard.press("End")
        for _ in range(options.racks):
            page.keyboard.press("Enter")
            page.keyboard.press("ArrowUp")
        rows.append(painted(page, "all racks opened", options))
        page.get_by_role("button", name="By chunk").click()
        page.get_by_text(f"has: 0 of {options.hosts}").wait_for()
        rows.append(painted(page, "all racks opened, by chunk", options))
    return rows


def painted(page: Page, looked_at: str, options: argparse.Namespace) -> dict[str, Any]:
    """What the next repaints took."""
    machine, before = MachineCpu(), len(page.evaluate(PAINTED))
    until("it is repainted", lambda: len(page.evaluate(PAINTED)) >= before + options.repaints, patience_s=600.0)
    took_ms = sorted(page.evaluate(PAINTED)[before:])
    return {
        "looked_at": looked_at, "hosts": options.hosts, "repaints": len(took_ms),
        "repaint_min_ms": round(took_ms[0], 1), "repaint_p50_ms": round(statistics.median(took_ms), 1),
        "repaint_p95_ms": round(took_ms[int(0.95 * len(took_ms))], 1), "cpu_busy": round(machine.busy(), 2),
    }  # fmt: skip


@contextmanager
def changing(daemon: UnixDaemon, hosts: int, racks: int) -> Iterator[None]:
    """Every host has other chunks soon."""
    random, stop = Random(2), threading.Event()

    def change() -> None:
        while not stop.wait(EVERY_S):
            daemon.answers = answers_of(random, hosts, racks)

    thread = threading.Thread(target=change)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def answers_of(random: Random, hosts: int, racks: int) -> dict[str, Any]:
    """By target: all that the deployment's page asks for."""
    status = status_of(hosts, racks)
    row = status["deployments"][0]
    sketches = []
    for host in row["hosts"]:
        if host["state"] != "complete":
            host["chunks_verified"] = random.randrange(row["chunks_total"])
        shares = bytes(random.choices(range(SHARE_MAX + 1), k=BINS))
        sketches.append({
            "name": host["name"], "rack": host["rack"], "known_by": "announcements", "age_s": 0.5,
            "chunks_held": host["chunks_verified"], "shares": b64encode(shares).decode(),
        })  # fmt: skip
    which = f"?name={row['name']}&version={row['version']}"
    told = {"name": row["name"], "version": row["version"]}
    return answers_about(status) | {
        "/v1/members": {"members": status["members"]},
        f"/v1/sketch{which}": {**told, "asked": "", "hosts": sketches},
        f"/v1/report{which}": {"report": {"deployment": row, "traffic": [], "timeline": None}},
    }  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
