"""``gossipd events``: what the daemon has told, and with ``--follow`` what it tells from now on.

What lives here: following over restarts of the daemon, and display. What does not: numbers and gaps (``api.events``).
"""

from __future__ import annotations

import json
import time
from typing import Any

import click

from gossipd.api.client import DaemonUnreachableError, StatusClient
from gossipd.cli.layout import show_lines
from gossipd.cli.options import daemon_options, examples, parsed

WAIT_S = 8  # under the client's timeout
RETRY_S = 1.0


@click.command(
    epilog=examples(
        "gossipd events", "gossipd events --follow --json | jq 'select(.body.type == \"alarm\")'",
        "gossipd events --since 1794000000:120",
    )
)  # fmt: skip
@click.option("-f", "--follow", is_flag=True, help="Go on with what happens, until Ctrl-C; waits for a daemon.")
@click.option("--since", metavar="BOOT:ID", help="Only what came after this event.")
@daemon_options
def events(*, follow: bool, since: str | None, client: StatusClient, as_json: bool) -> int:
    """What has happened on this host and in the cluster as it sees it: members, deployments, hosts, alarms.

    With --json each event is one line with its boot and id. After a restart, or when more has happened than is kept, a
    gap is told: then ask for the status.
    """
    if since is not None:
        from gossipd.api.events import parse_position

        parsed("--since", parse_position, since)
    position, is_told = since, False
    while True:
        try:
            answer = client.events(position, wait_s=WAIT_S if follow else 0)
        except DaemonUnreachableError as error:
            if not follow:
                raise
            if not is_told:
                show_lines([f"{error.code}: {error}; waiting for it"], err=True)
            is_told = True
            time.sleep(RETRY_S)
            continue
        is_told = False
        for row in answer["events"]:
            if as_json:
                click.echo(json.dumps({"schema_version": 1, **row}))
            else:
                show_lines([line_of(row)])
            position = f"{row['boot']}:{row['id']}"
        if not follow and not answer["events"]:
            return 0


def line_of(row: dict[str, Any]) -> str:
    """``2026-11-25T12:00:00Z  member  name=gpu-3 state=down``, for people."""
    told = " ".join(f"{key}={value}" for key, value in row["body"].items() if key != "type" and value != "")
    return f"{row['at'] or '-':<20}  {row['body']['type']:<10}  {told}"
