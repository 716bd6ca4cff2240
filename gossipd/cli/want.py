"""``gossipd want``: what this host takes of a model."""

from __future__ import annotations

import click

from gossipd.api.client import StatusClient
from gossipd.cli.completion import KnownName
from gossipd.cli.layout import TextTable, show_lines
from gossipd.cli.options import daemon_options, echo_json, examples, tell
from gossipd.core.errors import UsageError


@click.command(
    epilog=examples(
        "gossipd want acme/v3 ep:3/16",
        "gossipd want acme/v3 ep:5/16 --clear --free",
        "gossipd want acme/v3 all",
        "gossipd want --list",
    )
)
@click.argument("name", metavar="NAME", type=KnownName(), required=False)
@click.argument("parts", metavar="PART...", nargs=-1)
@click.option("--list", "is_list", is_flag=True, help="Say what this host wants.")
@click.option("--clear", is_flag=True, help="Forget earlier orders for NAME; PARTs, if any, are wanted instead.")
@click.option("--free", is_flag=True, help="Delete now what is here of NAME and wanted no longer.")
@daemon_options
def want(
    *, name: str | None, parts: tuple[str, ...], is_list: bool, clear: bool, free: bool, client: StatusClient,
    as_json: bool,
) -> int:  # fmt: skip
    """Take only PART of a model on this host, from now on, of every version; more is fetched at once.

    PART is files:GLOB, tensors:GLOB, ep:RANK/RANKS, pp:FIRST-LAST, ranges:FILE:FROM-TO, or all. Orders add up, with
    what parts.wants says too, and hold over restarts. What neither names is taken whole. See: gossipd help training.
    """
    if is_list:
        if name is not None or clear or free:
            raise UsageError("--list goes with no NAME and no other option")
        return _list(client, as_json=as_json)
    if name is None or not (parts or clear or free):
        raise UsageError("give NAME and PART, NAME --clear, NAME --free, or --list")
    return tell(client.want(name, parts, clear=clear, free=free), as_json=as_json)


def _list(client: StatusClient, *, as_json: bool) -> int:
    answer = client.wants()
    if as_json:
        echo_json(answer)
    elif not answer["wants"]:
        show_lines(["this host wants everything of every model"])
    else:
        rows = [(one["name"], _words(one["want"]), _words(one["configured"]), _words(one["ordered"]))
                for one in answer["wants"]]  # fmt: skip
        show_lines([TextTable(("NAME", "WANT", "CONFIGURED", "ORDERED"), rows)])
    return 0


def _words(want: str | None) -> str:
    return "-" if want is None else want.replace("\n", " ") or "all"
