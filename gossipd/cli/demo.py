"""``gossipd demo``: a deployment on this machine. Progress on stderr, the result on stdout."""

from __future__ import annotations

import json
import sys
import time
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any

import click

from gossipd.cli.layout import show_lines
from gossipd.cli.options import NewFile, examples, parsed, time_words
from gossipd.core.units import parse_bytes, show_bytes

if TYPE_CHECKING:
    from gossipd.demo.hosts import DemoHost
    from gossipd.demo.play import DemoResult
    from gossipd.demo.web_page import DemoPage

_EXAMPLES = (
    "gossipd demo",
    "gossipd demo --web",
    "gossipd demo --kill node-3 --report demo.html",
    "gossipd demo --corrupt node-2",
    "gossipd demo --hosts 12 --racks 3 --size 1GiB --json",
)


@click.command(
    epilog=examples(*_EXAMPLES)
    + "\n\nExit codes: 0 every byte of every host is right; 1 it went wrong; 2 wrong arguments; 6 a byte differs."
)
@click.option("--hosts", default=6, show_default=True, type=click.IntRange(1, 64), help="Daemons, node-1 to node-N.")
@click.option("--racks", default=2, show_default=True, type=click.IntRange(1, 64), help="Racks they are spread over.")
@click.option("--size", default="256MiB", show_default=True, help="Size of the toy model.")
@click.option("--kill", metavar="HOST", help="SIGKILL this host half-way, and start it again.")
@click.option("--corrupt", metavar="HOST", help="Flip bytes in what this host has stored, half-way.")
@click.option(
    "--encryption", default="tls", show_default=True, type=click.Choice(("tls", "none")), help="Of model bytes."
)
@click.option("--json", "as_json", is_flag=True, help="The last line of stdout is one JSON object.")
@click.option("--keep", is_flag=True, help="Leave the files, and say where.")
@click.option("--web", is_flag=True, help="Show it in a browser, too; the daemons then run until Ctrl-C.")
@click.option(
    "--report", type=NewFile(path_type=Path, dir_okay=False), metavar="FILE",
    help="What gossipd report says of it: NAME.html with a replay, else JSON.",
)  # fmt: skip
def demo(*, size: str, as_json: bool, web: bool, report: Path | None, **options: Any) -> None:
    """Deliver a toy model to real daemons on this machine, and check every byte.

    Starts the daemons as processes on loopback, serves the model from a local HTTP server that counts what it sends,
    drops the signed manifest into one inbox, shows what moves from where, compares every host's files with the
    original, and cleans up. Needs no root, no network and no configuration.
    """
    from gossipd.demo.play import DemoOrder, play

    size_bytes = parsed("--size", parse_bytes, size)
    with _Audience(live=sys.stderr.isatty(), web=web, as_json=as_json, report=report) as audience:
        play(DemoOrder(size_bytes=size_bytes, **options), audience)


class _Audience:
    """Shows sentences, and on a terminal a bar for each host, on stderr; with ``web`` a page; the result on stdout."""

    def __init__(self, *, live: bool, web: bool, as_json: bool, report: Path | None) -> None:
        self._live = live
        self._web = web
        self._as_json = as_json
        self._report = report
        self._first: DemoHost | None = None
        self._page: DemoPage | None = None
        self._began = time.monotonic()
        self._bars: Any = None
        self._tasks: dict[str, Any] = {}

    def __enter__(self) -> _Audience:
        return self

    def __exit__(self, *_: object) -> None:
        self._end_bars()
        if self._page is not None:
            self._page.close()

    def gathered(self, first: DemoHost) -> None:
        self._first = first
        if self._web:
            from gossipd.demo.web_page import DemoPage, open_browser

            self._page = DemoPage(first)
            self.step(f"the page is at {self._page.url}")
            open_browser(self._page.url)

    def finished(self, result: DemoResult) -> None:
        self._end_bars()
        if self._report is not None and self._first is not None:
            from gossipd.cli.report import as_object, write
            from gossipd.demo.play import NAME

            write(self._report, as_object(self._first.client.report(NAME)))
            self.step(f"the report is in {self._report}")
        if self._as_json:
            click.echo(json.dumps({"schema_version": 1, **asdict(result)}))
        else:
            show_lines(_words(result))
        if self._page is not None:
            sys.stdout.flush()
            with suppress(KeyboardInterrupt):
                show_lines([f"the daemons run on for {self._page.url}; Ctrl-C ends them"], err=True)
                Event().wait()

    def _end_bars(self) -> None:
        if self._bars is not None:
            self._bars.stop()
            self._bars = None

    def step(self, words: str) -> None:
        line = f"{time.monotonic() - self._began:5.1f} s  {words}"
        if self._bars is not None:
            self._bars.console.print(line, highlight=False)
        else:
            show_lines([line], err=True)

    def progress(self, chunks: dict[str, int], total: int) -> None:
        if not self._live:
            return
        if self._bars is None:
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

            columns = (TextColumn("{task.description:>8}"), BarColumn(50), MofNCompleteColumn(), TextColumn("chunks"))
            self._bars = Progress(*columns, console=Console(stderr=True))
            self._bars.start()
        for name, count in sorted(chunks.items(), key=lambda item: int(item[0].rpartition("-")[2])):
            if name not in self._tasks:
                self._tasks[name] = self._bars.add_task(name, total=total)
            self._bars.update(self._tasks[name], completed=count)


def _words(result: DemoResult) -> list[str]:
    size = result.bytes_total
    racks = f"{result.racks} rack{'s' if result.racks > 1 else ''}"
    lines = [
        f"{result.hosts_complete} of {result.hosts} hosts in {racks} have all {show_bytes(size)} "
        f"({result.chunks_total} chunks) after {time_words(result.seconds)}, every byte compared",
        f"  from storage   {show_bytes(result.source_bytes):>9}  {result.source_bytes / size:.2f} x the model, "
        f"in {result.source_requests} requests, by the server's own count",
        f"  between racks  {show_bytes(result.peer_bytes_cross_rack):>9}  "
        f"{result.peer_bytes_cross_rack / size:.2f} x the model",
        f"  inside racks   {show_bytes(result.peer_bytes_same_rack):>9}  "
        f"{result.peer_bytes_same_rack / size:.2f} x the model",
    ]
    if result.duplicate_bytes:
        lines.append(f"  fetched twice  {show_bytes(result.duplicate_bytes):>9}")
    if result.killed is not None:
        lines.append(f"{result.killed} was killed with {result.killed_at_chunks} chunks, resumed and completed")
    if result.corrupted_on_disk:
        lines.append(
            f"{result.corrupted_on_disk} chunks were damaged on disk, {result.corrupt_chunks} mismatches were found "
            "and counted, all are repaired"
        )
    if result.directory is not None:
        lines.append(f"kept in {result.directory}; to run a host again, see its gossipd.toml")
    return lines
