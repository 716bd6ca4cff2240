"""``gossipd run``: the daemon, in the foreground, until SIGTERM."""

from __future__ import annotations

import click

from gossipd.cli.options import examples


@click.command(epilog=examples("gossipd run --config /srv/gossipd/gossipd.toml"))
@click.option("--config", "config_path", required=True, metavar="FILE", help="The gossipd.toml that 'init' wrote.")
def run(*, config_path: str) -> int:
    """Run the daemon of this host.

    Logs go to stderr, as JSON when that is not a terminal. SIGTERM stops the daemon within five seconds and keeps all
    verified chunks; SIGHUP reloads the settings that can be reloaded. Tells systemd when it is ready.
    """
    from gossipd.daemon import start_signals

    start_signals.hold()
    from gossipd.daemon.main import main

    return main(config_path)
