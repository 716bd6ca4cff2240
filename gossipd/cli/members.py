"""``gossipd members`` and ``gossipd forget``: the roster, in what its hosts differ, and removing a host from it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from gossipd.api.client import StatusClient
from gossipd.cli.completion import KnownHost
from gossipd.cli.layout import Part, TextTable, show_lines
from gossipd.cli.options import daemon_options, echo_json, examples, tell, time_words
from gossipd.core.errors import ExitCode

if TYPE_CHECKING:
    from gossipd.diagnosis.drift import Aspect

HOSTS_NAMED = 5


@click.command(
    epilog=examples(
        "gossipd members", "gossipd members --drift", "gossipd members --json | jq '.members[] | select(.seed)'"
    )
)
@click.option("--drift", is_flag=True, help="In what hosts differ that should be the same; exit code 9 if in anything.")
@daemon_options
def members(*, drift: bool, client: StatusClient, as_json: bool) -> int:
    """Every host on the roster, as the local daemon sees it.

    With --drift their versions, trusted keys, clients, cluster keys, settings and clocks are compared: has a rotation
    reached all hosts, and who lacks a publisher's key. Groups of hosts have short prints of what they run.
    """
    answer = client.members()
    if drift:
        return _drift(answer["members"], as_json=as_json)
    if as_json:
        echo_json(answer)
        return 0
    rows = [
        (
            each["name"],
            each["rack"],
            each["state"],
            "seed" if each["seed"] else "-",
            each["address"],
            each["version"] or "-",
            "-" if each["since_s"] is None else time_words(each["since_s"]),
        )
        for each in answer["members"]
    ]
    show_lines([TextTable(("NAME", "RACK", "STATE", "SEED", "ADDRESS", "VERSION", "SINCE"), rows)])
    return 0


def _drift(members: list[dict[str, Any]], *, as_json: bool) -> int:
    from gossipd.diagnosis.drift import compare

    aspects = compare(members)
    differs = any(aspect.differs for aspect in aspects)
    if as_json:
        rows = [
            {
                "aspect": aspect.name,
                "differs": aspect.differs,
                "groups": [{"value": group.value, "hosts": group.hosts} for group in aspect.groups],
            }
            for aspect in aspects
        ]
        echo_json({"schema_version": 1, "agree": not differs, "aspects": rows})
    else:
        show_lines(drift_lines(aspects))
    return int(ExitCode.PARTIAL if differs else ExitCode.DONE)


def drift_lines(aspects: Sequence[Aspect]) -> list[Part]:
    """What differs with its groups, then in one line what does not."""
    from gossipd.diagnosis.drift import ASPECTS

    lines: list[Part] = []
    for aspect in aspects:
        if aspect.differs:
            lines.append(f"{aspect.name}: {ASPECTS[aspect.name]}")
            cells = [(one.value or "(not told)", str(len(one.hosts)), _words(one.hosts)) for one in aspect.groups]
            lines.append(TextTable(("VALUE", "HOSTS", "WHICH"), cells, "  "))
    same = [aspect.name for aspect in aspects if not aspect.differs]
    silent = sorted({host for one in aspects for group in one.groups if not group.value for host in group.hosts})
    if same:
        lines.append(f"the same on all hosts: {', '.join(same)}")
    if silent:
        lines.append(f"not told by {_words(silent)}")
    return lines


def _words(hosts: Sequence[str]) -> str:
    return ", ".join(hosts[:HOSTS_NAMED]) + (
        f" and {len(hosts) - HOSTS_NAMED} more" if len(hosts) > HOSTS_NAMED else ""
    )


@click.command(epilog=examples("gossipd forget host-17"))
@click.argument("node", metavar="NODE", type=KnownHost())
@daemon_options
def forget(*, node: str, client: StatusClient, as_json: bool) -> int:
    """Remove a scrapped host from the roster, in the whole cluster.

    NODE is a name or an id. Only hosts that are not alive can be removed; a host that returns with a new key may
    then use the name.
    """
    return tell(client.order("forget", node=node), as_json=as_json)
