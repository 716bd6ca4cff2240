"""``gossipd publish``: the command line of the package ``publish``.

What lives here: options, the progress bar, and the output. What does not: any decision about a manifest.
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import click

from gossipd.cli.completion import KnownTargets
from gossipd.cli.layout import show_lines
from gossipd.cli.options import GivenFile, NewFile, examples, parsed
from gossipd.cli.simulate_options import RateParam

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gossipd.core.targets import Targets
    from gossipd.manifest.annotations import Retention
    from gossipd.publish.inspection import Finding
    from gossipd.publish.model_signature import ModelSigning
    from gossipd.publish.publisher import Published, PublishOrder
    from gossipd.publish.selection import Selection

WARNINGS_MAX = 20  # what a person reads
# Most models need no expiry; the bound catches a mistyped unit.
EXPIRES_S_MAX = 100 * 365 * 86400


class _Source(GivenFile):
    """An address, or what is on this machine."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return value if "://" in value else super().convert(value, param, ctx)


@click.command(
    epilog=examples(
        "gossipd publish ./qwen --name qwen/qwen3 --version 3 --key publisher.key --out qwen3-3.manifest",
        "gossipd publish ./qwen --source http://storage/qwen/ --exclude '*.bin' --name qwen3 --version 4 "
        "--key publisher.key --out /var/lib/gossipd/inbox/qwen3-4.manifest",
        "gossipd publish ./step-300 --name run-7 --version 300 --key publisher.key --out step-300.manifest --adopt",
        "gossipd publish s3://models/llama/ --name llama --version 1 --key publisher.key --out llama.manifest "
        "--targets rack=r1,rack=r2,name=gpu-*",
        "gossipd publish ./step-300 --name run-7 --step 300 --about run.json --key p.key --out run.manifest",
    )
)
@click.argument("source", type=_Source())
@click.option("--name", required=True, help="NAME or ORG/NAME: letters, digits, '.', '_', '-'.")
@click.option("--version", type=click.IntRange(0), help="Higher versions replace lower ones.")
@click.option("--step", type=click.IntRange(0), help="Instead of --version: a step of a training run.")
@click.option("--attempt", type=click.IntRange(0), help="With --step: one more for each time that the run went back.")
@click.option("--key", required=True, type=click.Path(dir_okay=False), help="Publisher's secret key (gossipd keygen).")
@click.option("--out", required=True, type=NewFile(dir_okay=False), help="Where the signed manifest goes.")
@click.option("--source", "sources", multiple=True, metavar="URL", help="Where seeds read it, if not at SOURCE.")
@click.option(
    "--chunk-size", metavar="SIZE",
    help="Power of two, 64KiB to 64MiB; auto: by --link.  [default: by the model's size, 256KiB to 16MiB]",
)  # fmt: skip
@click.option("--link", type=RateParam(), help="Of the hosts: with it chunks are what it carries in some 150 ms.")
@click.option(
    "--targets",
    multiple=True,
    metavar="rack=R,name=GLOB",
    type=KnownTargets(),
    help="Only these hosts.  [default: all]",
)
@click.option(
    "--priority", type=click.IntRange(0, 9), default=5, show_default=True,
    help="9 goes first; lower ones share the rest and always get some. Equal ones share equally.",
)  # fmt: skip
@click.option("--include", multiple=True, metavar="GLOB", help="Only these files; '*' matches '/' too.")
@click.option("--exclude", multiple=True, metavar="GLOB", help="Not these files, whatever --include says.")
@click.option("--no-default-excludes", is_flag=True, help="Also what tools leave beside a model; see below.")
@click.option("--allow-case-collisions", is_flag=True, help="Names may differ only in case; not every disk can.")
@click.option("--strict", is_flag=True, help="Refuse what looks wrong instead of warning.")
@click.option(
    "--chunk-borders", type=click.Choice(["tensors", "plain"]), default="tensors", show_default=True,
    help="tensors: a new version shares what is equal with the old one; hosts with gossipd 0.1 refuse it.",
)  # fmt: skip
@click.option("--about", metavar="FILE", type=GivenFile(dir_okay=False), help="Lineage: a JSON object, no secrets.")
@click.option("--about-git", is_flag=True, help="Add the commit of the working directory to the lineage.")
@click.option("--keep-last", type=click.IntRange(1), metavar="N", help="The newest N versions live on every host.")
@click.option("--keep-every", type=click.IntRange(0), metavar="K", help="With --keep-last: steps that K divides, too.")
@click.option("--keep-parents", is_flag=True, help="With --keep-last: what live versions name as parents, too.")
@click.option("--label", "labels", multiple=True, metavar="KEY=VALUE", help="For people and scripts.")
@click.option("--expires", metavar="DURATION", help="No host accepts it for the first time after this, as in 90d.")
@click.option(
    "--require-model-signature", metavar="PEM", type=GivenFile(dir_okay=False),
    help="SOURCE/model.sig must be an OpenSSF model signature of this public key, and right.",
)  # fmt: skip
@click.option(
    "--model-sig", metavar="PEM", type=GivenFile(dir_okay=False), help="Also make an OpenSSF model signature with it."
)
@click.option(
    "--model-sig-out", metavar="FILE", type=NewFile(dir_okay=False), default="model.sig", show_default=True,
    help="Where --model-sig writes it, outside of SOURCE.",
)  # fmt: skip
@click.option(
    "--adopt", is_flag=True,
    help="Deploy it at once from SOURCE, a directory of this host: its daemon takes a copy, and has no other source.",
)  # fmt: skip
@click.option(
    "--socket", metavar="PATH", help="With --adopt: the daemon's.  [default: $GOSSIPD_SOCKET, ./gossipd.sock]"
)
@click.option("--json", "as_json", is_flag=True, help="Print the result as one JSON object.")
def publish(source: str, chunk_size: str | None, as_json: bool, **options: Any) -> None:
    """Hash the model at SOURCE and write its signed manifest.

    SOURCE is a file, a directory, a prefix such as s3://bucket/models/m/, or hf://ORG/MODEL[@REVISION]. A web server's
    directory cannot be listed: publish the directory that it serves, with --source http://host/path/.

    Left out by default: .git/, unfinished downloads, and what file systems, macOS, Windows and editors leave. What
    looks wrong is a warning, and refused with --strict: Git LFS pointers, missing shards, empty or cut weights, files
    that hold credentials.

    Exit codes: 0 written; 1 a file cannot be read or changed meanwhile; 2 wrong arguments, or names and files that no
    manifest can have; 3 nothing at that address, or nothing selected; 6 refused by --strict, or a model signature is
    wrong; 7 the key cannot be used; 10 credentials refused; 11 storage unreachable.
    """
    from gossipd.core.errors import UsageError
    from gossipd.publish.errors import blaming_the_caller
    from gossipd.publish.publisher import publish as perform

    if options["adopt"] and (options["sources"] or "://" in source):
        raise UsageError("--adopt takes a directory of this host, and no --source")
    with blaming_the_caller():
        order = _order(source, chunk_size, options)
    with _HashingProgress(show=sys.stderr.isatty()) as progress:
        published = perform(order, progress, _warn)
    if options["adopt"]:
        _adopt(source, published, options["socket"])
    if as_json:
        click.echo(json.dumps(_as_json(published, progress.seconds)))
    else:
        _print(published, progress.seconds)


