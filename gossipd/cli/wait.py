"""``gossipd wait``: return when a model is on the hosts, or report by the exit code why not.

An unknown model is waited for too, because a script drops a manifest and waits at once, and a host that has just booted
learns of it later. So is a daemon that does not run yet, or is restarted. What no waiting cures ends the command early:
so many hosts have refused, or have a reason that does not end by itself, that the others are too few.
"""

from __future__ import annotations

import shutil
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import click

from gossipd.api.client import DaemonUnreachableError, RefusedByDaemonError, StatusClient
from gossipd.cli.completion import KnownModel
from gossipd.cli.host_selection import rank_of_problem
from gossipd.cli.options import (
    Duration,
    daemon_options,
    echo_json,
    examples,
    label_words,
    percent_words,
    reason_words,
    time_words,
)
from gossipd.core.errors import ExitCode, GossipdError, UsageError
from gossipd.core.reasons import Heals, HostReason, reason_of_word
from gossipd.core.units import show_bytes


@dataclass(frozen=True, slots=True)
class Goal:
    """What a host must have done to count."""

    words: str
    is_met: Callable[[dict[str, Any], dict[str, Any]], bool]
    """Of a deployment's row and one of its hosts."""

    def count(self, row: dict[str, Any]) -> int:
        return sum(self.is_met(row, host) for host in row["hosts"])


COMPLETE = Goal("complete on", lambda _, host: bool(host["state"] == "complete"))
CURRENT = Goal("current on", lambda row, host: host.get("current") == row["version"])
REMOVED = Goal("removed from", lambda _, host: bool(host["state"] == "removed"))

POLL_S = 0.5  # the records behind the answer change once a second
HOPELESS_S = 3.0  # a word that is superseded at once must not end the command
_OVER = ("failed", "expired", "removed", "evicted")


class WaitTimeoutError(GossipdError):
    """The hosts were not ready in time. Fault: nobody. Retry: wait longer, or look at ``gossipd status``."""

    code = "E_TIMEOUT"
    exit_code: ClassVar[ExitCode] = ExitCode.TIMEOUT


class PartialError(GossipdError):
    """So many hosts cannot get the model that the others are too few. Fault: see the reasons. Retry: after their cure.
    ``code_of_exit``: of the reason, when no host can get the model.
    """

    code = "E_PARTIAL"
    exit_code: ClassVar[ExitCode] = ExitCode.PARTIAL

    def __init__(self, message: str, code_of_exit: ExitCode = ExitCode.PARTIAL) -> None:
        super().__init__(message)
        self.code_of_exit = code_of_exit


class HostCount(click.ParamType):  # type: ignore[type-arg]  # generic only since click 8.3
    """``100%``, ``90%`` or a number of hosts; gives (whether it is a share, number)."""

    name = "hosts"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[bool, float]:
        if isinstance(value, tuple):
            return value
        text = str(value)
        share = text.endswith("%")
        try:
            number = float(text[:-1]) if share else float(int(text))
        except ValueError:
            number = -1.0
        if not (0 < number <= 100 if share else number >= 1):
            self.fail(f"{text!r} is neither a share such as 90% nor a number of hosts", param, ctx)
        return share, number


@click.command(epilog=examples("gossipd wait qwen@3", "gossipd wait org/model@7 --hosts 95% --timeout 30m --json"))
@click.argument("model", metavar="NAME@VERSION", type=KnownModel(version_needed=True))
@click.option("--hosts", default="100%", show_default=True, type=HostCount(), help="How many targets must be complete.")
@click.option("--timeout", "timeout_s", default="30m", show_default=True, type=Duration(), help="How long at most.")
@click.option("--current", is_flag=True, help="Until `current` leads to it: after a rollback --everywhere.")
@click.option("--removed", is_flag=True, help="Until they have removed it: after a rm --everywhere.")
@daemon_options
def wait(
    *, model: tuple[str, int], hosts: tuple[bool, float], timeout_s: float, current: bool, removed: bool,
    client: StatusClient, as_json: bool,
) -> int:  # fmt: skip
    """Wait until a deployment is complete on enough hosts; or is what users of the name see there, or is gone.

    Exits with 0 when it is, 5 when the time is up, 4 when no daemon has answered until then, 9 when it has ended with
    too few, 1 when it was cancelled. If no host can get it: 6 verification, 7 refused, 8 disk, 10, 11 storage.
    """
    if current and removed:
        raise UsageError("give --current or --removed, not both")
    goal = CURRENT if current else REMOVED if removed else COMPLETE
    line = _ProgressLine(f"{model[0]}@{model[1]}", goal)
    try:
        row = _until_enough(client, model, hosts, timeout_s, line)
    finally:
        line.end()
    if as_json:
        echo_json({"schema_version": 1, "deployment": row})
    return 0


