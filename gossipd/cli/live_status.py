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
from gossipd.cli.host_selection import HOSTS_SHOWN, select, words_left_out
from gossipd.cli.layout import folded
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
    ask: Callable[[int | None], dict[str, Any]], *, as_json: bool, interval_s: float = INTERVAL_S,
    rounds: int | None = None,
) -> int:  # fmt: skip
    """Draw until Ctrl-C; with ``as_json`` print one object a line. Waits for a daemon that restarts. ``ask``: for the
    page, with the number of hosts above which complete ones may be counts, as no terminal has a line for each."""
    if as_json:
        while True:
            click.echo(json.dumps(ask(None)))
            sys.stdout.flush()
            time.sleep(interval_s)
    console = Console()
    page = ask(max(HOSTS_SHOWN, console.height))  # a refusal here ends the command
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
                page, lost = ask(max(HOSTS_SHOWN, console.height)), None
            except DaemonUnreachableError as error:
                lost = str(error)


def view(page: dict[str, Any], lost: str | None, *, columns: int, lines_max: int) -> RenderableType:
    """At most ``lines_max`` lines of at most ``columns``. A deployment that is over has one line; the others share the
    rest, and a bar has what name, rack, percent and reason leave of its line."""
    node = page["node"]
    states = [member["state"] for member in page["members"] if member["state"] != "unheard"]
    head = f"{node['name']}  {states.count('alive')}/{len(states)} members alive  up {time_words(node['uptime_s'])}"
    parts = [Text(line) for line in folded(head, columns)]
    if lost is not None:
        parts += [Text(line, style="red") for line in folded(f"not answering: {lost}", columns)]
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
    lines_over: list[Text] = []
    not_shown = len(live) - len(shown_live)
    for number, row in enumerate(over):
        lines = _over(row, columns)
        if len(lines_over) + len(lines) > left - LINES_LEAST * len(shown_live):
            not_shown += len(over) - number
            break
        lines_over += lines
    left -= len(lines_over) + (not_shown > 0)
    for number, row in enumerate(shown_live):
        lines = _deployment(row, columns, left // (len(shown_live) - number))
        left -= len(lines)
        parts += lines
    parts += lines_over
    if not_shown > 0:
        parts.append(Text(f"... and {not_shown} more deployments", style="dim"))
    for part in parts:
        part.no_wrap, part.overflow = True, "crop"
    return Group(*parts[:lines_max])


def _title(row: dict[str, Any]) -> list[tuple[str, str]]:
    """Fields, each with its style."""
    fields = [(label_words(row), "bold"), (row["state"], _STYLES.get(row["state"], "cyan"))]
    if taken_back := TAKEN_BACK.get(row.get("word", "")):
        fields.append((taken_back, "yellow"))
    return fields


def _over(row: dict[str, Any], columns: int) -> list[Text]:
    """A deployment that is over: one line, and more only where its name is long."""
    counts = [f"{row['hosts_complete']}/{row['hosts_total']} hosts", show_bytes(row["bytes_total"])]
    return _packed(_title(row) + [(words, "") for words in counts], columns)


def _packed(fields: list[tuple[str, str]], columns: int) -> list[Text]:
    """Fields side by side, in as many lines as they take; one that is wider than the terminal is broken."""
    lines = [Text()]
    for words, style in fields:
        if lines[-1] and len(lines[-1]) + 2 + len(words) > columns:
            lines.append(Text("  "))
        gap = "" if not lines[-1].plain.strip() else "  "
        lines[-1].append(gap).append(words, style=style)
        while len(lines[-1]) > columns:
            lines[-1:] = lines[-1].divide([columns])
    return lines


def _deployment(row: dict[str, Any], columns: int, lines_max: int) -> list[Text]:
    fields = _title(row)
    if row["rate_in_bytes_per_s"]:
        fields.append((f"{show_bytes(row['rate_in_bytes_per_s'])}/s", ""))
    if row["eta_s"] is not None:
        fields.append((f"{time_words(row['eta_s'])} to go", ""))
    if row["stall"]:
        fields.append((f"stalled here: {row['stall']}", "yellow"))
    title = _packed(fields, columns)
    traffic = [Text(line, style="dim") for line in folded(_traffic(row, columns), columns)]
    rows_max = max(1, lines_max - len(title) - 1 - len(traffic))  # the totals have one, too
    cells, more = _cells(row, rows_max)
    lines = _grid(cells, columns)
    if len(lines) > len(cells):  # names have lines of their own
        cells, more = _cells(row, max(1, rows_max * len(cells) // len(lines)))
        lines = _grid(cells, columns)
    if more:
        lines.insert(-1, Text(f"... not shown: {more}", style="dim"))
    return [*title, *lines, *traffic]


def _cells(row: dict[str, Any], rows_max: int) -> tuple[list[_Cells], str]:
    """Hosts in at most that many rows and the totals below them; the words for those that are left out."""
    hosts, more, left_out = row["hosts"], "", row.get("left_out", ())
    if len(hosts) > rows_max or left_out:
        selection = select(hosts, max(1, rows_max - 1), left_out=left_out)
        hosts, more = list(selection.shown), words_left_out(selection)
    cells = [
        _Cells(host["name"], host["rack"], host["chunks_verified"], chunks_wanted(host, row), *_state(host))
        for host in hosts
    ]
    total = f"{row['hosts_complete']}/{row['hosts_total']} hosts complete"
    return [*cells, _Cells("all", "", row["bytes_verified"], row["bytes_total"], total, "bold")], more


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
    """Where a line is too narrow, first the bar shrinks, then the state before a reason goes, then whom it is about;
    at last names stand in lines of their own."""
    name_width = max(len(each.name) for each in cells)
    rack_width = max(len(each.rack) for each in cells)
    fixed = name_width + 2 + rack_width + 2 + _DONE_WIDTH + 2
    words = _shortened(cells, columns - fixed)
    if fixed + max(map(len, words)) > columns:
        return _below_names(cells, columns)
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


def _below_names(cells: list[_Cells], columns: int) -> list[Text]:
    """A name, whole, and below it what is said of it. The total, whose name is short, has one line."""
    rack_width = max(len(each.rack) for each in cells)
    lines = []
    for each, word in zip(cells, _shortened(cells, columns - rack_width - _DONE_WIDTH - 8), strict=True):
        lines += [Text(each.name)] if each.rack else []
        start = f"    {each.rack:<{rack_width}}" if each.rack else f"{each.name:<{rack_width + 4}}"
        told = folded(f"{start}  {percent_words(each.part, each.whole):>{_DONE_WIDTH}}  {word}", columns)
        lines += [Text(line, style=each.style) for line in told]
    return lines


def _shortened(cells: list[_Cells], room: int) -> list[str]:
    """The words of each, all in the longest form in which they fit."""
    words = [each.words for each in cells]
    for shorter in (_without_state, _without_subject):
        if max(map(len, words)) > room:
            words = [shorter(one) for one in words]
    return words


def _without_state(words: str) -> str:
    """``downloading (source_auth, says node-1)`` becomes ``source_auth, says node-1``."""
    state, bracket, reason = words.partition(" (")
    return reason.removesuffix(")") if bracket else state


def _without_subject(words: str) -> str:
    return words.partition(", says ")[0].partition(", asked ")[0].partition(" key=")[0]
