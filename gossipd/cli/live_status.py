"""The live page of ``gossipd status --watch``: a bar for each host and the totals, once a second, within the terminal.

What lives here: drawing with rich, which only ``status --watch`` imports.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from textwrap import wrap
from typing import Any, NamedTuple

import click
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from gossipd.api.client import DaemonUnreachableError
from gossipd.cli.host_selection import select, words_left_out
from gossipd.cli.options import chunks_wanted, reason_words, time_words, traffic_words
from gossipd.core.reasons import TAKEN_BACK
from gossipd.core.units import percent_words, show_bytes
from gossipd.core.versions import label_words

INTERVAL_S = 1.0  # the records behind the page change at most once a second
LINES_LEAST = 6  # of a deployment that is under way: title, three hosts, totals, traffic
ALARM_LINES_MAX = 3
BAR_WIDTH_MAX, BAR_WIDTH_LEAST = 40, 5
_DONE_WIDTH = 6
_OVER = ("complete", "cancelled")
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
            live.update(view(page, lost, columns=console.width, lines_max=console.height - 1), refresh=True)
            drawn += 1
            if drawn == rounds:
                return 0
            time.sleep(interval_s)
            try:
                page, lost = ask(), None
            except DaemonUnreachableError as error:
                lost = str(error)


def view(page: dict[str, Any], lost: str | None, *, columns: int, lines_max: int) -> RenderableType:
    """At most ``lines_max`` lines of at most ``columns``. A deployment that is over has one line; the others share the
    rest, and a bar has what name, rack, percent and reason leave of its line."""
    node = page["node"]
    alive = sum(member["state"] == "alive" for member in page["members"])
    parts = [Text(f"{node['name']}  {alive}/{len(page['members'])} members alive  up {time_words(node['uptime_s'])}")]
    if lost is not None:
        parts.append(Text(f"not answering: {lost}", style="red"))
    for alarm in page["alarms"]:
        words = f"ALARM {alarm['code']}: {alarm['sentence']}"
        wrapped = wrap(words, columns, max_lines=ALARM_LINES_MAX, subsequent_indent="  ", placeholder=" ...")
        parts += [Text(line, style="bold red") for line in wrapped]
    if not page["deployments"]:
        parts.append(Text("nothing is deployed"))
    over = [row for row in page["deployments"] if row["state"] in _OVER]
    live = [row for row in page["deployments"] if row["state"] not in _OVER]
    left = lines_max - len(parts)
    shown_live = live[: max(1, left // (LINES_LEAST + (len(over) > 0)))]
    shown_over = over[: max(0, left - LINES_LEAST * len(shown_live))]
    not_shown = len(page["deployments"]) - len(shown_live) - len(shown_over)
    left -= len(shown_over) + (not_shown > 0)
    for number, row in enumerate(shown_live):
        lines = _deployment(row, columns, left // (len(shown_live) - number))
        left -= len(lines)
        parts += lines
    parts += [_one_line(row) for row in shown_over]
    if not_shown > 0:
        parts.append(Text(f"... and {not_shown} more deployments", style="dim"))
    for part in parts:
        part.no_wrap, part.overflow = True, "crop"
    return Group(*parts[:lines_max])


def _title(row: dict[str, Any]) -> Text:
    title = Text(f"{label_words(row)}  ", style="bold")
    title.append(row["state"], style=_STYLES.get(row["state"], "cyan"))
    if taken_back := TAKEN_BACK.get(row.get("word", "")):
        title.append(f"  {taken_back}", style="yellow")
    return title


def _one_line(row: dict[str, Any]) -> Text:
    return _title(row).append(f"  {row['hosts_complete']}/{row['hosts_total']} hosts  {show_bytes(row['bytes_total'])}")


def _deployment(row: dict[str, Any], columns: int, lines_max: int) -> list[Text]:
    title = _title(row)
    if row["rate_in_bytes_per_s"]:
        title.append(f"  {show_bytes(row['rate_in_bytes_per_s'])}/s")
    if row["eta_s"] is not None:
        title.append(f"  {time_words(row['eta_s'])} to go")
    if row["stall"]:
        title.append(f"  stalled here: {row['stall']}", style="yellow")
    rows_max = max(1, lines_max - 3)  # the title, the totals, the traffic
    if len(row["hosts"]) > rows_max:
        selection = select(row["hosts"], max(1, rows_max - 1))
        hosts, more = list(selection.shown), words_left_out(selection)
    else:
        hosts, more = row["hosts"], ""
    total = f"{row['hosts_complete']}/{row['hosts_total']} hosts complete"
    cells = [
        _Cells(host["name"], host["rack"], host["chunks_verified"], chunks_wanted(host, row), *_state(host))
        for host in hosts
    ]
    cells.append(_Cells("all", "", row["bytes_verified"], row["bytes_total"], total, "bold"))
    lines = [title, *_grid(cells, columns)]
    if more:
        lines.insert(-1, Text(f"... not shown: {more}", style="dim"))
    return [*lines, Text(_traffic(row, columns), style="dim")]


class _Cells(NamedTuple):
    """What a line of the grid holds."""

    name: str
    rack: str
    part: int
    whole: int
    words: str
    style: str


def _state(host: dict[str, Any]) -> tuple[str, str]:
    if host["reason"]:
        return f"{host['state']} ({reason_words(host)})", "red" if host["state"] == "failed" else "yellow"
    return host["state"], _STYLES.get(host["state"], "cyan")


def _traffic(row: dict[str, Any], columns: int) -> str:
    """Where all of it is too long, what is not zero: damage is told at the end."""
    words = traffic_words(row)
    return words if len(words) <= columns else words.replace("  duplicate 0 B", "").replace("  corrupt 0", "")


def _grid(cells: list[_Cells], columns: int) -> list[Text]:
    """Where a line is too narrow, first the bar shrinks, then the state before a reason goes, then whom it is about."""
    name_width = max(len(each.name) for each in cells)
    rack_width = max(len(each.rack) for each in cells)
    fixed = name_width + 2 + rack_width + 2 + _DONE_WIDTH + 2
    words = [each.words for each in cells]
    for shorter in (_without_state, _without_subject):
        if fixed + max(map(len, words)) > columns:
            words = [shorter(one) for one in words]
    bar_width = min(BAR_WIDTH_MAX, columns - fixed - max(map(len, words)) - 2)
    lines = []
    for each, word in zip(cells, words, strict=True):
        line = Text(f"{each.name:<{name_width}}  {each.rack:<{rack_width}}  ")
        if bar_width >= BAR_WIDTH_LEAST:
            full = bar_width if each.part >= each.whole else each.part * bar_width // each.whole
            line.append("━" * full, style="green").append("╌" * (bar_width - full), style="dim").append("  ")
        line.append(f"{percent_words(each.part, each.whole):>{_DONE_WIDTH}}  ").append(word, style=each.style)
        lines.append(line)
    return lines


def _without_state(words: str) -> str:
    """``downloading (source_auth, says node-1)`` becomes ``source_auth, says node-1``."""
    state, bracket, reason = words.partition(" (")
    return reason.removesuffix(")") if bracket else state


def _without_subject(words: str) -> str:
    return words.partition(", says ")[0].partition(" key=")[0]
