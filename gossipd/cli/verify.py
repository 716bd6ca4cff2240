"""``gossipd verify``: the daemon hashes a model on this disk and reports bad chunks."""

from __future__ import annotations

import sys

import click

from gossipd.api.client import DaemonUnreachableError, StatusClient
from gossipd.cli.completion import KnownModel
from gossipd.cli.layout import columns_of_terminal, cut_in_the_middle, show_lines
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

    Exits with 6 when a chunk is bad, and names the first ten; the daemon fetches bad chunks again by itself. With 9
    when what is here is good, and chunks have not come yet.
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
            looked_at = step["chunks_checked"] + step.get("missing_count", 0)
            told = f"  {percent_words(looked_at, step['chunks_total'])}  {step['bad_count']} bad "
            room = max(1, (columns_of_terminal(err=True) or 0) - len(told) - 1)
            click.echo(f"\r{cut_in_the_middle(label, room)}{told}", nl=False, err=True)
    if live:
        click.echo(err=True)
    if last is None or not last["done"]:
        raise DaemonUnreachableError("the daemon ended the verification before it was done")
    count, missing = last["bad_count"], last.get("missing_count", 0)  # an older daemon checks all
    is_verified = not count and not missing
    if as_json:
        result = {"name": name, "version": version, "chunks_checked": last["chunks_checked"], "missing_count": missing}
        echo_json({"schema_version": 1, **result, "bad_count": count, "bad_chunks": bad, "verified": is_verified})
    elif is_verified:
        show_lines([f"{label}: all {last['chunks_checked']} chunks are good"])
    elif not count:
        words = f"{last['chunks_checked']} chunks are good, {missing} have not come yet"
        show_lines([f"{label} is not complete here: {words}"], err=True)
    if not count:
        return int(ExitCode.DONE if is_verified else ExitCode.PARTIAL)
    told = f"E_VERIFICATION: {count} of {last['chunks_total']} chunks of {label} are bad"
    show_lines([*(f"bad: {words}" for words in bad), told], err=True)
    return int(ExitCode.VERIFICATION)
