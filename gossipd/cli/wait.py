"""``gossipd wait``: return when a model is on the hosts, or report by the exit code why not.

An unknown model is waited for too, because a script drops a manifest and waits at once, and a host that has just booted
learns of it later. Once the daemon has answered, restarts of it are waited for.
"""

from __future__ import annotations

import time
from typing import Any, ClassVar

import click

from gossipd.api.client import DaemonUnreachableError, RefusedByDaemonError, StatusClient
from gossipd.cli.options import Duration, NameVersion, daemon_options, echo_json, examples, percent_words
from gossipd.core.errors import ExitCode, GossipdError

POLL_S = 0.5  # the records behind the answer change once a second


class WaitTimeoutError(GossipdError):
    """The hosts were not ready in time. Fault: nobody. Retry: wait longer, or look at ``gossipd status``."""

    code = "E_TIMEOUT"
    exit_code: ClassVar[ExitCode] = ExitCode.TIMEOUT


class PartialError(GossipdError):
    """The deployment has ended with fewer complete hosts than requested. Retry: drop it again after the remedy."""

    code = "E_PARTIAL"
    exit_code: ClassVar[ExitCode] = ExitCode.PARTIAL


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
@click.argument("model", metavar="NAME@VERSION", type=NameVersion(version_needed=True))
@click.option("--hosts", default="100%", show_default=True, type=HostCount(), help="How many targets must be complete.")
@click.option("--timeout", "timeout_s", default="30m", show_default=True, type=Duration(), help="How long at most.")
@daemon_options
def wait(
    *, model: tuple[str, int], hosts: tuple[bool, float], timeout_s: float, client: StatusClient, as_json: bool
) -> int:
    """Wait until a deployment is complete on enough hosts.

    Exits with 0 when it is, 5 when the time is up, 9 when it has ended with too few, 1 when it was cancelled.
    """
    name, version = model
    deadline = time.monotonic() + timeout_s
    row: dict[str, Any] | None = None
    answered = False
    while True:
        try:
            row = client.deployment(name, version)
            answered = True
        except RefusedByDaemonError as error:
            if error.code_of_exit != ExitCode.NOT_FOUND:
                raise
            answered = True
        except DaemonUnreachableError:
            if not answered:
                raise
        if row is not None and _is_enough(row, hosts):
            if as_json:
                echo_json({"schema_version": 1, "deployment": row})
            return 0
        if row is not None:
            _raise_if_over(row)
        if time.monotonic() >= deadline:
            raise WaitTimeoutError(_so_far(f"{name}@{version}", row, timeout_s))
        time.sleep(min(POLL_S, max(0.0, deadline - time.monotonic())))


def _is_enough(row: dict[str, Any], hosts: tuple[bool, float]) -> bool:
    share, number = hosts
    needed = row["hosts_total"] * number / 100 if share else number
    return bool(row["hosts_total"] > 0 and row["hosts_complete"] >= needed)


def _raise_if_over(row: dict[str, Any]) -> None:
    label = f"{row['name']}@{row['version_label'] or row['version']}"
    if row["state"] == "cancelled":
        raise GossipdError(f"{label} was cancelled", code="E_CANCELLED")
    if row["state"] in ("failed", "expired"):
        bad = [f"{host['name']} {host['state']} {host['reason']}".rstrip() for host in row["hosts"]]
        bad = [words for words, host in zip(bad, row["hosts"], strict=True) if host["state"] != "complete"]
        raise PartialError(
            f"{label} is complete on {row['hosts_complete']} of {row['hosts_total']} hosts and has ended: "
            + ", ".join(bad[:5])
            + (f" and {len(bad) - 5} more" if len(bad) > 5 else "")
        )


def _so_far(label: str, row: dict[str, Any] | None, timeout_s: float) -> str:
    if row is None:
        return f"no deployment {label} became known within {timeout_s:g} s"
    if not row["hosts_total"]:
        return f"after {timeout_s:g} s no known host is among the targets of {label}"
    behind = [host for host in row["hosts"] if host["state"] != "complete"]
    behind.sort(key=lambda host: host["chunks_verified"])
    words = [
        f"{host['name']} {percent_words(host['chunks_verified'], row['chunks_total'])} {host['reason']}".rstrip()
        for host in behind[:3]
    ]
    return f"after {timeout_s:g} s {label} is complete on {row['hosts_complete']} of {row['hosts_total']} hosts" + (
        f"; furthest behind: {', '.join(words)}" if words else ", and more were asked for"
    )
