"""``gossipd web``: the page, served by a process of its own."""

from __future__ import annotations

from pathlib import Path

import click

from gossipd.api.client import find_sockets
from gossipd.cli.layout import show_lines
from gossipd.cli.options import GivenFile, examples, parsed

LISTEN = "127.0.0.1:7980"
_EXAMPLES = (
    "gossipd web --config /var/lib/gossipd/gossipd.toml",
    "ssh -L 7980:127.0.0.1:7980 gpu-17   # then http://127.0.0.1:7980/ here",
    "gossipd web --listen 10.0.3.17:7980 --tls-cert cert.pem --tls-key key.pem --token-file token",
)


@click.command(epilog=examples(*_EXAMPLES) + "\n\nExit codes: 0 ended by Ctrl-C or SIGTERM; 1 the address is taken; 2.")
@click.option("--socket", metavar="PATH", help="The daemon's socket; the one of questions beside it is asked.")
@click.option("--config", metavar="FILE", help="A daemon's gossipd.toml; its read socket is asked.")
@click.option("--listen", default=LISTEN, show_default=True, metavar="ADDRESS:PORT", help="Where browsers come to.")
@click.option("--tls-cert", type=GivenFile(path_type=Path), help="A certificate in PEM that names this host.")
@click.option("--tls-key", type=GivenFile(path_type=Path), help="The certificate's key.")
@click.option("--token-file", type=GivenFile(path_type=Path), help="Ask browsers for the word in this file (0600).")
def web(
    *, socket: str | None, config: str | None, listen: str, tls_cert: Path | None, tls_key: Path | None,
    token_file: Path | None,
) -> None:  # fmt: skip
    """Show the cluster in a browser, as the local daemon has heard it.

    A process of its own: it asks the daemon's read socket and gives no orders; the daemon opens no port for it. On an
    address other than loopback it asks for a certificate and a token.
    """
    import signal
    import threading

    from gossipd.web.forwarding import Forwarder
    from gossipd.web.server import PageServer, load_protection, parse_address

    _, questions = find_sockets(socket, config)
    address = parsed("--listen", parse_address, listen)
    protection = load_protection(address, tls_cert=tls_cert, tls_key=tls_key, token_file=token_file)
    with PageServer(address, Forwarder(questions), protection) as server:
        ending = threading.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: ending.set())
        serving = threading.Thread(target=server.serve_forever, daemon=True)
        serving.start()
        hint = "#token=TOKEN" if protection.token is not None else ""
        show_lines([f"the page is at {server.url}{hint}"], err=True)
        ending.wait()
        server.shutdown()
        serving.join()
