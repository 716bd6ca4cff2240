"""The protocols by which the local sockets reach the daemon: ``StatusPort``, ``AdminPort``, ``PublishPort``.

``StatusPort`` answers from memory and never waits. The methods of ``AdminPort`` act: they may wait for the disk or for
the planner's loop, raise GossipdError for errors that an operator can cause, and may be repeated. All run on the loop.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from typing import Protocol

import msgspec

from gossipd.api.calling_process import NO_PROCESS, CallingProcess
from gossipd.api.counters import LocalCounters
from gossipd.api.schema import (
    DeploymentRow,
    HealthRow,
    ManifestRow,
    ModelRow,
    PeerRow,
    PrunedRow,
    ReportRow,
    Row,
    SketchRow,
    StatusSnapshot,
    WantRow,
)


class Done(Row, frozen=True, kw_only=True):
    """The answer to every command; ``changed`` is False when there was nothing to change."""

    changed: bool
    sentence: str


class Costs(Row, frozen=True, kw_only=True):
    """What of a manifest would be fetched. ``distinct_bytes``: its chunks, equal ones counted once. Of these
    ``reused``: what each living target can copy from other models that it has, by name; ``reused_bytes``: what some
    target can, so that no storage is read for it."""

    distinct_bytes: int
    reused_bytes: int
    reused: dict[str, int]


class Deployed(Done, frozen=True, kw_only=True):
    """The answer to a manifest that was given, or would be: what it says. ``costs``: of a dry run."""

    manifest: ManifestRow
    costs: Costs | None = None


class Reloaded(Done, frozen=True, kw_only=True):
    """The answer to a reload: which settings are in force now, and which only after a restart."""

    applied: list[str]
    needs_restart: list[str]


class Pruned(Done, frozen=True, kw_only=True):
    """The answer to ``prune``: what was evicted, or would be, and what something keeps."""

    evicted: list[PrunedRow]
    kept: list[PrunedRow]


class WantInForce(Done, frozen=True, kw_only=True):
    """The answer to ``want``: the terms in force, a line each, empty for everything, and what that is of the newest
    version; null where none is known here. ``version_label``: ``300.2`` for the step of a run."""

    want: str
    version: int | None
    bytes_wanted: int | None
    version_label: str = ""


class VerifyStep(Row, frozen=True, kw_only=True):
    """One line of a running verification: cumulative counts, and the bad chunks since the last line. The last line has
    ``done`` true. ``chunks_total`` belong to what is kept here; ``missing_count`` have not come yet, and are neither
    checked nor bad. ``bad_chunks`` are ``"FILE bytes A-B (chunk N)"``, for people; ``version_label``: ``300.2`` for the
    step of a run."""

    chunks_checked: int
    chunks_total: int
    bad_count: int
    missing_count: int = 0
    bad_chunks: list[str] = msgspec.field(default_factory=list)
    version_label: str = ""
    done: bool = False


class PublishStep(Row, frozen=True, kw_only=True):
    """One line of a running publication. ``stage``: hashing, copying, deploying. The last line has ``done`` true, and
    this host then holds the version whole. ``id`` is empty until the manifest is signed."""

    stage: str
    name: str
    version: int
    bytes_done: int
    bytes_total: int
    file_count: int
    id: str = ""
    done: bool = False
    left_out: dict[str, int] = msgspec.field(default_factory=dict)
    """How many files each of the usual patterns left out."""
    envelope: str = ""
    """In base64, in the last line of what is signed and not told: the shards of one host, or the manifest of all."""
    waiting: str = ""
    """Why nothing moves, in words: it waits for its turn, or nothing has been read for a while."""


class StatusPort(Protocol):
    """The present state. Values are immutable; no method raises or waits."""

    def snapshot(self) -> StatusSnapshot:
        """The page without its deployments, of which one can be as much work as all the rest."""

    def deployments(
        self, name: str | None = None, version: int | None = None, *, hosts_max: int | None = None,
        host: str | None = None,
    ) -> Iterator[DeploymentRow]:  # fmt: skip
        """The deployments of that name and version, by default all, by name and then version, highest first. Each row
        is made when it is asked for, from the records of all its targets: a caller that takes many lets other tasks
        run in between. ``hosts_max``: of more targets than that, complete ones are left out and counted; such a row in
        which nothing moves costs little while no host tells anything else. ``host``: only deployments of which it is a
        target, each with the row of this one alone; costs as little."""

    def deployment_count(self) -> int:
        """How many rows ``deployments`` has."""

    def host_name(self) -> str:
        """This host's name, as rows have it."""

    def label(self, name: str, version: int | None) -> str:
        """``NAME@VERSION`` for people, also of what is not known here: ``300.2`` where versions of the name are
        steps."""

    def names(self) -> Iterator[tuple[str, str]]:
        """Pairs of ``model``, ``name`` (of a host) or ``rack``, and what is called so: NAME@VERSION of every
        deployment, as ``deployments`` has them, and the hosts of the roster."""

    async def look(self) -> None:
        """Look at what users find of the models now, for half a second at most: ``models`` and ``health`` tell it."""

    def models(self) -> Sequence[ModelRow]:
        """The models on this host, partial ones included, by name and then version, highest first."""

    def manifest(self, name: str | None, version: int | None, deployment: str | None) -> ManifestRow | None:
        """The manifest of that name, version and id (hexadecimal), of several the highest version; None for unknown."""

    def report(self, name: str, version: int | None) -> ReportRow | None:
        """What that deployment did, of several versions the highest; None for unknown."""

    def sketches(self, name: str, version: int) -> Iterator[SketchRow]:
        """Which chunks of that deployment its targets have, by name, as far as that is known here. Each row is made
        when it is asked for, as in ``deployments``."""

    def fine_sketch(self, name: str, version: int, host: str) -> tuple[SketchRow | None, str]:
        """One target's chunks in up to 256 bins, as it has said itself, None where it has not; and what became of
        asking it, as ``SketchesRow.asked`` has it. The host is asked beside this."""

    def wants(self) -> Sequence[WantRow]:
        """What this host wants of models that it need not take whole, by name."""

    def peers(self) -> Mapping[str, PeerRow]:
        """Traffic with each peer, by node id in hex."""

    def counters(self) -> LocalCounters:
        """Counters of this host, for Prometheus."""

    def newcomer(self, *, at_start: bool = False) -> str:
        """Why this host may not have heard yet what the others know, as "this host is up for 1 s only"; else empty.
        ``at_start``: only in the first seconds, when "all hosts" would mean those that were heard so far."""

    def health(self) -> HealthRow:
        """Whether this host is ready. Contains no secrets, because anybody may ask."""


