"""``gossipd show``, ``lineage`` and ``export``: what a publisher says of a version, and what it came from.

What lives here: printing. What does not: the fields (``api.schema.ManifestRow``), the walk to parents
(``client.lineage``).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click

from gossipd.api.client import StatusClient
from gossipd.cli.completion import KnownModel
from gossipd.cli.layout import show_lines
from gossipd.cli.options import GivenFile, NameVersion, daemon_options, echo_json, examples
from gossipd.client.lineage import ancestors
from gossipd.core.errors import UsageError
from gossipd.core.units import show_bytes, show_count
from gossipd.core.versions import label_words

STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
PREDICATE_TYPE = "urn:gossipd:about:v1"


@click.command(
    epilog=examples(
        "gossipd show qwen3-4.manifest", "gossipd show run-7@300.2", "gossipd show run-7 --json | jq .about"
    )
)
@click.argument("manifest", metavar="FILE|NAME[@VERSION]")
@daemon_options
def show(*, manifest: str, client: StatusClient, as_json: bool) -> int:
    """What a manifest says: a FILE, or one that the daemon on this machine knows.

    Without a version, the newest that is known here. The signature of a FILE is not checked; what the daemon knows, it
    has checked.
    """
    row = _row_of(manifest, client)
    if as_json:
        echo_json({"schema_version": 1, **row})
    else:
        show_lines(_lines(row))
    return 0


@click.command(epilog=examples("gossipd lineage run-7", "gossipd lineage run-7@300.2 --json"))
@click.argument("model", metavar="NAME[@VERSION]", type=KnownModel(version_needed=False))
@daemon_options
def lineage(*, model: tuple[str, int | None], client: StatusClient, as_json: bool) -> int:
    """What a version came from, parent by parent, as far as the daemon on this machine knows them.

    Parents are named by their publisher, in 'about'; nobody has proved them.
    """
    rows = list(ancestors(client.manifest(*model), client))
    if as_json:
        echo_json({"schema_version": 1, "lineage": rows})
        return 0
    show_lines(map(_generation, rows))
    return 0


def _generation(row: Mapping[str, Any]) -> str:
    """A version in its line, further in than what came from it."""
    indent = "  " * int(row["generation"])
    if not row["known"]:
        return f"{indent}{row['id'][:16]}  not known here"
    words = [label_words(row), row["id"][:16], row["created_at"] or "", *_code(row["about"])]
    words += ["(shown above)"] if row["repeated"] else []
    return indent + "  ".join(filter(None, words))


@click.command(
    epilog=examples("gossipd export run-7@300.2 --in-toto", "gossipd export run-7.manifest --in-toto > statement.json")
)
@click.argument("manifest", metavar="FILE|NAME[@VERSION]")
@click.option(
    "--in-toto", "is_in_toto", is_flag=True, help="As an in-toto Statement v1 whose predicate is the lineage."
)
@daemon_options
def export(*, manifest: str, is_in_toto: bool, client: StatusClient, as_json: bool) -> int:
    """A version's lineage in a form of others: of a manifest FILE, or of one that the daemon here knows.

    The subject is the manifest's payload, whose BLAKE3-256 is the deployment's id. Nothing is signed: sign what it
    prints with a tool of your own.
    """
    if not is_in_toto:
        raise UsageError("say in which form: --in-toto")
    statement = in_toto_statement(_row_of(manifest, client))
    if as_json:
        echo_json({"schema_version": 1, "statement": statement})
    else:
        click.echo(json.dumps(statement, indent=2))
    return 0


def in_toto_statement(row: Mapping[str, Any]) -> dict[str, Any]:
    """The Statement v1 of a ``ManifestRow``. What decides there is the digest; annotations are for people."""
    annotations = {key: row[key] for key in ("root", "files", "bytes_total", "created_at", "signed_by", "labels")}
    subject = {
        "name": f"{row['name']}@{row['version_label']}",
        "digest": {"blake3": row["id"]},
        "annotations": {key: value for key, value in annotations.items() if value},
    }
    return {"_type": STATEMENT_TYPE, "subject": [subject], "predicateType": PREDICATE_TYPE, "predicate": row["about"]}


def _row_of(manifest: str, client: StatusClient) -> dict[str, Any]:
    """Raises NotFoundError where a path leads to nothing: no model is called so."""
    if manifest.startswith((".", "/")) or manifest.endswith(".manifest"):
        GivenFile().convert(manifest, None, None)
    return _row_of_file(Path(manifest)) if Path(manifest).is_file() else _row_of_name(manifest, client)


def _row_of_file(path: Path) -> dict[str, Any]:
    """Raises ManifestError, OSError."""
    import msgspec

    from gossipd.api.manifest_row import unverified_row
    from gossipd.manifest.envelope import ENVELOPE_BYTES_MAX

    with path.open("rb") as file:
        row: dict[str, Any] = msgspec.to_builtins(unverified_row(file.read(ENVELOPE_BYTES_MAX + 1)))
    return row


def _row_of_name(text: str, client: StatusClient) -> dict[str, Any]:
    return client.manifest(*NameVersion(version_needed=False).convert(text, None, click.get_current_context()))


def _lines(row: dict[str, Any]) -> list[str]:
    chunks = f"{show_count(row['chunks_total'], 'chunk')} of {show_bytes(row['chunk_bytes'])}"
    files = show_count(row["files"], "file")
    borders = ", which begin at tensors" if row["borders"] == "tensors" else ""
    index = "no index of tensors"
    if row["has_index"]:
        index = "an index of " + ("tensors" if row["tensors"] is None else show_count(row["tensors"], "tensor"))
    targets = [*(f"rack={rack}" for rack in row["racks"]), *(f"name={name}" for name in row["names"])]
    number = f" (version {row['version']})" if row["version_label"] != str(row["version"]) else ""
    pairs = [
        ("model", label_words(row) + number),
        ("id", row["id"]),
        ("schema", f"{row['schema']}" + (": hosts with gossipd 0.1 refuse it" if row["schema"] > 1 else "")),
        ("signed", f"by {row['signed_by']}" if row["signed_by"] else "not checked"),
        ("created", row["created_at"] or "-"),
        ("expires", row["expires_at"] or "never"),
        ("content", f"{files}, {show_bytes(row['bytes_total'])} in {chunks}{borders}; {index}"),
        ("root", row["root"]),
        ("sources", ", ".join(row["sources"])),
        ("targets", ", ".join(targets) or "every host"),
        ("priority", str(row["priority"])),
    ]
    if row["directories"]:
        pairs.append(("empty", ", ".join(row["directories"])))
    if row["keep"] is not None:
        steps = f", and each step that {row['keep']['every']} divides" if row["keep"]["every"] else ""
        parents = ", and the parents that live ones name" if row["keep"].get("parents") else ""
        pairs.append(("keep", f"the last {row['keep']['last']}{steps}{parents}"))
    pairs += [(f"label {key}", value) for key, value in sorted(row["labels"].items())]
    lines = [f"{key:10} {value}" for key, value in pairs]
    if row["about"]:
        lines += ["about", *(f"  {line}" for line in json.dumps(row["about"], indent=2).splitlines()[1:-1])]
    return lines


def _code(about: dict[str, Any]) -> Iterator[str]:
    code = about.get("code")
    if isinstance(code, dict) and isinstance(code.get("commit"), str):
        dirty = " and changes" if code.get("dirty") is True else ""
        yield f"code {json.dumps(code['commit'][:12])[1:-1]}{dirty}"
