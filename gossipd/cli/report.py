"""``gossipd report``: what a deployment did, for people, as JSON, or as one file for a browser.

What lives here: the command, its text, and writing the file. What does not: the figures (``diagnosis.report``), the
page (``web.report_file``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gossipd.api.client import StatusClient
from gossipd.cli.completion import KnownModel
from gossipd.cli.layout import Part, TextTable, show_lines
from gossipd.cli.options import NewFile, daemon_options, echo_json, examples, time_words
from gossipd.cli.simulate_options import FiniteRange, RateParam
from gossipd.core.units import show_bytes

if TYPE_CHECKING:
    from gossipd.diagnosis.report import Moved, Straggler, Summary

READERS_NAMED, RACKS_SHOWN = 8, 40  # for people; --json has them all
REASONS_NAMED = 3


@click.command(
    epilog=examples(
        "gossipd report qwen@3", "gossipd report qwen --out qwen.html", "gossipd report qwen@3 --price-per-gb 0.09",
        "gossipd report qwen@3 --json | jq '.summary.racks[]'",
    )
)  # fmt: skip
@click.argument("model", metavar="NAME[@VERSION]", type=KnownModel(version_needed=False))
@click.option(
    "--out", type=NewFile(path_type=Path, dir_okay=False), metavar="FILE",
    help="Write it: NAME.html as a page with the course of the deployment, else as JSON.",
)  # fmt: skip
@click.option("--price-per-gb", type=FiniteRange(0, 1e9), help="Of external bytes. Default: sources.money_per_gb.")
@click.option("--link", type=RateParam(), help="What each host's link carries. Default: the highest rate seen.")
@click.option("--external", type=RateParam(), help="What storage sends. Default: the highest rate seen.")
@daemon_options
def report(
    *, model: tuple[str, int | None], out: Path | None, price_per_gb: float | None, link: float | None,
    external: float | None, client: StatusClient, as_json: bool,
) -> int:  # fmt: skip
    """What a deployment did: times, bytes by rack and source, what came from storage and its price, and who was late.

    The last host's time stands beside the least that the links allowed, at the rates that are given or were seen.
    From what the daemon of this host has heard; without a version: of the highest. A page written with --out is one
    file that opens from a disk and asks nothing of anybody.
    """
    told = client.report(*model)
    summary = _summary(told, price_per_gb, link, external)
    shown = as_object(told, summary)
    if out is not None:
        write(out, shown)
    if as_json:
        echo_json(shown)
    elif out is not None:
        show_lines([f"{out}: {shown['summary']['label']}, as {shown['report']['told_by']} has heard it"])
    else:
        show_lines(lines_of(summary))
    return 0


def _summary(
    told: dict[str, Any], price_per_gb: float | None = None, link: float | None = None, external: float | None = None
) -> Summary:
    from gossipd.diagnosis.report import summarise

    return summarise(told, money_per_gb=price_per_gb, link=link, external=external)


def as_object(told: dict[str, Any], summary: Summary | None = None) -> dict[str, Any]:
    """What ``--json`` prints and a file holds. ``told``: the answer of ``GET /v1/report``."""
    return {"schema_version": 1, "summary": asdict(summary or _summary(told)), "report": told}


def write(out: Path, shown: dict[str, Any]) -> None:
    """A page or JSON, by the name's end. Raises OSError."""
    import json

    from gossipd.web.report_file import report_html

    text = report_html(shown) if out.suffix.lower() in (".html", ".htm") else json.dumps(shown, indent=1) + "\n"
    out.write_text(text, encoding="utf-8")


def lines_of(found: Summary) -> list[Part]:
    """The report as lines for people."""
    ends = [f"{word} {_seconds(at)}" for word, at in found.quantiles.items()]
    money = "" if found.money is None else f", {found.money:.2f} in money at {found.money_per_gb:g} a GB"
    lines: list[Part] = [
        f"{found.label}  {found.state}  {found.hosts_complete}/{found.hosts_total} hosts  "
        f"{show_bytes(found.bytes_total)}",
        f"complete after  {', '.join(ends)}",
        f"links allowed   {_bound(found)}",
        f"from storage    {show_bytes(found.source_bytes)} ({found.source_ratio:.3f}x){money}",
        f"between racks   {show_bytes(found.cross_rack_bytes)} ({found.cross_rack_ratio:.3f}x)",
        f"waste           {show_bytes(found.duplicate_bytes)} twice, {show_bytes(found.cancelled_bytes)} cut off, "
        f"{show_bytes(found.corrupt_bytes)} damaged; {found.corrupt_chunks} corrupt chunks",
    ]
    if found.readers:
        lines.append(f"read storage    {_named(found.readers)}")
    head = ("RACK", "HOSTS", "FIRST", "LAST", "STORAGE", "SAME RACK", "OTHER RACKS")
    lines += ["", TextTable(head, [_rack(one) for one in found.racks[:RACKS_SHOWN]])]
    if len(found.racks) > RACKS_SHOWN:
        lines.append(f"and {len(found.racks) - RACKS_SHOWN} more; --json has all")
    if found.stragglers:
        cells = [(one.name, one.rack, one.state, _seconds(one.seconds), why_late(one)) for one in found.stragglers]
        lines += ["", TextTable(("LATE", "RACK", "STATE", "AFTER", "WHY"), cells)]
    return lines


def why_late(one: Straggler) -> str:
    """What is known of a host that was late."""
    words = [f"{word} for {time_words(for_s)}" for word, for_s in one.reasons[:REASONS_NAMED]]
    if one.reason and one.reason not in {word for word, _ in one.reasons}:
        words.insert(0, one.reason)
    if one.silent_s is not None and one.silent_from_s is not None:
        words.append(f"not heard for {time_words(one.silent_s)}, from {time_words(one.silent_from_s)} on")
    return "; ".join(words) or "no hindrance told"


def _rack(one: Moved) -> tuple[str, ...]:
    moved = (one.source_bytes, one.peer_bytes_same_rack, one.peer_bytes_cross_rack)
    times = (_seconds(one.first_seconds), _seconds(one.seconds))
    return (one.name or "-", f"{one.complete}/{one.hosts}", *times, *map(show_bytes, moved))


def _bound(found: Summary) -> str:
    bound = found.bound
    if bound is None:
        return "not known; give --link and --external"
    rates = f"{show_bytes(bound.link_bytes_per_s)}/s a host and {show_bytes(bound.external_bytes_per_s)}/s from storage"
    seen = ", the highest seen" if bound.is_measured else ""
    reached = "" if found.reached_ratio is None else f"; it took {found.reached_ratio:.2f} times that"
    return f"{time_words(bound.seconds)}, by {bound.limiting_resource}, at {rates}{seen}{reached}"


def _seconds(at: int | None) -> str:
    return "-" if at is None else time_words(at)


def _named(names: Sequence[str]) -> str:
    more = len(names) - READERS_NAMED
    return ", ".join(names[:READERS_NAMED]) + (f" and {more} more" if more > 0 else "")
