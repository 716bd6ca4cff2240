"""``gossipd members`` and ``gossipd forget``: the roster, and removing a host from it."""

from __future__ import annotations

import click

from gossipd.api.client import StatusClient
from gossipd.cli.options import daemon_options, echo_json, examples, table, tell, time_words


@click.command(epilog=examples("gossipd members", "gossipd members --json | jq '.members[] | select(.seed)'"))
@daemon_options
def members(*, client: StatusClient, as_json: bool) -> int:
    """Every host on the roster, as the local daemon sees it."""
    answer = client.members()
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
    click.echo("\n".join(table(("NAME", "RACK", "STATE", "SEED", "ADDRESS", "VERSION", "SINCE"), rows)))
    return 0


@click.command(epilog=examples("gossipd forget host-17"))
@click.argument("node", metavar="NODE")
@daemon_options
def forget(*, node: str, client: StatusClient, as_json: bool) -> int:
    """Remove a scrapped host from the roster, in the whole cluster.

    NODE is a name or an id. Only hosts that are not alive can be removed; a host that returns with a new key may
    then use the name.
    """
    return tell(client.order("forget", node=node), as_json=as_json)
