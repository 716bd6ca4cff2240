"""The live page of ``gossipd status --watch``: one bar for each host, and the totals, once a second.

What lives here: drawing with rich, which only ``status --watch`` imports.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any

import click
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from gossipd.api.client import DaemonUnreachableError
from gossipd.cli.options import percent_words, reason_words, time_words, traffic_words
from gossipd.core.units import show_bytes

INTERVAL_S = 1.0  # the records behind the page change at most once a second
_STYLES = {"complete": "green", "failed": "red", "cancelled": "yellow", "expired": "yellow"}


def watch_status(
    ask: Callable[[], dict[str, Any]], *, as_json: bool, interval_s: float = INTERVAL_S, rounds: int | None = None
) -> int:
    """Draw until Ctrl-C; with ``as_json`` print one object a line. Waits for a daemon that restarts."""
    page = ask()  # a refusal here ends the command
    if as_json:
        while True:
            click.echo(json.dumps(page))
            sys.stdout.flush()
            time.sleep(interval_s)
            page = ask()
    console = Console()
    with Live(console=console, auto_refresh=False, vertical_overflow="crop") as live:
        drawn = 0
        lost: str | None = None
        while True:
            live.update(view(page, lost, rows_max=max(4, console.height - 8)), refresh=True)
            drawn += 1
            if drawn == rounds:
                return 0
            time.sleep(interval_s)
            try:
                page, lost = ask(), None
            except DaemonUnreachableError as error:
                lost = str(error)


def view(page: dict[str, Any], lost: str | None, *, rows_max: int) -> RenderableType:
    node = page["node"]
    alive = sum(member["state"] == "alive" for member in page["members"])
    head = Text(f"{node['name']}  {alive}/{len(page['members'])} members alive  up {time_words(node['uptime_s'])}")
    parts: list[RenderableType] = [head]
    if lost is not None:
        parts.append(Text(f"not answering: {lost}", style="red"))
    parts += [Text(f"ALARM {alarm['code']}: {alarm['sentence']}", style="bold red") for alarm in page["alarms"]]
    for row in page["deployments"]:
        parts += _deployment(row, max(4, rows_max // len(page["deployments"])))
    if not page["deployments"]:
        parts.append(Text("nothing is deployed"))
    return Group(*parts)


def _deployment(row: dict[str, Any], rows_max: int) -> list[RenderableType]:
    title = Text(f"\n{row['name']}@{row['version']}  ", style="bold")
    title.append(row["state"], style=_STYLES.get(row["state"], "cyan"))
    if row["rate_in_bytes_per_s"]:
        title.append(f"  {show_bytes(row['rate_in_bytes_per_s'])}/s")
    if row["eta_s"] is not None:
        title.append(f"  {time_words(row['eta_s'])} to go")
    if row["stall"]:
        title.append(f"  stalled here: {row['stall']}", style="yellow")
    grid = Table.grid(padding=(0, 2))
    grid.add_column(no_wrap=True)
    grid.add_column(no_wrap=True)
    grid.add_column(width=40)
    grid.add_column(justify="right", no_wrap=True)
    grid.add_column(no_wrap=True)
    # Hosts that are furthest behind matter most when not all fit.
    hosts = row["hosts"]
    if len(hosts) > rows_max:
        hosts = sorted(hosts, key=lambda host: host["chunks_verified"])[:rows_max]
    for host in hosts:
        state = Text(host["state"], style=_STYLES.get(host["state"], "cyan"))
        if host["reason"]:
            state.append(f" ({reason_words(host)})", style="yellow")
        done = percent_words(host["chunks_verified"], row["chunks_total"])
        grid.add_row(host["name"], host["rack"], _bar(host["chunks_verified"], row["chunks_total"]), done, state)
    done = percent_words(row["bytes_verified"], row["bytes_total"])
    total = f"{row['hosts_complete']}/{row['hosts_total']} hosts complete"
    grid.add_row("all", "", _bar(row["bytes_verified"], row["bytes_total"]), done, total, style="bold")
    left_out = len(row["hosts"]) - len(hosts)
    parts: list[RenderableType] = [title, grid, Text(traffic_words(row), style="dim")]
    if left_out:
        parts.insert(2, Text(f"... and {left_out} hosts that are further ahead", style="dim"))
    return parts


def _bar(part: int, whole: int) -> ProgressBar:
    return ProgressBar(total=max(1, whole), completed=part if whole else 1, width=40)
