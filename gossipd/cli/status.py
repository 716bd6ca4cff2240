"""``gossipd status``: the whole cluster as the local daemon knows it, for people, for scripts, or live.

What lives here: the plain page. What does not: the live page (``live_status``, which needs rich), and the fields
(``api.schema``).
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Sequence
from typing import Any

import click

from gossipd.api.client import StatusClient
from gossipd.cli.completion import KnownModel
from gossipd.cli.host_selection import HOSTS_SHOWN, RACKS_MAX, racks_worst_first, select, words_left_out
from gossipd.cli.layout import Part, TextTable, show_lines
from gossipd.cli.options import (
    chunks_wanted,
    daemon_options,
    echo_json,
    examples,
    reason_words,
    time_words,
    traffic_words,
)
from gossipd.core.errors import UsageError
from gossipd.core.reasons import TAKEN_BACK
from gossipd.core.units import part_words, percent_words, show_bytes, show_count
from gossipd.core.versions import label_words

_COLOURS = {"complete": "green", "alive": "green", "ok": "green", "failed": "red", "dead": "red", "suspect": "yellow"}
SEEDS_SHOWN = 6  # a line of them; a large cluster has dozens


@click.command(
    epilog=examples(
        "gossipd status --config /srv/gossipd/gossipd.toml",
        "gossipd status qwen@3 --watch",
        "gossipd status qwen@3 --all",
        "gossipd status qwen@3 --sketch",
        "gossipd status --json | jq '.deployments[0].state'",
    )
)
@click.argument("model", required=False, metavar="[NAME[@VERSION]]", type=KnownModel(version_needed=False))
@click.option("--watch", is_flag=True, help="Live view: a bar for each host and the totals; Ctrl-C leaves it.")
@click.option("--sketch", is_flag=True, help="Which chunks of the model each host has, where this daemon knows it.")
@click.option("--all", "is_whole", is_flag=True, help="A row for every host, however many there are.")
@daemon_options
def status(
    *, model: tuple[str, int | None] | None, watch: bool, sketch: bool, is_whole: bool, client: StatusClient,
    as_json: bool,
) -> int:  # fmt: skip
    """How far every deployment is.

    Of more than 24 hosts it shows those with a problem (failed, refused, stalled, dead), the ten slowest, and, while a
    host lacks something, counts for each rack; --all shows every host. Asks the daemon on this machine; any daemon
    answers for the whole cluster. Its knowledge of other hosts may be some seconds old: AGE says how old.
    """
    name, version = model if model is not None else (None, None)
    if sketch:
        return _show_sketch(client, name, version, as_json=as_json)
    if watch:
        from gossipd.cli.live_status import watch_status

        return watch_status(lambda most: client.status(name, version, hosts_max=most), as_json=as_json)
    if as_json:
        echo_json(client.status(name, version))
        return 0
    page = client.status(name, version, hosts_max=None if is_whole else HOSTS_SHOWN)
    show_lines(page_lines(page, colour=_colour(), is_whole=is_whole), color=True)
    return 0


def _show_sketch(client: StatusClient, name: str | None, version: int | None, *, as_json: bool) -> int:
    if name is None:
        raise UsageError("--sketch shows one model: gossipd status NAME[@VERSION] --sketch")
    from gossipd.cli.sketches import sketch_lines

    answer = client.sketches(name, version)
    if as_json:
        echo_json(answer)
    else:
        show_lines(sketch_lines(answer))
    return 0


def page_lines(page: dict[str, Any], *, colour: bool, is_whole: bool = False) -> list[Part]:
    """The plain page; ``is_whole``: with a row for every host."""
    lines: list[Part] = [*_head(page, colour)]
    for row in page["deployments"]:
        lines += ["", *_deployment(row, colour, is_whole=is_whole)]
    if not page["deployments"]:
        lines += ["", "nothing is deployed; drop a manifest into the inbox, or: gossipd deploy MANIFEST"]
    return lines


def _head(page: dict[str, Any], colour: bool) -> list[str]:
    node, security, store = page["node"], page["security"], page["store"]
    members = page["members"]
    states = [each["state"] for each in members]
    words = ("alive", "suspect", "dead", "left", "unheard")
    counts = [f"{states.count(word)} {word}" for word in words if word in states]
    seeds = [f"{each['rack']}: {each['name']}" for each in members if each["seed"]]
    if len(seeds) > SEEDS_SHOWN:
        seeds[SEEDS_SHOWN:] = [f"and {len(seeds) - SEEDS_SHOWN} more (gossipd members)"]
    racks = {each["rack"] for each in members if each["state"] != "unheard"}
    lines = [
        f"{node['name']}  rack {node['rack']}  {node['address']}  gossipd {node['version']}  "
        f"up {time_words(node['uptime_s'])}",
        f"members   {', '.join(counts) or 'none'}  in {len(racks)} rack{'s' if len(racks) != 1 else ''}",
        f"seeds     {', '.join(seeds) or 'none'}",
        f"security  {_painted(security['state'], colour)}, bulk {security['bulk_encryption']}"
        + "".join(f"; {reason}" for reason in security["reasons"]),
        f"store     {_painted(store['condition'], colour)}, {show_bytes(store['free_bytes'])} free"
        + (f"; {store['detail']}" if store["detail"] else ""),
    ]
    if watermark := watermark_words(page.get("watermark", {})):
        lines.append(f"disk      {watermark}")
    lines += [f"memory    {warm_words(row)}" for row in page.get("warm", [])]
    if limits := limits_words(page.get("limits", {})):
        lines.append(f"limits    {limits}")
    if page["inbox"]["trouble"]:
        lines.append(f"inbox     {page['inbox']['trouble']}")
    lines += [f"ALARM     {alarm['code']}: {alarm['sentence']} (since {alarm['since']})" for alarm in page["alarms"]]
    return lines


def watermark_words(watermark: dict[str, Any]) -> str:
    """The marks of the disk, and what is pinned; empty when neither is set."""
    told = []
    if watermark.get("high_percent"):
        told.append(
            f"{watermark['used_percent']:g} % used, evicts at {watermark['high_percent']} % down to "
            f"{watermark['low_percent']} %, {watermark['evicted']} evicted"
        )
    pinned = watermark.get("pinned_labels") or watermark.get("pinned", [])
    if pinned:
        told.append(f"pinned {', '.join(pinned[:5])}" + (f" and {len(pinned) - 5} more" if len(pinned) > 5 else ""))
    return "; ".join(told)


def warm_words(row: dict[str, Any]) -> str:
    """How much of a current version is in memory, and whether more is read."""
    cached, total = row["bytes_cached"], row["bytes_total"]
    share = f"{100 * cached // max(1, total)} % of {show_bytes(total)}" if cached is not None else show_bytes(total)
    return f"{row['model']} {share} cached, {row['state']}"


def limits_words(limits: dict[str, Any]) -> str:
    """The entry of the timetable and the limits in force; empty where nothing is limited and there is no timetable."""
    shared = limits.get("shared_bytes_per_s", 0)
    words = _own_limits_words(limits)
    if not shared:
        return words
    held = f"download {show_bytes(shared)}/s while others use the link"
    return f"{words}; {held}" if words else held


def _own_limits_words(limits: dict[str, Any]) -> str:
    told = [
        f"{name} {show_bytes(rate)}/s"
        for name in ("upload", "download", "source")
        if (rate := limits.get(f"{name}_bytes_per_s", 0))
    ]
    if limits.get("until") is None and not limits.get("entry"):
        return ", ".join(told)
    entry = " ".join(limits["entry"].split()[:2]) or "between entries"
    until = f" until {limits['until']}" if limits["until"] else ""
    return f"{', '.join(told) or 'none'} ({entry}{until})"


def _deployment(row: dict[str, Any], colour: bool, *, is_whole: bool) -> list[Part]:
    lines: list[Part] = ["  ".join(_title(row, colour)), f"  {traffic_words(row)}"]
    left_out = row.get("left_out", ())
    if is_whole or (len(row["hosts"]) <= HOSTS_SHOWN and not left_out):
        return [*lines, _host_table(row, row["hosts"], colour)]
    selection = select(row["hosts"], left_out=left_out)
    if selection.shown:
        lines.append(_host_table(row, selection.shown, colour))
    if selection.left_out:
        lines.append(f"  not shown: {words_left_out(selection)} (--all shows every host)")
    return lines + _rack_table(row)


def _title(row: dict[str, Any], colour: bool) -> list[str]:
    words = [
        label_words(row),
        _painted(row["state"], colour),
        percent_words(row["bytes_verified"], row["bytes_total"]),
        f"{row['hosts_complete']}/{row['hosts_total']} hosts",
        f"{show_bytes(row['bytes_total'])} in {show_count(row['chunks_total'], 'chunk')}",
    ]
    if taken_back := TAKEN_BACK.get(row.get("word", "")):
        words.append(taken_back)
    if current := current_words(row):
        words.append(current)
    if row["rate_in_bytes_per_s"]:
        words.append(f"{show_bytes(row['rate_in_bytes_per_s'])}/s")
    if row["eta_s"] is not None:
        words.append(f"{time_words(row['eta_s'])} to go")
    if row["lineage"]:
        words.append(row["lineage"])
    if row["stall"]:
        words.append(f"stalled here: {row['stall']}")
    return words


def current_words(row: dict[str, Any]) -> str:
    """``current: 3 on 198, 2 on 2``, where hosts differ or users see an older version than this; of many the most."""
    versions: Counter[int] = Counter()
    for one in (*row["hosts"], *row.get("left_out", ())):
        if (version := one.get("current")) is not None:
            versions[version] += one.get("hosts", 1)
    if len(versions) < 2 and all(version >= row["version"] for version in versions):
        return ""
    labels = {str(row["version"]): row.get("version_label")} | row.get("current_labels", {})
    return "current: " + ", ".join(
        f"{labels.get(str(version)) or version} on {count}" for version, count in versions.most_common(4)
    )


def _host_table(row: dict[str, Any], hosts: Sequence[dict[str, Any]], colour: bool) -> TextTable:
    has_parts = any(host.get("chunks_wanted") for host in hosts)
    cells = [
        (
            host["name"],
            host["rack"],
            _painted(host["state"], colour and host["state"] in ("complete", "failed")),
            percent_words(host["chunks_verified"], chunks_wanted(host, row)),
            *((_part(host),) if has_parts else ()),
            "-" if host["age_s"] is None else time_words(host["age_s"]),
            reason_words(host),
        )
        for host in hosts
    ]
    head = ("HOST", "RACK", "STATE", "DONE", *(("WANTS",) if has_parts else ()), "AGE", "REASON")
    return TextTable(head, cells, "  ")


def _part(host: dict[str, Any]) -> str:
    if not host.get("chunks_wanted"):
        return "all"
    return f"{show_bytes(host['bytes_wanted'])}: {part_words(host['want'])}"


def _rack_table(row: dict[str, Any]) -> list[Part]:
    """None where every rack is complete: it would say so forty times, of each of a hundred models."""
    counts = racks_worst_first(row)
    if all(one.complete == one.hosts and not one.problems for one in counts):
        return []
    cells = [
        (
            one.rack,
            f"{one.complete}/{one.hosts}",
            percent_words(one.chunks, one.chunks_wanted),
            str(one.problems or "-"),
        )
        for one in counts[:RACKS_MAX]
    ]
    lines: list[Part] = [TextTable(("RACK", "COMPLETE", "DONE", "PROBLEMS"), cells, "  ")]
    if len(counts) > RACKS_MAX:
        lines.append(f"  ... and {show_count(len(counts) - RACKS_MAX, 'rack')} further on")
    return lines


def _colour() -> bool:
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR")


def _painted(word: str, colour: bool) -> str:
    return click.style(word, fg=_COLOURS.get(word, "cyan")) if colour else word
