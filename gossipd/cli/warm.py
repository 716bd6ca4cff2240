"""``gossipd warm``: a model is in memory when a job loads it."""

from __future__ import annotations

import click

from gossipd.api.client import StatusClient
from gossipd.cli.completion import KnownModel
from gossipd.cli.options import daemon_options, examples, tell


@click.command(epilog=examples("gossipd warm qwen", "gossipd warm qwen@2"))
@click.argument("model", metavar="NAME[@VERSION]", type=KnownModel(version_needed=False))
@daemon_options
def warm(*, model: tuple[str, int | None], client: StatusClient, as_json: bool) -> int:
    """Read a version on this host into free memory, in the background, for the job that loads it next.

    Without a version the one that 'current' leads to. As store.warm does for every current version: at
    store.warm_bytes_per_s, and not while memory is short. 'gossipd status' says how far it is.
    """
    name, version = model
    fields: dict[str, object] = {"name": name} if version is None else {"name": name, "version": version}
    return tell(client.order("warm", **fields), as_json=as_json)