def _until_enough(
    client: StatusClient, model: tuple[str, int], hosts: tuple[bool, float], timeout_s: float, line: _ProgressLine
) -> dict[str, Any]:
    """The row in which enough hosts are complete. Raises what ``wait`` ends with."""
    name, version = model
    deadline = time.monotonic() + timeout_s
    row: dict[str, Any] | None = None
    unreachable: DaemonUnreachableError | None = None
    answered = False
    hopeless_s: float | None = None
    while True:
        try:
            row = client.deployment(name, version)
            answered = True
        except RefusedByDaemonError as error:
            if error.code_of_exit != ExitCode.NOT_FOUND:
                raise
            answered = True
        except DaemonUnreachableError as error:
            if unreachable is None and not answered and timeout_s:
                click.echo(f"{error}; waiting for it", err=True)
            unreachable = error
        line.show(row)
        if row is not None and _is_enough(row, hosts, line.goal):
            return row
        if row is not None and line.goal is COMPLETE:
            _raise_if_over(row)
            hopeless_s = (hopeless_s or time.monotonic()) if _is_hopeless(row, hosts) else None
            if hopeless_s is not None and time.monotonic() - hopeless_s >= HOPELESS_S:
                raise _over(row, _lost(row))
        if time.monotonic() >= deadline:
            if unreachable is not None and not answered:
                raise unreachable
            raise WaitTimeoutError(_so_far(f"{name}@{version}", row, timeout_s, line.goal))
        time.sleep(min(POLL_S, max(0.0, deadline - time.monotonic())))


class _ProgressLine:
    """One line on stderr that is written over, where that is a terminal: a script's log gets none of it."""

    def __init__(self, label: str, goal: Goal = COMPLETE) -> None:
        self._label = label
        self.goal = goal
        self._is_open = False
        self._is_shown = sys.stderr.isatty()

    def show(self, row: dict[str, Any] | None) -> None:
        if not self._is_shown:
            return
        words = progress_words(self._label, row, self.goal)[: shutil.get_terminal_size().columns - 1]
        click.echo(f"\r\x1b[K{words}", err=True, nl=False, color=True)
        self._is_open = True

    def end(self) -> None:
        """What follows stands on a line of its own."""
        if self._is_open:
            click.echo("", err=True)
            self._is_open = False


def progress_words(label: str, row: dict[str, Any] | None, goal: Goal = COMPLETE) -> str:
    """``qwen@3  81.0 %  412/512 hosts  3.1 GiB/s  2m 10s to go; 3 no_space``: for a terminal, most pressing first."""
    if row is None:
        return f"{label}  not known here yet"
    if goal is not COMPLETE:
        return f"{label}  {goal.words} {goal.count(row)}/{row['hosts_total']} hosts"
    words = [label, percent_words(row["bytes_verified"], row["bytes_total"])]
    words.append(f"{row['hosts_complete']}/{row['hosts_total']} hosts")
    if row["rate_in_bytes_per_s"]:
        words.append(f"{show_bytes(row['rate_in_bytes_per_s'])}/s")
    if row["eta_s"] is not None:
        words.append(f"{time_words(row['eta_s'])} to go")
    reasons = Counter(host["reason"] for host in row["hosts"] if rank_of_problem(host) is not None)
    told = ", ".join(f"{count} {reason}" for reason, count in reasons.most_common(3) if reason)
    return "  ".join(words) + (f"; {told}" if told else "")