def _order(source: str, chunk_size: str | None, options: dict[str, Any]) -> PublishOrder:
    """Raises UsageError; ManifestError for what no manifest can have; KeyFileError."""
    import time
    from pathlib import Path

    from gossipd.identity.key_files import read_secret_key
    from gossipd.publish.publisher import PublishOrder
    from gossipd.publish.tensor_borders import ChunkBorders

    now_s = int(time.time())
    return PublishOrder(
        source=source,
        name=options["name"],
        version=_version(options["version"], options["step"], options["attempt"]),
        secret=read_secret_key(Path(options["key"])),
        out=Path(options["out"]),
        sources=options["sources"],
        chunk_bytes=_chunk_bytes(chunk_size, options["link"]),
        link_bytes_per_s=options["link"],
        is_step=options["step"] is not None,
        targets=_targets(options["targets"]),
        priority=options["priority"],
        selection=_selection(options),
        allow_case_collisions=options["allow_case_collisions"],
        is_strict=options["strict"],
        is_adopted=options["adopt"],
        created_s=now_s,
        expires_s=_expires_s(options["expires"], now_s),
        borders=ChunkBorders(options["chunk_borders"]),
        about=_about(options["about"], options["step"], options["attempt"], with_git=options["about_git"]),
        keep=_keep(options["keep_last"], options["keep_every"], parents=options["keep_parents"]),
        labels=_labels(options["labels"]),
        model_signing=_model_signing(
            options["require_model_signature"], options["model_sig"], options["model_sig_out"]
        ),
    )


