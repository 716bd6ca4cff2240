"""``gossipd wait``: return when a model is on the hosts, or report by the exit code why not.

An unknown model is waited for too, because a script drops a manifest and waits at once, and a host that has just booted
learns of it later. So is a daemon that does not run yet, or is restarted.

What lives here: rounds of waiting, and the line that shows how far it is. What does not: when it is enough, and what no
waiting cures (``api.readiness``, asked through ``GET /v1/wait``).
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from typing import Any, ClassVar

import click

from gossipd.api.client import DaemonSilentError, DaemonUnreachableError, RefusedByDaemonError, StatusClient
from gossipd.cli.completion import KnownModel
from gossipd.cli.host_selection import rank_of_problem
from gossipd.cli.layout import cut_in_the_middle, show_lines
from gossipd.cli.options import (
    Duration,
    daemon_options,
    echo_json,
    examples,
    time_words,
)
from gossipd.core.errors import ExitCode, GossipdError, UsageError
from gossipd.core.units import percent_words, show_bytes
from gossipd.core.versions import label_words

WORDS = {"complete": "complete on", "current": "current on", "removed": "removed from"}
"""What hosts are counted by."""
HERE = "here"
LABEL_LEAST = 20  # characters
POLL_S = 0.5  # while no daemon answers
SHOWN_S, ROUND_S = 1.0, 15.0  # a round of waiting, on a terminal and in a script


class WaitTimeoutError(GossipdError):
    """The hosts were not ready in time. Fault: nobody. Retry: wait longer, or look at ``gossipd status``."""

    code = "E_TIMEOUT"
    exit_code: ClassVar[ExitCode] = ExitCode.TIMEOUT


class HostCount(click.ParamType):  # type: ignore[type-arg]  # generic only since click 8.3
    """``here``, ``90%`` or a number of hosts, as the daemon is asked."""

    name = "hosts"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        text = str(value)
        if text == HERE:
            return text
        share = text.endswith("%")
        try:
            number = float(text[:-1]) if share else float(int(text))
        except ValueError:
            number = -1.0
        if not (0 < number <= 100 if share else number >= 1):
            self.fail(f"{text!r} is neither here, nor a share such as 90%, nor a number of hosts", param, ctx)
        return f"{number}%" if share else f"{number:.0f}"


@click.command(epilog=examples("gossipd wait qwen@3", "gossipd wait org/model@7 --hosts here --timeout 30m --json"))
@click.argument("model", metavar="NAME@VERSION", type=KnownModel(version_needed=True))
@click.option(
    "--hosts", default="100%", show_default=True, type=HostCount(), help="How many targets, or here: this host."
)
@click.option("--timeout", "timeout_s", default="30m", show_default=True, type=Duration(), help="How long at most.")
@click.option("--current", is_flag=True, help="Until `current` leads to it: after a rollback --everywhere.")
@click.option("--removed", is_flag=True, help="Until they have removed it: after a rm --everywhere.")
@daemon_options
def wait(
    *, model: tuple[str, int], hosts: str, timeout_s: float, current: bool, removed: bool,
    client: StatusClient, as_json: bool,
) -> int:  # fmt: skip
    """Wait until a deployment is complete on enough hosts; or is what users of the name see there, or is gone.

    Exits with 0 when it is, 5 when the time is up, 4 when no daemon was there until then, 9 when it has ended with
    too few, 1 when it was cancelled. If no host can get it: 6 verification, 7 refused, 8 disk, 10, 11 storage.
    """
    if current and removed:
        raise UsageError("give --current or --removed, not both")
    goal = "current" if current else "removed" if removed else "complete"
    row = wait_for(client, model, hosts, timeout_s, goal=goal)
    if as_json:
        echo_json({"schema_version": 1, "deployment": row})
    else:
        show_lines([ready_words(label_words(row), row, goal, hosts)])
    return 0


def wait_for(
    client: StatusClient, model: tuple[str, int], hosts: str, timeout_s: float, *, goal: str = "complete"
) -> dict[str, Any]:
    """The row in which enough hosts are there; how far it is, on a terminal. Raises what ``wait`` ends with."""
    line = _ProgressLine(f"{model[0]}@{model[1]}", goal)
    try:
        return _until_enough(client, model, hosts, timeout_s, line)
    finally:
        line.end()


def ready_words(label: str, row: dict[str, Any], goal: str = "complete", hosts: str = "100%") -> str:
    """What has come: ``qwen@3 complete on 512 of 512 hosts``, or on which host where only this one was waited for."""
    here = next((host["name"] for host in row["hosts"] if host.get("here")), None) if hosts == HERE else None
    count = row["hosts_complete"] if goal == "complete" else _count(row, goal)
    where = f"{here}, this host" if here is not None else f"{count} of {row['hosts_total']} hosts"
    return f"{label} {WORDS[goal]} {where}"


def _until_enough(
    client: StatusClient, model: tuple[str, int], hosts: str, timeout_s: float, line: _ProgressLine
) -> dict[str, Any]:
    deadline = time.monotonic() + timeout_s
    sentence: str | None = None
    unreachable: DaemonUnreachableError | None = None
    has_answered, label = False, f"{model[0]}@{model[1]}"
    while True:
        left = max(0.0, deadline - time.monotonic())
        try:
            answer = client.wait_round(*model, hosts, min(line.round_s, left), goal=line.goal, left_s=left)
            has_answered, unreachable = True, None
            row: dict[str, Any] | None = answer["deployment"]
            sentence = answer["sentence"] if row is not None else None
            line.show(row, answer.get("label", ""))
            label = answer.get("label") or label
            if row is not None and answer["ready"]:
                return row
        except RefusedByDaemonError as error:
            if error.code == "E_CANCELLED":
                raise GossipdError(str(error), code=error.code) from None  # with 1: somebody has wanted it so
            raise
        except DaemonUnreachableError as error:
            if unreachable is None and not has_answered and time.monotonic() < deadline:
                show_lines([f"{error}; waiting for it"], err=True)
            unreachable = error
            time.sleep(min(POLL_S, max(0.0, deadline - time.monotonic())))
        if time.monotonic() >= deadline:
            unknown = f"no deployment {label} became known within {timeout_s:g} s"
            told = unknown if sentence is None else f"after {timeout_s:g} s {sentence}"
            if unreachable is None:
                raise WaitTimeoutError(told)
            if has_answered:
                raise WaitTimeoutError(f"{told}, as heard last; {unreachable}")
            if isinstance(unreachable, DaemonSilentError):
                cure = "it is busy, hangs or is stopped: look at its process and its log"
                raise WaitTimeoutError(f"after {timeout_s:g} s the daemon at {client.path} has not answered; {cure}")
            raise unreachable


class _ProgressLine:
    """One line on stderr that is written over, where that is a terminal: a script's log gets none of it."""

    def __init__(self, label: str, goal: str) -> None:
        self._label = label
        self.goal = goal
        self._is_open = False
        self._is_shown = sys.stderr.isatty()
        self.round_s = SHOWN_S if self._is_shown else ROUND_S

    def show(self, row: dict[str, Any] | None, label: str) -> None:
        if not self._is_shown:
            return
        from shutil import get_terminal_size  # a script, whose log gets nothing, starts without it

        label = label or self._label if row is None else label_words(row)
        words = progress_line(label, row, self.goal, get_terminal_size().columns - 1)
        click.echo(f"\r\x1b[K{words}", err=True, nl=False, color=True)
        self._is_open = True

    def end(self) -> None:
        """What follows stands on a line of its own."""
        if self._is_open:
            click.echo("", err=True)
            self._is_open = False


