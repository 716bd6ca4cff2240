"""``gossipd latest`` and ``gossipd hold``: which version a job resumes from, and keeping it while the job runs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import click

from gossipd.api.client import StatusClient
from gossipd.cli.completion import KnownModel, KnownName
from gossipd.cli.layout import show_lines
from gossipd.cli.options import VersionNumber, daemon_options, echo_json, examples, prefix_option
from gossipd.client.holding import held
from gossipd.core.errors import UsageError
from gossipd.core.versions import label_words


@click.command(epilog=examples("gossipd latest run-7", "gossipd latest run-7 --where node-1,node-2 --json"))
@click.argument("name", metavar="NAME", type=KnownName())
@click.option(
    "--where",
    default="everywhere",
    show_default=True,
    help="Where it must be complete: here, anywhere, everywhere, or hosts by name, separated by commas; recoverable: "
    "nowhere yet, but it can be had.",
)
@click.option("--before", type=VersionNumber(), metavar="VERSION", help="Only versions below this one.")
@click.option("--long", "is_long", is_flag=True, help="Also the run and step that the publisher named.")
@daemon_options
def latest(
    *, name: str, where: str, before: int | None, is_long: bool, client: StatusClient, as_json: bool
) -> int:  # fmt: skip
    """The newest version of NAME that is complete where it matters; the same answer on every host.

    Prints NAME@VERSION. Exits with 3 when no version is known, 9 when none is complete there
    or none is below --before.
    """
    row = client.latest(name, where, before)
    if as_json:
        echo_json({"schema_version": 1, "deployment": row})
    else:
        show_lines([label_words(row) + (f"  {row['lineage'] or '-'}" if is_long else "")])
    return 0


@click.command(
    context_settings={"allow_interspersed_args": False},  # options after NAME are the command's
    epilog=examples("gossipd hold qwen@3 -- vllm serve /models/qwen/3"),
)
@click.argument("model", metavar="NAME[@VERSION]", type=KnownModel(version_needed=False))
@click.argument("command", metavar="[-- COMMAND...]", nargs=-1, type=click.UNPROCESSED)
@click.option("--part", is_flag=True, help="Also where only a part of it is wanted on this host.")
@prefix_option
@daemon_options
def hold(
    *, model: tuple[str, int | None], command: tuple[str, ...], part: bool, prefix: str | None, client: StatusClient,
    as_json: bool,
) -> int:  # fmt: skip
    """Run COMMAND while a version is kept on this host: newer versions do not evict it.

    Without a command: until the input ends. Exits with the command's code.
    """
    if command[:1] and command[0] != "--" and command[0].startswith("-"):
        raise UsageError(f"{command[0]} stands behind the model, where the command is: options of hold go before it")
    command = command[1:] if command[:1] == ("--",) else command
    if as_json:
        raise UsageError("hold has no answer for --json; the command that it runs writes to stdout")
    with held(Path(client.complete_model(*model, part=part, prefix=prefix)["path"])) as directory:
        if not command:
            show_lines([f"holding {directory}"], err=True)
            sys.stdin.read()
            return 0
        try:
            code = subprocess.run(command, check=False).returncode
        except OSError as error:
            raise UsageError(f"{command[0]}: {error.strerror}") from None
    return code if code >= 0 else 128 - code  # ended by a signal: as shells say it