class AdminPort(Protocol):
    """Commands of this host's operator."""

    async def deploy(self, manifest: str, *, dry_run: bool, budget: str) -> Deployed:
        """Take a manifest, the path of a file of this host, as one from the inbox; or only judge it. ``budget``: for
        reads of storage, as ``source_budget.parse_budget`` has it; empty leaves it. Raises GossipdError: the file, its
        signature, its version; the budget, or this host may not give it one."""

    async def cancel(self, name: str, version: int, *, force: bool) -> Done:
        """Stop a deployment in the whole cluster. Raises NotFoundError; LocalError ``E_COMPLETE`` when all have it, but
        for ``force``."""

    async def pause(self, name: str, version: int, *, undo: bool) -> Done:
        """Pause a deployment in the whole cluster, or resume it. Raises NotFoundError."""

    async def remove(self, name: str, version: int, *, dry_run: bool, everywhere: bool) -> Done:
        """Remove a version from this host, for good; with ``everywhere`` from every host, until it is deployed again.
        Raises NotFoundError; with ``everywhere`` ManifestError ``E_MAY_NOT_CANCEL`` where this host may not."""

    async def pin(self, name: str, version: int | None, *, undo: bool) -> Done:
        """Keep a version, or the current one of a name, from eviction on this host; ``undo``: no longer. Raises
        NotFoundError; GossipdError when the disk refuses, or there are too many."""

    async def warm(self, name: str, version: int | None) -> Done:
        """Read a version that is complete here, or the current one of a name, into memory. Raises NotFoundError;
        GossipdError when the disk refuses."""

    async def want(
        self, name: str, terms: list[str], *, clear: bool, free: bool, holder: str = "",
        process: CallingProcess = NO_PROCESS,
    ) -> WantInForce:  # fmt: skip
        """Take these parts of a model from now on, beside what was ordered before, or, with ``clear``, instead of it.
        ``free``: delete what is here and wanted no longer. ``holder``: whose order it is; those of others stay, and it
        ends with ``process`` where the kernel tells of it. Raises WantError, ManifestError: it means nothing in the
        newest version; GossipdError when the disk refuses."""

    async def prune(self, *, dry_run: bool) -> Pruned:
        """Evict what is not current, and more down to the low watermark, if there is one. Raises GossipdError when the
        disk refuses."""

    async def rollback(self, name: str) -> Done:
        """Point ``current`` at the version before, here. Raises NotFoundError when there is none."""

    async def rollback_everywhere(self, name: str, version: int | None) -> Done:
        """Take that version back, or the newest, in the whole cluster. Raises NotFoundError where no host has an older
        one complete; ManifestError ``E_MAY_NOT_CANCEL``."""

    async def untrust(self, key: str, name: str, version: int, *, undo: bool) -> Done:
        """Stop using the models of a key (its id in hex), or one model when ``key`` is empty. Raises NotFoundError."""

    async def override(self, name: str) -> Done:
        """Let the next manifest of that name have any version. Raises NotFoundError."""

    async def forget(self, node: str) -> Done:
        """Remove a dead host, by name or id, from the roster. Raises NotFoundError, or GossipdError if it lives."""

    async def reload(self) -> Reloaded:
        """Read configuration and keys again. Raises GossipdError with every problem; then nothing has changed."""

    def verify(self, name: str, version: int) -> AsyncGenerator[VerifyStep, None]:
        """Hash the version on this disk; about one step a second, the last one ``done``. Raises NotFoundError. The
        daemon drops bad chunks and fetches them again later. The generator is closed when the client disconnects."""


