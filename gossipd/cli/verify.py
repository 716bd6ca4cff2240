"""``gossipd verify``: the daemon hashes a model on this disk and reports bad chunks."""

from __future__ import annotations

import sys

import click

from gossipd.api.client import DaemonUnreachableError, StatusClient
from gossipd.cli.completion import KnownModel
from gossipd.cli.options import daemon_options, echo_json, examples
from gossipd.core.errors import ExitCode
from gossipd.core.units import percent_words
from gossipd.core.versions import label_words

BAD_SHOWN = 10  # enough to show a pattern, with the count


@click.command(epilog=examples("gossipd verify qwen@3", "gossipd verify qwen@3 --json"))
@click.argument("model", metavar="NAME@VERSION", type=KnownModel(version_needed=True))
@daemon_options
def verify(*, model: tuple[str, int], client: StatusClient, as_json: bool) -> int:
    """Hash every chunk of a model on this host against its signed manifest.

    Exits with 6 when a chunk is bad, and names the first ten. The daemon fetches bad chunks again by itself.
    """
    name, version = model
    bad: list[str] = []
    last: dict[str, object] | None = None
    live = sys.stderr.isatty() and not as_json
    for step in client.verify(name, version):
        last = step
        label = label_words({"name": name, "version": version, **step})
        bad = (bad + step["bad_chunks"])[:BAD_SHOWN]
        if live:
            done = percent_words(step["chunks_checked"], step["chunks_total"])
            click.echo(f"\r{label}  {done}  {step['bad_count']} bad ", nl=False, err=True)
    if live:
        click.echo(err=True)
    if last is None or not last["done"]:
        raise DaemonUnreachableError("the daemon ended the verification before it was done")
    count = last["bad_count"]
    if as_json:
        result = {"name": name, "version": version, "chunks_checked": last["chunks_checked"]}
        echo_json({"schema_version": 1, **result, "bad_count": count, "bad_chunks": bad, "verified": count == 0})
    elif not count:
        click.echo(f"{label}: all {last['chunks_checked']} chunks are good")
    if not count:
        return int(ExitCode.DONE)
    for words in bad:
        click.echo(f"bad: {words}", err=True)
    click.echo(f"E_VERIFICATION: {count} of {last['chunks_total']} chunks of {label} are bad", err=True)
    return int(ExitCode.VERIFICATION)
