"""``gossipd trigger``: a message to any node that deploys or cancels a model.

What lives here: the choice of keys, and the output. What does not: the conversation (``control.trigger_client``).

With ``--config`` the command uses the node's own key, and finds the server's key by the address: our own, or the one in
the member's signed record in the daemon's roster. With ``--key`` both keys are given.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gossipd.cli.layout import show_lines
from gossipd.cli.options import Duration, examples

if TYPE_CHECKING:
    from gossipd.config.sections import Config
    from gossipd.identity.keys import SecretKey
    from membership.seal import KeyRing

_EXIT_CODES = """

\b
Exit codes:
  0 accepted        3 no such model or file   5 no answer in time
  1 refused         4 no node there           7 a key or signature is refused
  2 wrong usage"""


@click.command(
    epilog=examples(
        "gossipd trigger 10.0.0.1:7946 qwen-3.manifest --key client.key --server-key node-a.pub",
        "gossipd trigger 10.0.0.1:7946 qwen@3 --config /srv/gossipd/gossipd.toml",
        "gossipd trigger 10.0.0.1:7946 qwen@3 --config /srv/gossipd/gossipd.toml --cancel",
        "gossipd trigger 10.0.0.1:7946 qwen-3.manifest --key client.key --server-key node-a.pub --budget 600GB",
    )
    + _EXIT_CODES
)
@click.argument("address", metavar="ADDRESS:PORT")
@click.argument("model", metavar="FILE_OR_NAME@VERSION")
@click.option("--config", "config_path", metavar="FILE", help="Speak as the node with this gossipd.toml.")
@click.option("--key", metavar="CLIENT_KEY", help="Speak as this client; the nodes' configuration must list its .pub.")
@click.option("--server-key", metavar="FILE.pub", help="The public key of the node at ADDRESS (its node.key.pub).")
@click.option("--cancel", is_flag=True, help="Stop the deployment everywhere instead.")
@click.option(
    "--budget", metavar="BYTES|MONEY",
    help="What all hosts may read of it from storage: 600GB, or with --config money such as 50, or none.",
)  # fmt: skip
@click.option(
    "--timeout", "timeout_s", type=Duration(), default="10s", show_default=True, help="For the whole exchange."
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout, with schema_version.")
def trigger(
    *, address: str, model: str, config_path: str | None, key: str | None, server_key: str | None, cancel: bool,
    budget: str | None, timeout_s: float, as_json: bool,
) -> None:  # fmt: skip
    """Deploy a signed manifest, or a model that the cluster knows, from any node on. Repeating it is harmless."""
    import time

    from gossipd.config.kinds import split_contact
    from gossipd.control.trigger_client import Conversation
    from gossipd.control.trigger_client import trigger as order_of
    from gossipd.deployment.statement import Verb

    try:
        host, port = split_contact(address)
    except ValueError as error:
        raise click.UsageError(f"{address!r} {error}") from None
    if cancel and budget is not None:
        raise click.UsageError("--budget is for a deployment, not for --cancel")
    order, budget_bytes = _order(model), _budget_bytes(budget, config_path)
    secret, server_curve = _keys(host, port, config_path, key, server_key)
    verb = Verb.CANCEL if cancel else Verb.DEPLOY
    with Conversation(host, port, secret=secret, server_key=server_curve, timeout_s=timeout_s) as conversation:
        told = order_of(
            conversation, secret=secret, order=order, verb=verb, now_s=time.time(), budget_bytes=budget_bytes
        )
    if as_json:
        answer = {
            "schema_version": 1,
            "accepted": True,
            "verb": verb.name.lower(),
            "id": told.deployment.hex(),
            "epoch": told.epoch,
            "already": told.already,
            "sentence": told.sentence,
        }
        click.echo(json.dumps(answer, indent=2))
    else:
        show_lines([f"{told.sentence} (deployment {told.deployment.hex()[:12]}, epoch {told.epoch})"])


def _budget_bytes(text: str | None, config_path: str | None) -> int | None:
    from gossipd.config.load import load_config
    from gossipd.deployment.source_budget import parse_budget

    if text is None:
        return None
    money_per_gb = load_config(Path(config_path)).sources.money_per_gb if config_path is not None else 0.0
    try:
        return parse_budget(text, money_per_gb)
    except ValueError as error:
        raise click.UsageError(f"--budget: {error}") from None


def _order(model: str) -> bytes | str:
    """The manifest's bytes, or ``NAME@VERSION``."""
    from gossipd.core.errors import NotFoundError
    from gossipd.manifest.envelope import ENVELOPE_BYTES_MAX
    from gossipd.manifest.errors import ManifestError
    from gossipd.manifest.names import split_model

    path = Path(model)
    if path.is_file():
        with path.open("rb") as file:
            envelope = file.read(ENVELOPE_BYTES_MAX + 1)
        if len(envelope) > ENVELOPE_BYTES_MAX:
            raise ManifestError(f"{model} has more than {ENVELOPE_BYTES_MAX} bytes", code="E_LIMIT")
        return envelope
    try:
        version = split_model(model)[1]
    except ManifestError:
        version = None
    if version is None:
        raise NotFoundError(f"{model} is neither a file nor NAME@VERSION")
    return model


def _keys(
    host: str, port: int, config_path: str | None, key: str | None, server_key: str | None
) -> tuple[SecretKey, bytes]:
    """The client's secret key, and the CURVE key that the server must have."""
    from gossipd.identity.key_files import read_public_key, read_secret_key

    if (config_path is None) == (key is None):
        raise click.UsageError("give either --config, or --key and --server-key")
    if key is not None:
        if server_key is None:
            raise click.UsageError("--key needs --server-key: without it, anybody could answer in the node's place")
        return read_secret_key(Path(key)), read_public_key(Path(server_key)).curve25519
    from gossipd.config.load import load_config
    from gossipd.identity.key_files import read_key_ring

    config = load_config(Path(str(config_path)))
    secret = read_secret_key(config.security.node_key)
    if server_key is not None:
        return secret, read_public_key(Path(server_key)).curve25519
    if port == config.net.port and host in (config.advertised, config.net.bind, "127.0.0.1", "::1", "localhost"):
        return secret, secret.public.curve25519
    return secret, _member_key(config, read_key_ring(config.security.cluster_key), host, port)


def _member_key(config: Config, ring: KeyRing, host: str, port: int) -> bytes:
    """The CURVE key of the member at this address, from the local daemon's roster. A member may name the address of
    another, so where several do it is the operator who knows."""
    from gossipd.core.errors import NotFoundError
    from gossipd.daemon.state_dir import ROSTER, StateDirectory
    from gossipd.identity.keys import verify
    from membership.errors import WireError
    from membership.record import decode_record, encode_signed

    names: dict[bytes, str] = {}  # by key
    directory = config.file.parent / "state"
    if (directory / ROSTER).is_file():
        state = StateDirectory(directory)
        try:
            records = state.roster()
        finally:
            state.close()
        for record in records:
            if (record.host, record.port) != (host, port):
                continue
            try:
                decode_record(encode_signed(record), ring.cluster_id, verify)
            except WireError:
                continue
            names[record.transport_key] = record.name
    if len(names) == 1:
        return next(iter(names))
    found = f"{' and '.join(sorted(names.values()))} name" if names else "no member at"
    known = "" if names else " is known here"
    raise NotFoundError(f"{found} {host} port {port}{known}; give its node.key.pub with --server-key")