def _adopt(source: str, published: Published, socket: str | None) -> None:
    """Hand the directory to this host's daemon; returns when it holds the version. Raises RefusedByDaemonError."""
    from pathlib import Path

    from gossipd.api.client import StatusClient, find_sockets

    client = StatusClient(find_sockets(socket, None)[0])
    was_waiting = False
    for step in client.adopt(directory=str(Path(source).absolute()), manifest=str(published.out.absolute())):
        if step.get("waiting") and not was_waiting:  # a line each second shows that it goes on
            show_lines([f"waits: {step['waiting']}"], err=True)
        was_waiting = bool(step.get("waiting"))


class _HashingProgress:
    """A progress bar on a terminal, nothing elsewhere. Counts the seconds of hashing in both cases."""

    def __init__(self, *, show: bool) -> None:
        self._show = show
        self._bar: Any = None
        self._task: Any = None
        self._began = self._ended = 0.0

    def __enter__(self) -> _HashingProgress:
        return self

    def __exit__(self, *_: object) -> None:
        import time

        self._ended = time.monotonic()
        if self._bar is not None:
            self._bar.stop()

    @property
    def seconds(self) -> float:
        """From the end of the search for files to the written manifest."""
        return max(self._ended - self._began, 1e-6) if self._began else 0.0

    def found(self, file_count: int, bytes_total: int) -> None:
        import time

        self._began = time.monotonic()
        if not self._show:
            return
        from rich.console import Console
        from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn, TransferSpeedColumn

        from gossipd.core.units import show_count

        columns = (BarColumn(), DownloadColumn(binary_units=True), TransferSpeedColumn(), TimeRemainingColumn())
        self._bar = Progress("[progress.description]{task.description}", *columns, console=Console(stderr=True))
        self._task = self._bar.add_task(f"hashing {show_count(file_count, 'file')}", total=bytes_total)
        self._bar.start()

    def hashed(self, count: int) -> None:
        if self._bar is not None:
            self._bar.advance(self._task, count)


def _warn(findings: Sequence[Finding], left_out: Mapping[str, int]) -> None:
    """What looks wrong, and what is left out, before the hours of hashing."""
    for one in findings[:WARNINGS_MAX]:
        show_lines([f"warning: {one.sentence} [{one.kind}]"], err=True)
    if len(findings) > WARNINGS_MAX:
        show_lines([f"warning: {len(findings) - WARNINGS_MAX} more, all of them in --json"], err=True)
    if left_out:
        counts = ", ".join(f"{pattern} ({count})" for pattern, count in sorted(left_out.items()))
        show_lines([f"left out by default: {counts}; --no-default-excludes takes them in"], err=True)


def _chunk_bytes(chunk_size: str | None, link: float | None) -> int | None:
    """None: by the link, or by the model's size."""
    from gossipd.core.errors import UsageError
    from gossipd.core.units import parse_bytes

    if chunk_size is None or (chunk_size == "auto" and link is not None):
        return None
    if chunk_size == "auto":
        raise UsageError("--chunk-size auto needs --link, the rate of the hosts' links, such as 25Gbit")
    if link is not None:
        raise UsageError("--link chooses the size of chunks: give it, or --chunk-size")
    return parsed("--chunk-size", parse_bytes, chunk_size)


def _version(version: int | None, step: int | None, attempt: int | None) -> int:
    from gossipd.core.errors import UsageError
    from gossipd.core.versions import VERSION_MAX, step_version

    if (version is None) == (step is None):
        raise UsageError("give --version or --step, one of them")
    if step is None and attempt is not None:
        raise UsageError("--attempt goes with --step")
    if version is not None and version > VERSION_MAX:
        raise UsageError(f"--version: at most {VERSION_MAX}")
    return version if version is not None else parsed("--step", lambda _: step_version(step or 0, attempt or 0), "")


def _about(path: str | None, step: int | None, attempt: int | None, *, with_git: bool) -> bytes:
    """The lineage: of the file, the step, and git, in this order; a field of the file stays."""
    from pathlib import Path

    from gossipd.core.errors import UsageError
    from gossipd.manifest.annotations import ABOUT_BYTES_MAX, pack_about, read_about
    from gossipd.manifest.errors import ManifestError

    about: dict[str, Any] = {}
    if path is not None:
        try:
            with Path(path).open("rb") as file:
                about = read_about(file.read(ABOUT_BYTES_MAX + 1))
        except (OSError, ManifestError) as error:
            raise UsageError(f"--about {path}: {error}") from None
    if step is not None:
        about["step"] = step
        if attempt is not None:
            about["attempt"] = attempt
    if with_git:
        from gossipd.publish.git_facts import git_facts

        about.setdefault("code", git_facts(Path.cwd()))
    return pack_about(about)


