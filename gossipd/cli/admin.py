"""``gossipd rm``, ``cancel``, ``pause``, ``resume``, ``rollback`` and ``reload``: short commands to a daemon."""

from __future__ import annotations

import click

from gossipd.api.client import StatusClient
from gossipd.cli.completion import KnownModel
from gossipd.cli.options import daemon_options, examples, tell
from gossipd.core.errors import ExitCode, UsageError


@click.command(epilog=examples("gossipd rm qwen@2 --dry-run", "gossipd rm qwen@2", "gossipd rm qwen@2 --everywhere"))
@click.argument("model", metavar="NAME@VERSION", type=KnownModel(version_needed=True))
@click.option("--dry-run", is_flag=True, help="Say what would be removed, and remove nothing.")
@click.option("--everywhere", is_flag=True, help="From every host, from those too that hear of it later.")
@daemon_options
def rm(*, model: tuple[str, int], dry_run: bool, everywhere: bool, client: StatusClient, as_json: bool) -> int:
    """Remove one version of a model from this host; it stays removed until it is deployed again.

    With --everywhere from the whole cluster, by who may cancel; `gossipd wait NAME@VERSION --removed` shows who has
    done it.
    """
    options = {"everywhere": True} if everywhere else {}
    return tell(client.order("rm", name=model[0], version=model[1], dry_run=dry_run, **options), as_json=as_json)


@click.command(epilog=examples("gossipd cancel qwen@3"))
@click.argument("model", metavar="NAME@VERSION", type=KnownModel(version_needed=True))
@click.option("--force", is_flag=True, help="Also when all have it: hosts that join later then do not get it.")
@daemon_options
def cancel(*, model: tuple[str, int], force: bool, client: StatusClient, as_json: bool) -> int:
    """Stop a deployment in the whole cluster.

    Hosts that have it complete, or are just publishing it, keep it; the others keep the chunks that they have until
    they need the space, and go on from them when it is deployed again. Refused when all hosts have it: there is nothing
    to stop.
    """
    options = {"force": True} if force else {}
    return tell(client.order("cancel", name=model[0], version=model[1], **options), as_json=as_json)


@click.command(epilog=examples("gossipd pause qwen@3"))
@click.argument("model", metavar="NAME@VERSION", type=KnownModel(version_needed=True))
@daemon_options
def pause(*, model: tuple[str, int], client: StatusClient, as_json: bool) -> int:
    """Pause a deployment in the whole cluster: no host begins to fetch or to read, and all serve what they have."""
    return tell(client.order("pause", name=model[0], version=model[1]), as_json=as_json)


@click.command(epilog=examples("gossipd resume qwen@3"))
@click.argument("model", metavar="NAME@VERSION", type=KnownModel(version_needed=True))
@daemon_options
def resume(*, model: tuple[str, int], client: StatusClient, as_json: bool) -> int:
    """Let a paused deployment go on."""
    return tell(client.order("resume", name=model[0], version=model[1]), as_json=as_json)


@click.command(epilog=examples("gossipd rollback qwen", "gossipd rollback qwen@3 --everywhere"))
@click.argument("model", metavar="NAME[@VERSION]", type=KnownModel(version_needed=False))
@click.option("--everywhere", is_flag=True, help="In the whole cluster: VERSION, or the newest one, is taken back.")
@daemon_options
def rollback(*, model: tuple[str, int | None], everywhere: bool, client: StatusClient, as_json: bool) -> int:
    """Point 'current' at the version before the present one, on this host.

    With --everywhere a version is taken back in the whole cluster, by who may cancel: 'current' leads to the version
    before it on every host that has one, and hosts that do not have it whole fetch it no further. It ends when it is
    deployed again. `gossipd wait NAME@OLDER --current` shows who has done it.
    """
    name, version = model
    if version is not None and not everywhere:
        raise UsageError("a version is given with --everywhere only; this host goes back by one")
    options: dict[str, object] = {"everywhere": True} if everywhere else {}
    if version is not None:
        options["version"] = version
    return tell(client.order("rollback", name=name, **options), as_json=as_json)


@click.command(epilog=examples("gossipd reload", "gossipd reload --config /srv/gossipd/gossipd.toml"))
@daemon_options
def reload(*, client: StatusClient, as_json: bool) -> int:
    """Have the daemon read its configuration and keys again, and wait for the outcome.

    Exit codes: 0 applied; 2 problems, each named: nothing has changed; 9 applied, but for settings that need a restart.
    """
    answer = client.order("reload")
    tell(answer, as_json=as_json)
    return int(ExitCode.PARTIAL if answer["needs_restart"] else ExitCode.DONE)
