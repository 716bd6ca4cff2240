"""``gossipd ls`` and ``gossipd path``: the models on this host, and their paths."""

from __future__ import annotations

import click

from gossipd.api.client import StatusClient
from gossipd.cli.completion import KnownModel
from gossipd.cli.layout import TextTable, show_lines
from gossipd.cli.options import daemon_options, echo_json, examples, prefix_option
from gossipd.core.units import show_bytes
from gossipd.core.versions import label_words


@click.command(epilog=examples("gossipd ls", "gossipd ls --json | jq -r '.models[].name'"))
@click.option("--long", "is_long", is_flag=True, help="Also run and step, as the publisher says.")
@daemon_options
def ls(*, is_long: bool, client: StatusClient, as_json: bool) -> int:
    """Models on this host, partial ones included. '*' marks what 'current' points at."""
    answer = client.models()
    if as_json:
        echo_json(answer)
        return 0
    if not answer["models"]:
        show_lines(["no models on this host"])
        return 0
    rows = [
        (
            f"{'*' if model['current'] else ' '} {label_words(model)}",
            model["state"],
            show_bytes(model["bytes_total"] if model.get("bytes_wanted") is None else model["bytes_wanted"]),
            model["completed_at"] or "-",
            *((model["lineage"] or "-",) if is_long else ()),
            model["path"] or "-",
        )
        for model in answer["models"]
    ]
    head = ("  MODEL", "STATE", "SIZE", "COMPLETED", *(("LINEAGE",) if is_long else ()), "PATH")
    troubles = [f"{label_words(one)}: {one['trouble']}" for one in answer["models"] if one.get("trouble")]
    show_lines([TextTable(head, rows), *(["", *troubles] if troubles else [])])
    return 0


@click.command(epilog=examples("vllm serve $(gossipd path qwen)", "gossipd path org/model@7"))
@click.argument("model", metavar="NAME[@VERSION]", type=KnownModel(version_needed=False))
@click.option("--part", is_flag=True, help="Also where only a part of it is wanted on this host.")
@prefix_option
@daemon_options
def path(
    *, model: tuple[str, int | None], part: bool, prefix: str | None, client: StatusClient, as_json: bool
) -> int:  # fmt: skip
    """Where a complete model lies on this host; without a version, the current one.

    Prints nothing but the path. Exits with 3 when it is not complete here.
    """
    found = client.complete_model(*model, part=part, prefix=prefix)
    if as_json:
        echo_json({"schema_version": 1, "name": found["name"], "version": found["version"], "path": found["path"]})
    else:
        click.echo(found["path"])
    return 0
