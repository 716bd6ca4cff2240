"""``gossipd assets``: files that ship with the program, for the tools around it.

What lives here: the commands. What does not: the files (``gossipd/assets``), the API's description (``api.openapi``)
and the man pages' form (``man``).
"""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path

import click

from gossipd.cli.completion import SHELLS
from gossipd.cli.options import examples

_WHERE = (
    "gossipd assets unit > /etc/systemd/system/gossipd.service",
    "gossipd assets completion bash > /etc/bash_completion.d/gossipd",
    "gossipd assets man /usr/local/share/man/man1",
)


@click.group(epilog=examples(*_WHERE))
def assets() -> None:
    """Print what the tools around gossipd read: unit, alerts, dashboard, completion, API, man pages."""


@assets.command()
def unit() -> None:
    """Print the unit for systemd."""
    click.echo(text("gossipd.service"), nl=False)


@assets.command()
def alerts() -> None:
    """Print the alerting rules for Prometheus."""
    click.echo(text("prometheus-alerts.yml"), nl=False)


@assets.command()
def grafana() -> None:
    """Print the dashboard for Grafana."""
    click.echo(text("grafana.json"), nl=False)


@assets.command()
@click.argument("shell", type=click.Choice(SHELLS))
def completion(shell: str) -> None:
    """Print the completion script for SHELL."""
    from gossipd.cli.completion import script
    from gossipd.cli.main import cli

    click.echo(script(shell, cli), nl=False)


@assets.command()
def openapi() -> None:
    """Print the API of the local sockets as an OpenAPI 3.1 document."""
    from gossipd.api.openapi import document

    click.echo(json.dumps(document(), indent=2))


@assets.command()
@click.argument("directory", metavar="DIR", type=click.Path(file_okay=False, path_type=Path))
def man(directory: Path) -> None:
    """Write a man page for each command into DIR, which is made if need be."""
    from gossipd.cli.main import cli
    from gossipd.cli.man import pages

    directory.mkdir(parents=True, exist_ok=True)
    for name, roff in pages(cli, "gossipd"):
        (directory / name).write_text(roff, encoding="utf-8")


def text(name: str) -> str:
    """One of the files that ship, as it is."""
    return (files("gossipd") / "assets" / name).read_text(encoding="utf-8")
