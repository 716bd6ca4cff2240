"""``gossipd run``: the daemon, in the foreground, until SIGTERM."""

from __future__ import annotations

import importlib
import sys

import click

from gossipd.cli.options import examples


@click.command(epilog=examples("gossipd run --config /srv/gossipd/gossipd.toml"))
@click.option("--config", "config_path", required=True, metavar="FILE", help="The gossipd.toml that 'init' wrote.")
def run(*, config_path: str) -> int:
    """Run the daemon of this host.

    Logs go to stderr, as JSON when that is not a terminal. SIGTERM stops the daemon within five seconds and keeps all
    verified chunks; SIGHUP reloads the settings that can be reloaded. Tells systemd when it is ready.
    """
    _import_structlog_alone()
    from gossipd.daemon.main import main

    return main(config_path)


def _import_structlog_alone() -> None:
    """structlog imports rich for tracebacks in colour, which the daemon never prints (``runtime.logs``)."""
    if "structlog" in sys.modules or "rich" in sys.modules:
        return
    sys.modules["rich"] = None  # type: ignore[assignment] # the import system's way to say that there is none
    try:
        importlib.import_module("structlog")
    finally:
        del sys.modules["rich"]
