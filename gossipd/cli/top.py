"""``gossipd top``: this host's traffic with each peer and rack, refreshed each second.

What lives here: asking the local daemon, keys, and the terminal. What does not: figures and text (``top_frame``).
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

import click

from gossipd.api.client import DaemonUnreachableError, StatusClient
from gossipd.cli.layout import columns_of_terminal, show_lines
from gossipd.cli.options import daemon_options, echo_json, examples
from gossipd.cli.top_frame import SORTS, Look, frame_lines, look, rates

INTERVAL_S = 1.0
LINES = 10_000  # where there is no terminal


@click.command(epilog=examples("gossipd top", "gossipd top --sort out", "gossipd top --json"))
@click.option("--sort", type=click.Choice(SORTS), default="in", show_default=True, help="Order of the peers.")
@daemon_options
def top(*, sort: str, client: StatusClient, as_json: bool) -> int:
    """This host's traffic: rates by source, rack and peer, upload slots, buffers, how late its loop is.

    On a terminal it is refreshed each second: q quits, s changes the order. Elsewhere, and with --json, it is one frame
    of one second.
    """
    if as_json or not (sys.stdout.isatty() and sys.stdin.isatty()):
        before = _ask(client)[1]
        time.sleep(INTERVAL_S)
        page, after = _ask(client)
        now = rates(before, after)
        if as_json:
            echo_json({"schema_version": 1, **_json(page, now)})
        else:
            columns = columns_of_terminal()
            show_lines(frame_lines(page, now, sort, columns=columns, lines_max=LINES, has_keys=False))
        return 0
    return _live(client, sort)


def _ask(client: StatusClient) -> tuple[dict[str, Any], Look]:
    page, peers, metrics = client.status(hosts_max=0), client.peers()["peers"], client.metrics()
    return page, look(page, peers, metrics, time.monotonic())


def _json(page: dict[str, Any], now: Look) -> dict[str, Any]:
    return {
        "node": page["node"]["name"],
        "loop_lag_p99_s": page["loop_lag_p99_s"],
        "received_bytes_per_s": dict(now.received),
        "uploads_busy": now.gauges.get("uploads_busy"),
        "uploads_max": now.gauges.get("uploads_max"),
        "buffers_busy_bytes": now.gauges.get("buffers_busy_bytes"),
        "buffers_max_bytes": now.gauges.get("buffers_max_bytes"),
        "peers": {node: asdict(peer) for node, peer in now.peers.items()},
    }


def _live(client: StatusClient, sort: str) -> int:
    """Draw a frame each second until ``q`` is typed; a daemon that restarts is waited for."""
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    page, before = _ask(client)  # a refusal here ends the command
    now = rates(before, before)
    console, lost = Console(), ""
    with _keys() as wait_key, Live(console=console, screen=True, auto_refresh=False) as live:
        while True:
            lines = frame_lines(page, now, sort, columns=console.width, lines_max=console.height)
            shown = Text("\n".join([lost[: console.width], *lines[:-1]] if lost else lines), no_wrap=True)
            live.update(shown, refresh=True)
            until_s = before.at_s + INTERVAL_S if not lost else time.monotonic() + INTERVAL_S
            key = wait_key(max(0.0, until_s - time.monotonic()))
            if key == "q":
                return 0
            if key == "s":
                sort = SORTS[(SORTS.index(sort) + 1) % len(SORTS)]
            if key:
                continue
            try:
                page, after = _ask(client)
                now, before, lost = rates(before, after), after, ""
            except DaemonUnreachableError as error:
                lost = f"not answering: {error}"


@contextmanager
def _keys() -> Iterator[Any]:
    """The terminal gives each key at once. Yields a function that waits some seconds for one; empty for none."""
    import select
    import termios
    import tty

    stdin = sys.stdin.fileno()
    before = termios.tcgetattr(stdin)

    def wait_key(seconds: float) -> str:
        ready, _, _ = select.select([stdin], [], [], seconds)
        return os.read(stdin, 1).decode(errors="replace") if ready else ""

    try:
        tty.setcbreak(stdin)
        yield wait_key
    finally:
        termios.tcsetattr(stdin, termios.TCSADRAIN, before)
