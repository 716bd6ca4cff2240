"""``gossipd why``: the causes why a deployment is not complete, in order, each with its cure.

What lives here: asking a daemon, and display. What does not: finding causes (``diagnosis.causes``).
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import click

from gossipd.api.client import RefusedByDaemonError, StatusClient
from gossipd.cli.completion import KnownHost, KnownModel
from gossipd.cli.layout import show_lines
from gossipd.cli.options import daemon_options, echo_json, examples, time_words
from gossipd.core.errors import ExitCode, NotFoundError
from gossipd.core.versions import label_words
from gossipd.diagnosis.causes import Cause, Diagnosis, diagnose, diagnose_refused

HOSTS_NAMED = 8  # for people; --json has them all


@click.command(
    epilog=examples(
        "gossipd why qwen@3", "gossipd why qwen --host gpu-17", "gossipd why qwen@3 --json | jq '.causes[0].code'"
    )
)
@click.argument("model", metavar="NAME[@VERSION]", type=KnownModel(version_needed=False))
@click.option("--host", metavar="NAME", type=KnownHost(), help="Only this host of the cluster.")
@daemon_options
def why(*, model: tuple[str, int | None], host: str | None, client: StatusClient, as_json: bool) -> int:
    """Why a deployment is not complete: causes in order, what shows them, who cures them, and what is tried next.

    Without a version: the highest. Exits with 0 when nothing is wrong, 9 while hosts only wait, else with the code of
    the first cause: 7 refused, 8 disk, 10 or 11 storage.
    """
    found = _found(client, *model, host)
    if as_json:
        echo_json(as_object(found))
    else:
        show_lines(lines_of(found))
    return int(found.exit_code)


def _found(client: StatusClient, name: str, version: int | None, host: str | None) -> Diagnosis:
    try:
        page = client.status(name, version)
    except RefusedByDaemonError as error:
        refused = diagnose_refused(client.status(), name if version is None else f"{name}@{version}")
        if error.code_of_exit != ExitCode.NOT_FOUND or not refused.causes:
            raise
        return refused
    row = max(page["deployments"], key=lambda each: each["version"])
    if host is not None and host not in {each["name"] for each in row["hosts"]}:
        from difflib import get_close_matches

        near = get_close_matches(host, [one["name"] for one in row["hosts"]], n=1)
        meant = f"; did you mean {near[0]}?" if near else "; see: gossipd members"
        raise NotFoundError(f"{host} is no target of {label_words(row)}, or not on the roster{meant}")
    return diagnose(page, row, host)


def as_object(found: Diagnosis) -> dict[str, Any]:
    """What ``--json`` prints."""
    causes = [{**asdict(cause), "exit_code": int(cause.exit_code)} for cause in found.causes]
    whole = asdict(found) | {"causes": causes, "exit_code": int(found.exit_code)}
    return {"schema_version": 1, **whole}


def lines_of(found: Diagnosis) -> list[str]:
    """The causes as lines for people."""
    lines = [f"{found.label}  {found.state}  {found.hosts_complete}/{found.hosts_total} hosts"]
    if not found.causes:
        lines.append("nothing is wrong")
    for number, cause in enumerate(found.causes, 1):
        lines += ["", *_cause(number, cause)]
    return lines


def _cause(number: int, cause: Cause) -> list[str]:
    more = len(cause.hosts) - HOSTS_NAMED
    hosts = ", ".join(cause.hosts[:HOSTS_NAMED]) + (f" and {more} more" if more > 0 else "")
    since = "" if cause.since_s is None else f", for {time_words(cause.since_s)}"
    lines = [f"{number}. {cause.code}{since}: {cause.sentence}"]
    if hosts:
        lines.append(f"   hosts     {hosts}")
    lines += [f"   evidence  {each}" for each in cause.evidence]
    return [*lines, f"   cure      {cause.cured_by}: {cause.cure}", f"   next      {cause.next}"]
