"""``gossipd version``: this program, its Python and the libraries that its bytes pass through."""

from __future__ import annotations

import platform
from importlib.metadata import version as installed

import click

from gossipd import __version__
from gossipd.cli.options import echo_json, examples

_LIBRARIES = ("trio", "pyzmq", "cryptography", "blake3", "obstore", "msgspec")


@click.command(epilog=examples("gossipd version", "gossipd --version --json"))
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout, with schema_version.")
def version(as_json: bool) -> None:
    """Print the version of gossipd; with --json also of Python and of the libraries that matter most."""
    if not as_json:
        click.echo(f"gossipd {__version__}")
        return
    libraries = {name: installed(name) for name in _LIBRARIES}
    answer = {"schema_version": 1, "version": __version__, "python": platform.python_version(), "libraries": libraries}
    echo_json(answer)
