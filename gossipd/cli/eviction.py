"""``gossipd pin``, ``unpin`` and ``prune``: what stays on this host, and what makes room."""

from __future__ import annotations

from typing import Any

import click

from gossipd.api.client import StatusClient
from gossipd.cli.completion import KnownModel
from gossipd.cli.layout import Part, TextTable, show_lines
from gossipd.cli.options import daemon_options, echo_json, examples, tell
from gossipd.core.units import show_bytes

_MODEL = click.argument("model", metavar="NAME[@VERSION]", type=KnownModel(version_needed=False))


@click.command(epilog=examples("gossipd pin qwen@2", "gossipd pin qwen"))
@_MODEL
@daemon_options
def pin(*, model: tuple[str, int | None], client: StatusClient, as_json: bool) -> int:
    """Keep a version on this host: neither the disk's high watermark nor newer versions evict it.

    Without a version, the one that 'current' leads to is kept, wherever that moves. 'gossipd rm' still removes it.
    """
    return tell(client.order("pin", **_named(model)), as_json=as_json)


@click.command(epilog=examples("gossipd unpin qwen@2"))
@_MODEL
@daemon_options
def unpin(*, model: tuple[str, int | None], client: StatusClient, as_json: bool) -> int:
    """Keep it no longer. A pin of NAME and one of NAME@VERSION are two."""
    return tell(client.order("unpin", **_named(model)), as_json=as_json)


@click.command(epilog=examples("gossipd prune --dry-run", "gossipd prune --json"))
@click.option("--dry-run", is_flag=True, help="Say what would be evicted, and evict nothing.")
@daemon_options
def prune(*, dry_run: bool, client: StatusClient, as_json: bool) -> int:
    """Evict from this host every version that is not current, and where there are watermarks more, down to the low one.

    What is pinned, held, open or still being deployed stays, and is listed with the reason.
    """
    answer = client.order("prune", dry_run=dry_run)
    if as_json:
        echo_json(answer)
        return 0
    parts: list[Part] = [answer["sentence"]]
    for head, rows in (("EVICTED", answer["evicted"]), ("KEPT", answer["kept"])):
        if rows:
            parts.append(TextTable((head, "SIZE", "LAST USED", "WHY"), [_cells(one) for one in rows]))
    show_lines(parts)
    return 0


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    return (
        row.get("label") or row["model"],
        show_bytes(row["bytes_total"]),
        row["last_used_at"] or "-",
        row["kept"] or "-",
    )


def _named(model: tuple[str, int | None]) -> dict[str, object]:
    name, version = model
    return {"name": name} if version is None else {"name": name, "version": version}
