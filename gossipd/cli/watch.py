"""``gossipd watch``: finished steps of a training run become versions by themselves.

What lives here: the loop, and what it prints. What does not: when a step is finished (``publish.step_watch``), and
publishing (the daemon, through ``gossipd.client``).
"""

from __future__ import annotations

import sys
import time
from collections.abc import Collection
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gossipd.api.client import DaemonUnreachableError, RefusedByDaemonError, StatusClient, find_sockets
from gossipd.cli.layout import show_lines
from gossipd.cli.options import GivenFile, examples
from gossipd.client.arguments import patterns
from gossipd.client.client import Client
from gossipd.core.errors import GossipdError, UsageError
from gossipd.core.units import printable
from gossipd.core.versions import split_version

if TYPE_CHECKING:
    from gossipd.publish.step_listing import StepLister
    from gossipd.publish.step_watch import StepListing

LOOK_S = 0.5


@click.command(
    epilog=examples("gossipd watch /scratch/run-7 --name train/run-7", "gossipd watch . --name m --marker DONE")
)
@click.argument("directory", metavar="DIR", type=GivenFile(path_type=Path))
@click.option("--name", required=True, help="The model's name; steps become its versions.")
@click.option("--pattern", default="*", show_default=True, help="Only directories of such names; digits must end them.")
@click.option("--marker", metavar="FILE", help="The file that is written last.  [default: .metadata, or safetensors]")
@click.option("--keep-last", type=click.IntRange(1), metavar="N", help="The newest N versions live on every host.")
@click.option("--keep-every", type=click.IntRange(0), metavar="K", help="With --keep-last: steps that K divides, too.")
@click.option("--exclude", multiple=True, metavar="GLOB", help="Not these files; '*' matches '/' too.")
@click.option("--once", is_flag=True, help="Publish what is finished, and end.")
@click.option("--socket", metavar="PATH", help="The daemon's.  [default: $GOSSIPD_SOCKET, ./gossipd.sock]")
@click.option("--config", metavar="FILE", help="A daemon's gossipd.toml; its socket is asked.")
def watch(
    *, directory: Path, name: str, pattern: str, marker: str | None, once: bool, socket: str | None, config: str | None,
    keep_last: int | None, keep_every: int | None, exclude: tuple[str, ...],
) -> int:  # fmt: skip
    """Publish each step that a trainer has finished below DIR, through this host's daemon, which signs for this user.

    A step is finished when its writer's last file is there, nothing is newer, no shard is missing, and two looks a
    second apart agree. What was there before and is not above the last version is left alone; a directory that is
    written over is published again. Prints a line for each version. A daemon that does not run yet is waited for, and
    so is DIR where it cannot be read for a while.
    """
    from gossipd.core.versions import show_step
    from gossipd.publish.step_listing import StepLister
    from gossipd.publish.step_watch import SETTLED_S, KnownSteps, PublishStepDirectory, StepWatch

    if keep_every is not None and keep_last is None:
        raise UsageError("--keep-every goes with --keep-last")
    client = Client(socket, config=config)
    last = _last_version(client, name, waits=not once)
    looks = _Looks(directory, StepLister(directory, pattern, patterns(exclude).get("exclude", ""), marker))
    present = {listing.step for listing in looks.look(waits=False).values()}
    path, questions = find_sockets(socket, config)
    made_s = _made_s(StatusClient(path, questions=questions), name, present)
    known = KnownSteps(last, made_s, time.time())
    steps = StepWatch(marker=marker, known=known, keep_last=keep_last, keep_every=keep_every)
    begun, refused = time.monotonic(), dict[str, int]()
    while True:
        steps.looked(looks.look(waits=not once), time.monotonic())
        while commands := steps.drain():
            for command in commands:
                if isinstance(command, PublishStepDirectory):
                    try:
                        made = client.publish(
                            directory / command.directory, name=name, step=command.step, keep_last=keep_last,
                            keep_every=keep_every, exclude=exclude,
                        )  # fmt: skip
                    except GossipdError as error:
                        if isinstance(error, DaemonUnreachableError) and not once:
                            _last_version(client, name, waits=True)
                        steps.failed(command.directory, error.sentence, time.monotonic())
                        refused[command.directory] = error.code_of_exit
                    else:
                        refused.pop(command.directory, None)
                        shown = printable(command.directory)
                        show_lines([f"{made.name}@{show_step(made.version)}  {shown}  id {made.id[:12]}"])
                        sys.stdout.flush()
                        steps.published(command.directory, time.monotonic(), (made.file_count, made.bytes_total))
                else:
                    show_lines([printable(f"{command.directory}: {command.sentence}")], err=True)
        if once and time.monotonic() - begun > 2 * SETTLED_S:
            return next(iter(refused.values()), 0)
        time.sleep(LOOK_S)


class _Looks:
    """At the steps. A directory that cannot be read at the start is an error; later it is told once, and waited for."""

    def __init__(self, directory: Path, lister: StepLister) -> None:
        self._directory = directory
        self._lister = lister

    def look(self, *, waits: bool) -> dict[str, StepListing]:
        """Raises UsageError where it does not wait."""
        told = None
        while True:
            try:
                return self._lister.look()
            except OSError as error:
                words = f"{self._directory}: {error.strerror}"
                if not waits:
                    raise UsageError(words) from None
                if words != told:
                    told = words
                    show_lines([f"{words}; waiting for it"], err=True)
            time.sleep(LOOK_S)


def _last_version(client: Client, name: str, *, waits: bool) -> int | None:
    """As ``Client.last_version``, with ``waits`` of a daemon that starts later, or again, too; told once on stderr."""
    is_told = False
    while True:
        try:
            return client.last_version(name)
        except DaemonUnreachableError as error:
            if not waits:
                raise
            if not is_told:
                show_lines([f"{error}; waiting for it"], err=True)
                is_told = True
            time.sleep(LOOK_S)


def _made_s(daemon: StatusClient, name: str, steps: Collection[int]) -> dict[int, float]:
    """When the newest version of each of the steps was made, as far as this host knows its manifest."""
    made: dict[int, float] = {}
    try:
        versions = sorted(int(row["version"]) for row in daemon.status(name)["deployments"])
    except RefusedByDaemonError:
        return made  # it knows none
    for version in versions:
        if (step := split_version(version)[0]) in steps:
            try:
                made[step] = datetime.fromisoformat(daemon.manifest(name, version)["created_at"]).timestamp()
            except RefusedByDaemonError:
                made.pop(step, None)  # the version before it says nothing of the newest
    return made