def progress_line(label: str, row: dict[str, Any] | None, goal: str, columns: int) -> str:
    """``progress_words`` in one line: where it is too long, the label is cut in its middle, then the end, visibly."""
    whole = progress_words(label, row, goal)
    label = cut_in_the_middle(label, max(LABEL_LEAST, len(label) - max(0, len(whole) - columns)))
    words = progress_words(label, row, goal)
    return words if len(words) <= columns else words[: columns - 1] + "…"


def progress_words(label: str, row: dict[str, Any] | None, goal: str = "complete") -> str:
    """``qwen@3  81.0 %  412/512 hosts  3.1 GiB/s  2m 10s to go; 3 no_space``: for a terminal, most pressing first."""
    if row is None:
        return f"{label}  not known here yet"
    if goal != "complete":
        return f"{label}  {WORDS[goal]} {_count(row, goal)}/{row['hosts_total']} hosts"
    words = [label, percent_words(row["bytes_verified"], row["bytes_total"])]
    words.append(f"{row['hosts_complete']}/{row['hosts_total']} hosts")
    if row["rate_in_bytes_per_s"]:
        words.append(f"{show_bytes(row['rate_in_bytes_per_s'])}/s")
    if row["eta_s"] is not None:
        words.append(f"{time_words(row['eta_s'])} to go")
    reasons = Counter(host["reason"] for host in row["hosts"] if rank_of_problem(host) is not None)
    told = ", ".join(f"{count} {reason}" for reason, count in reasons.most_common(3) if reason)
    return "  ".join(words) + (f"; {told}" if told else "")


def _count(row: dict[str, Any], goal: str) -> int:
    if goal == "current":
        return sum(host.get("current") == row["version"] for host in row["hosts"])
    return sum(host["state"] == goal for host in row["hosts"])