class PublishPort(Protocol):
    """Publishing for users of this host, from directories of this host. ``user`` is the caller's number."""

    def publish(
        self, user: int, directory: str, name: str, *, version: int | None, step: int | None, how: str,
        keep_last: int | None, keep_every: int | None, about: str, exclude: str,
    ) -> AsyncGenerator[PublishStep, None]:  # fmt: skip
        """Hash and sign a directory, and go on as ``adopt``. ``keep_last``, ``keep_every``: which versions of the name
        are to live; None for ``keep_last`` leaves it to each host. ``about``: a JSON object, or empty. ``exclude``:
        patterns of files that are left out, one a line. Raises GossipdError."""

    def adopt(self, user: int, directory: str, manifest: str, *, how: str) -> AsyncGenerator[PublishStep, None]:
        """Take a directory as this host's copy of what the manifest in a file names, and deploy it. Raises
        GossipdError."""

    def shards(
        self, user: int, directory: str, name: str, *, rank: int, ranks: int, chunk_bytes: int, exclude: str
    ) -> AsyncGenerator[PublishStep, None]:
        """Hash and sign the files that this host has of a version whose files lie on ``ranks`` hosts. ``exclude``: as
        of ``publish``. Raises GossipdError."""

    def assemble(
        self, user: int, shards: str, name: str, *, version: int | None, step: int | None, keep_last: int | None,
        keep_every: int | None, about: str,
    ) -> AsyncGenerator[PublishStep, None]:  # fmt: skip
        """Sign the manifest of what all hosts have hashed, which are the files of the directory ``shards``.
        ``about``: as of ``publish``. Raises GossipdError."""

    def adopt_shards(
        self, user: int, directory: str, manifest: str, *, is_told: bool
    ) -> AsyncGenerator[PublishStep, None]:
        """Take a directory as this host's copy of some files of what the manifest in a file names; with ``is_told``
        deploy it then, else wait for another host's word. Raises GossipdError."""