def _keep(last: int | None, every: int | None, *, parents: bool) -> Retention | None:
    from gossipd.core.errors import UsageError
    from gossipd.manifest.annotations import Retention

    if last is None and (every is not None or parents):
        raise UsageError("--keep-every and --keep-parents go with --keep-last")
    return None if last is None else Retention(last=last, every=every or 0, parents=parents)


def _labels(texts: tuple[str, ...]) -> dict[str, str]:
    from gossipd.core.errors import UsageError
    from gossipd.manifest.annotations import check_labels

    found: dict[str, str] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or key in found:
            raise UsageError(f"--label: {text!r} must be KEY=VALUE, each KEY once")
        found[key] = value
    check_labels(found)
    return found


def _model_signing(required: str | None, key: str | None, out: str) -> ModelSigning:
    from pathlib import Path

    from gossipd.publish.model_signature import ModelSigning

    return ModelSigning(
        required=Path(required) if required else None, key=Path(key) if key else None, out=Path(out)
    )  # fmt: skip


def _selection(options: Mapping[str, Any]) -> Selection:
    from gossipd.publish.selection import DEFAULT_EXCLUDES, Selection

    defaults = () if options["no_default_excludes"] else DEFAULT_EXCLUDES
    return Selection(options["include"], options["exclude"], defaults)


def _expires_s(text: str | None, now_s: int) -> int | None:
    from gossipd.core.errors import UsageError
    from gossipd.core.units import parse_seconds

    if text is None:
        return None
    seconds = parsed("--expires", parse_seconds, text)
    if not 1 <= seconds <= EXPIRES_S_MAX:
        raise UsageError(f"--expires: {text} must be from 1s to 100 years")
    return now_s + int(seconds)


def _targets(texts: tuple[str, ...]) -> Targets:
    """``rack=R`` and ``name=GLOB`` in any number, by comma or by repetition: any of the racks, any of the names."""
    from gossipd.core.errors import UsageError
    from gossipd.core.targets import Targets
    from gossipd.manifest.names import check_label, check_name_glob

    racks, names = [], []
    for part in (part for text in texts for part in text.split(",")):
        kind, equals, value = part.strip().partition("=")
        if not equals or kind not in ("rack", "name"):
            raise UsageError(f"--targets: {part.strip()!r} must be rack=R or name=GLOB")
        if kind == "rack":
            racks.append(check_label(value, "--targets rack"))
        else:
            names.append(check_name_glob(value, "--targets name"))
    return Targets(tuple(racks), tuple(names))


def _as_json(published: Published, seconds: float) -> dict[str, object]:
    return {
        "schema_version": 1,
        "id": published.deployment.hex(),
        "name": published.name,
        "version": published.version,
        "files": published.file_count,
        "bytes_total": published.bytes_total,
        "chunk_bytes": published.chunk_bytes,
        "chunks_total": published.chunk_count,
        "root": published.root.hex(),
        "sources": list(published.sources),
        "manifest_bytes": published.manifest_bytes,
        "out": str(published.out),
        "is_new": published.is_new,
        "findings": [one.as_dict for one in published.findings],
        "left_out": dict(published.left_out),
        "schema": published.schema,
        "notices": list(published.notices),
        "seconds": round(seconds, 3),
    }


def _print(published: Published, seconds: float) -> None:
    from gossipd.core.ids import short
    from gossipd.core.units import show_bytes, show_count

    chunks = f"{show_count(published.chunk_count, 'chunk')} of {show_bytes(published.chunk_bytes)}"
    words = (
        f"{published.name}@{published.version_label}  id {short(published.deployment)}  "
        f"{show_count(published.file_count, 'file')}, "
        f"{show_bytes(published.bytes_total)} in {chunks}, "
        f"hashed in {seconds:.1f} s ({show_bytes(published.bytes_total / seconds)}/s)"
    )
    show_lines([words])
    for notice in published.notices:
        show_lines([f"note: {notice}"], err=True)
    if not published.sources:
        show_lines(["this host's daemon holds it; the other hosts fetch it from here"])
        return
    show_lines([f"seeds read {', '.join(published.sources)}"])
    if any(source.startswith("file://") for source in published.sources):
        show_lines(["every seed must see that path; give --source URL if they read it elsewhere"], err=True)
    did = "wrote" if published.is_new else "kept, with the same content,"
    show_lines([f"{did} {published.out} ({show_bytes(published.manifest_bytes)}); drop it into any node's inbox"])