def _needed(row: dict[str, Any], hosts: tuple[bool, float]) -> float:
    share, number = hosts
    return row["hosts_total"] * number / 100 if share else number


def _is_enough(row: dict[str, Any], hosts: tuple[bool, float], goal: Goal) -> bool:
    done = row["hosts_complete"] if goal is COMPLETE else goal.count(row)
    return bool(row["hosts_total"] > 0 and done >= _needed(row, hosts))


def _lost(row: dict[str, Any]) -> list[dict[str, Any]]:
    """Hosts that no waiting brings any further."""
    behind = [host for host in row["hosts"] if host["state"] != "complete"]
    return [host for host in behind if host["state"] in _OVER or reason_of_word(host["reason"]).heals is Heals.NEVER]


def _is_hopeless(row: dict[str, Any], hosts: tuple[bool, float]) -> bool:
    return bool(row["hosts_total"] - len(_lost(row)) < min(_needed(row, hosts), row["hosts_total"]))


def _over(row: dict[str, Any], hosts: list[dict[str, Any]]) -> PartialError:
    """The deployment ends without ``hosts``."""
    reason = reason_of_word(hosts[0]["reason"]) if hosts else HostReason.OTHER
    label = label_words(row)
    return PartialError(
        f"{label} is complete on {row['hosts_complete']} of {row['hosts_total']} hosts and has ended: "
        f"{_named(hosts)}{_explained(hosts)}",
        reason.exit_code if len(hosts) == row["hosts_total"] else ExitCode.PARTIAL,
    )


def _named(hosts: list[dict[str, Any]]) -> str:
    words = [f"{host['name']} {host['state']} {reason_words(host)}".rstrip() + _current_words(host) for host in hosts]
    return ", ".join(words[:5]) + (f" and {len(words) - 5} more" if len(words) > 5 else "")


def _current_words(host: dict[str, Any]) -> str:
    current = host.get("current")
    return "" if current is None else f" (current: {current})"


def _explained(hosts: list[dict[str, Any]]) -> str:
    """What the first three reasons mean, and their cures."""
    reasons = dict.fromkeys(host["reason"] for host in hosts if host["reason"])
    known = [reason_of_word(word) for word in list(reasons)[:3]]
    return "".join(f"; {one.value}: {one.sentence} ({one.cured_by.value}: {one.cure})" for one in known)


def _raise_if_over(row: dict[str, Any]) -> None:
    label = label_words(row)
    if row["state"] == "cancelled":
        kept = f"; it is complete on {row['hosts_complete']} of {row['hosts_total']} hosts"
        raise GossipdError(f"{label} was cancelled{kept if row['hosts_complete'] else ''}", code="E_CANCELLED")
    if row["state"] in _OVER:
        raise _over(row, [host for host in row["hosts"] if host["state"] != "complete"])


def _so_far(label: str, row: dict[str, Any] | None, timeout_s: float, goal: Goal) -> str:
    if row is None:
        return f"no deployment {label} became known within {timeout_s:g} s"
    if not row["hosts_total"]:
        return f"after {timeout_s:g} s no known host is among the targets of {label}"
    if goal is not COMPLETE:
        others = [host for host in row["hosts"] if not goal.is_met(row, host)]
        return (
            f"after {timeout_s:g} s {label} is {goal.words} {goal.count(row)} of {row['hosts_total']} hosts; not on: "
            + (_named(others))
        )
    behind = [host for host in row["hosts"] if host["state"] != "complete"]
    behind.sort(key=lambda host: host["chunks_verified"])
    words = [
        f"{host['name']} {percent_words(host['chunks_verified'], row['chunks_total'])} {reason_words(host)}".rstrip()
        for host in behind[:3]
    ]
    named = f"; furthest behind: {', '.join(words)}{_explained(behind[:3])}" if words else ", and more were asked for"
    gone = [host["name"] for host in behind if host["reason"] in ("dead", "left")]
    if gone and not any(host["reason"] in ("dead", "left") for host in behind[:3]):
        named += f"; {gone[0]} is gone and counts until `gossipd forget {gone[0]}`"
    return f"after {timeout_s:g} s {label} is complete on {row['hosts_complete']} of {row['hosts_total']} hosts{named}"
