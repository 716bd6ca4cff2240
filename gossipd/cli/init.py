"""``gossipd init``: a new host's directory.

What lives here: the options, and the messages afterwards. What does not: the files (``config.directory``).
"""

from __future__ import annotations

import json

import click

from gossipd.cli.layout import show_lines
from gossipd.cli.options import examples
from membership.member import contact_of

_FIRST = "gossipd init node-a --name node-a --rack r1 --bind 10.0.0.1 --port 7946 --trust publisher.key.pub"
_SECOND = (
    "gossipd init node-b --name node-b --rack r1 --bind 10.0.0.2 --port 7946 --trust publisher.key.pub "
    "--cluster-key cluster.key --join 10.0.0.1:7946"
)


@click.command(
    epilog=examples(_FIRST, _SECOND) + "\n\nExit codes: 0 made; 2 wrong values or files in the way; 7 a key."
)
@click.argument("directory", metavar="DIR", type=click.Path(file_okay=False))
@click.option("--name", required=True, help="This host's name, unique in the cluster.")
@click.option("--rack", required=True, help="Hosts with the same rack share a switch.")
@click.option("--zone", default=None, help="A group of racks.")
@click.option("--bind", required=True, metavar="ADDRESS", help="IP address to listen on; 0.0.0.0 or :: is all.")
@click.option("--port", required=True, type=int, help="TCP (control) and UDP (membership); bulk is PORT+1.")
@click.option("--advertise", default=None, metavar="ADDRESS", help="IP address that other hosts dial, if not --bind.")
@click.option("--bulk-bind", default=None, metavar="ADDRESS", help="IP address that serves model bytes, if not --bind.")
@click.option("--join", multiple=True, metavar="HOST:PORT", help="A member of the cluster to join; may be repeated.")
@click.option("--cluster-key", metavar="FILE", help="The key of that cluster; without it a new one is made.")
@click.option(
    "--trust", multiple=True, metavar="FILE.pub", help="A publisher whose models are accepted; may be repeated."
)
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="SECTION.KEY=VALUE",
    help="Any other setting, checked; may be repeated. Lists: --set 'net.join=a:7946,b:7946'.",
)
@click.option("--if-missing", is_flag=True, help="Where DIR/gossipd.toml is there already, change nothing and say so.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout, with schema_version.")
def init(
    *, directory: str, name: str, rack: str, zone: str | None, bind: str, port: int, advertise: str | None,
    bulk_bind: str | None, join: tuple[str, ...], cluster_key: str | None, trust: tuple[str, ...],
    settings: tuple[str, ...], if_missing: bool, as_json: bool,
) -> None:  # fmt: skip
    """Write DIR/gossipd.toml, this host's keys, DIR/inbox/ and DIR/models/; DIR/cluster.key unless one is given.

    Nothing is overwritten. Key files that are given are copied into DIR.
    """
    from pathlib import Path

    from gossipd.config.directory import make_directory, read_settings
    from gossipd.config.load import FILE_NAME

    if if_missing and (config := Path(directory) / FILE_NAME).exists():
        _say_it_is_there(str(config), as_json=as_json)
        return
    node: dict[str, object] = {"name": name, "rack": rack, "zone": zone}
    net: dict[str, object] = {
        "bind": bind,
        "port": port,
        "advertise": advertise,
        "bulk_bind": bulk_bind,
        "join": join or None,
    }
    node, net = ({key: value for key, value in given.items() if value is not None} for given in (node, net))
    written = make_directory(
        Path(directory),
        node=node,
        net=net,
        more=read_settings(settings, {"node": node, "net": net}),
        cluster_key=Path(cluster_key) if cluster_key else None,
        trust=[Path(path) for path in trust],
    )
    following = _following(str(written.config))
    if as_json:
        answer = {
            "schema_version": 1,
            "config": str(written.config),
            "files": [str(path) for path in written.files],
            "public_key": written.public_key,
            "cluster": written.cluster,
            "next": following,
        }
        click.echo(json.dumps(answer, indent=2))
        return
    lines = ["wrote " + "\n      ".join(str(path) for path in written.files)]
    if not cluster_key:
        host = advertise or bind
        lines.append(
            f"this is a new cluster: other hosts need {written.config.parent / 'cluster.key'} (--cluster-key) and "
            f"--join {contact_of(host, port)}"
        )
    if join and not cluster_key:
        lines.append("the hosts of --join must be of that cluster: give --cluster-key if they already belong to one")
    if not trust:
        lines.append("no publisher is trusted yet: add FILE.pub to security.trust before anything can be deployed")
    show_lines([*lines, f"next: {following}"])


def _following(config: str) -> str:
    return f"gossipd run --config {config}"


def _say_it_is_there(config: str, *, as_json: bool) -> None:
    """In JSON what is not read again is null."""
    if as_json:
        answer = {"schema_version": 1, "config": config, "files": [], "public_key": None, "cluster": None}
        click.echo(json.dumps({**answer, "next": _following(config)}, indent=2))
    else:
        show_lines([f"{config} is there already; nothing was changed", f"next: {_following(config)}"])
