"""The local sockets' API as an OpenAPI 3.1 document, made of the routes and of the structures that answer.

What lives here: which route takes what and answers with which structure. What does not: the structures (``schema``,
``ports``) and serving (``routes``); a test compares the routes with those that are served, and real answers with the
document.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import msgspec

from gossipd import __version__
from gossipd.api.events import EventRow
from gossipd.api.long_poll import WaitRow
from gossipd.api.ports import Deployed, Done, Pruned, PublishStep, Reloaded, VerifyStep, WantInForce
from gossipd.api.schema import (
    SCHEMA_VERSION,
    DeploymentRow,
    HealthRow,
    ManifestRow,
    MemberRow,
    ModelRow,
    PeerRow,
    ReportRow,
    Row,
    SketchesRow,
    StatusSnapshot,
    WantRow,
)
from gossipd.runtime.task_tree import TaskRow

JSON, LINES, TEXT = "application/json", "application/x-ndjson", "text/plain"
_REFERENCE = "#/components/schemas/{name}"


class Refusal(Row, frozen=True, kw_only=True):
    """Why a request was refused. ``code`` is stable; ``exit_code`` is what the command ends with."""

    code: str
    message: str
    exit_code: int


class RefusalAnswer(Row, frozen=True, kw_only=True):
    """The answer to every request that is refused."""

    error: Refusal
    schema_version: int = SCHEMA_VERSION


class MembersAnswer(Row, frozen=True, kw_only=True):
    """Everybody on the roster."""

    members: list[MemberRow]


class ModelsAnswer(Row, frozen=True, kw_only=True):
    """What is on this host."""

    models: list[ModelRow]


class ManifestAnswer(Row, frozen=True, kw_only=True):
    """What a publisher says."""

    manifest: ManifestRow


class ReportAnswer(Row, frozen=True, kw_only=True):
    """What a deployment did."""

    report: ReportRow


class WantsAnswer(Row, frozen=True, kw_only=True):
    """What this host wants of models that it need not take whole."""

    wants: list[WantRow]


class PeersAnswer(Row, frozen=True, kw_only=True):
    """Traffic with each peer, by node id in hex."""

    peers: dict[str, PeerRow]


class LogAnswer(Row, frozen=True, kw_only=True):
    """The latest lines of the daemon's log, oldest first, since its start."""

    lines: list[str]


class TasksAnswer(Row, frozen=True, kw_only=True):
    """The daemon's tasks, each below its parent."""

    tasks: list[TaskRow]


class DeploymentAnswer(Row, frozen=True, kw_only=True):
    """One deployment."""

    deployment: DeploymentRow


class EventsAnswer(Row, frozen=True, kw_only=True):
    """What happened after ``since``; server-sent events, one for each, where the request asks for them."""

    boot: int
    last: int
    events: list[EventRow]


class LiveAnswer(Row, frozen=True, kw_only=True):
    """The daemon's loop turns."""

    live: bool


@dataclass(frozen=True, slots=True)
class _Operation:
    method: str
    path: str
    summary: str
    answer: type[Row] | None = None
    media: str = JSON
    needs: tuple[str, ...] = ()
    """Queries that must be given."""
    query: tuple[str, ...] = ()
    body: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()
    others: tuple[int, ...] = ()
    """Statuses besides 200 with the same kind of answer."""


_MODEL = ("name", "version")
_STATUS = (*_MODEL, "hosts_max", "host")
OPERATIONS = (
    _Operation("get", "/v1/status", "The whole page, or one model's deployments.", StatusSnapshot, query=_STATUS),
    _Operation("get", "/v1/members", "Who belongs to the cluster.", MembersAnswer),
    _Operation("get", "/v1/models", "Models on this host.", ModelsAnswer, query=("name",)),
    _Operation(
        "get",
        "/v1/manifest",
        "What a publisher says in a manifest; the newest without a version.",
        ManifestAnswer,
        query=(*_MODEL, "id"),
    ),
    _Operation(
        "get",
        "/v1/report",
        "What a deployment did; without a version, the newest.",
        ReportAnswer,
        needs=("name",),
        query=("version",),
    ),
    _Operation(
        "get",
        "/v1/sketch",
        "Which chunks hosts have, where that is known; without a version, of the newest. bins=256: as the host says.",
        SketchesRow,
        needs=("name",),
        query=("version", "host", "bins"),
    ),
    _Operation("get", "/v1/wants", "Parts of models that this host wants.", WantsAnswer),
    _Operation("get", "/v1/peers", "Traffic of this host with each peer.", PeersAnswer),
    _Operation("get", "/v1/log", "The latest lines of the daemon's log; for its own user and root.", LogAnswer),
    _Operation("get", "/v1/tasks", "What the daemon's tasks wait for.", TasksAnswer),
    _Operation("get", "/v1/deployments/{name}/{version}", "One deployment; NAME may have a slash.", DeploymentAnswer),
    _Operation(
        "get", "/v1/events", "What has happened; waits up to wait_s for more.", EventsAnswer, query=("since", "wait_s")
    ),
    _Operation(
        "get",
        "/v1/wait",
        "Answers when enough hosts have it, or the round is over.",
        WaitRow,
        needs=("name",),
        query=("version", "hosts", "goal", "round_s"),
    ),
    _Operation(
        "get",
        "/v1/latest",
        "The newest version that is complete there.",
        DeploymentAnswer,
        needs=("name",),
        query=("where",),
    ),
    _Operation(
        "post",
        "/v1/deploy",
        "Take a manifest, a file of this host; or only judge it.",
        Deployed,
        body=("manifest",),
        optional=("dry_run", "budget"),
    ),
    _Operation("post", "/v1/cancel", "Stop a deployment everywhere.", Done, body=_MODEL, optional=("force",)),
    _Operation("post", "/v1/pause", "Begin no fetch and no read, everywhere.", Done, body=_MODEL),
    _Operation("post", "/v1/resume", "Go on after a pause, everywhere.", Done, body=_MODEL),
    _Operation(
        "post",
        "/v1/rm",
        "Remove a version from this host, or from all.",
        Done,
        body=_MODEL,
        optional=("dry_run", "everywhere"),
    ),
    _Operation(
        "post",
        "/v1/rollback",
        "Point 'current' at the version before, here; or take a version back everywhere.",
        Done,
        body=("name",),
        optional=("version", "everywhere"),
    ),
    _Operation("post", "/v1/pin", "Keep a version from eviction here.", Done, body=("name",), optional=("version",)),
    _Operation("post", "/v1/unpin", "Keep it no longer.", Done, body=("name",), optional=("version",)),
    _Operation("post", "/v1/warm", "Read a version into memory.", Done, body=("name",), optional=("version",)),
    _Operation(
        "post",
        "/v1/want",
        "Take only parts of a model here.",
        WantInForce,
        body=("name",),
        optional=("want", "clear", "free"),
    ),
    _Operation("post", "/v1/prune", "Evict what is not needed here.", Pruned, optional=("dry_run",)),
    _Operation("post", "/v1/forget", "Take a host that is gone off the roster.", Done, body=("node",)),
    _Operation(
        "post", "/v1/untrust", "Stop using a key's models, or one version.", Done, optional=("key", *_MODEL, "undo")
    ),
    _Operation("post", "/v1/override", "Let the next manifest of a name have any version.", Done, body=("name",)),
    _Operation("post", "/v1/reload", "Read configuration and keys again.", Reloaded),
    _Operation("post", "/v1/verify", "Hash a version again; one line a step.", VerifyStep, media=LINES, body=_MODEL),
    _Operation(
        "post",
        "/v1/publish",
        "Make, sign and deploy a version of a directory; one line a step.",
        PublishStep,
        media=LINES,
        body=("directory", "name"),
        optional=("version", "step", "how", "about", "keep_last", "keep_every", "exclude"),
    ),
    _Operation(
        "post",
        "/v1/adopt",
        "Take a directory as the copy of a signed version; one line a step.",
        PublishStep,
        media=LINES,
        body=("directory", "manifest"),
        optional=("how",),
    ),
    _Operation(
        "post",
        "/v1/shards",
        "Hash and sign what this host has of a version whose files lie on several; one line a step.",
        PublishStep,
        media=LINES,
        body=("directory", "name", "rank", "ranks", "chunk_bytes"),
        optional=("exclude",),
    ),
    _Operation(
        "post",
        "/v1/assemble",
        "Sign the manifest of what all hosts have hashed; one line a step.",
        PublishStep,
        media=LINES,
        body=("shards", "name"),
        optional=("version", "step", "about", "keep_last", "keep_every"),
    ),
    _Operation(
        "post",
        "/v1/adopt-shards",
        "Take a directory as the copy of some files of a signed version; one line a step.",
        PublishStep,
        media=LINES,
        body=("directory", "manifest"),
        optional=("told",),
    ),
    _Operation("get", "/v1/names", "A line each: model, name or rack, and what is called so.", media=TEXT),
    _Operation("get", "/metrics", "Prometheus text.", media=TEXT),
    _Operation("get", "/livez", "Whether the daemon's loop turns.", LiveAnswer),
    _Operation("get", "/readyz", "Whether this host is ready.", HealthRow, others=(503,)),
    _Operation("get", "/healthz", "The same as /readyz.", HealthRow, others=(503,)),
)
_TYPES: dict[str, dict[str, Any]] = {
    "name": {"type": "string"},
    "node": {"type": "string", "description": "a host's name or id"},
    "version": {"type": "integer", "minimum": 0},
    "host": {"type": "string", "description": "of the targets this one alone"},
    "hosts_max": {
        "type": "integer",
        "minimum": 0,
        "description": "of deployments on more hosts, complete ones are counts",
    },
    "bins": {"type": "integer", "enum": [256], "description": "with host: as that host says when it is asked"},
    "key": {"type": "string", "pattern": "^[0-9a-f]{32}$", "description": "a key's id, instead of name and version"},
    "rank": {"type": "integer", "minimum": 0, "description": "which of the hosts that save, from 0"},
    "ranks": {"type": "integer", "minimum": 1, "description": "how many hosts save"},
    "chunk_bytes": {"type": "integer", "description": "of every host the same; a power of two from 64 KiB to 64 MiB"},
    "shards": {"type": "string", "description": "a directory with a file of each host, as /v1/shards answers"},
    "told": {"type": "boolean", "default": False, "description": "deploy it; else wait for another host's word"},
    "undo": {"type": "boolean", "default": False},
    "everywhere": {"type": "boolean", "default": False, "description": "in the whole cluster"},
    "want": {"type": "string", "description": "terms such as ep:3/16, a line each, or all"},
    "clear": {"type": "boolean", "default": False, "description": "forget earlier orders for the name"},
    "free": {"type": "boolean", "default": False, "description": "delete what is here and wanted no longer"},
    "force": {"type": "boolean", "default": False, "description": "also of what all hosts have"},
    "id": {
        "type": "string",
        "pattern": "^[0-9a-f]{64}$",
        "description": "a deployment's id, instead of name and version",
    },
    "since": {"type": "string", "description": "BOOT:ID of the last event that was seen"},
    "goal": {"type": "string", "default": "complete", "enum": ["complete", "current", "removed"]},
    "hosts": {"type": "string", "default": "100%", "description": "here, a share or a number"},
    "round_s": {"type": "number", "minimum": 0},
    "where": {"type": "string", "default": "everywhere", "description": "here, anywhere, everywhere, or hosts by name"},
    "directory": {"type": "string", "description": "a path on the daemon's host"},
    "manifest": {"type": "string", "description": "a path on the daemon's host"},
    "keep_last": {"type": "integer", "minimum": 1, "description": "the newest so many versions live"},
    "about": {"type": "string", "description": "lineage: a JSON object, at most 16 KiB"},
    "exclude": {"type": "string", "description": "patterns of files that are left out, one a line"},
    "keep_every": {"type": "integer", "minimum": 0, "description": "with keep_last: steps that it divides live, too"},
    "step": {"type": "integer", "minimum": 0, "description": "of the trainer, instead of version"},
    "how": {"type": "string", "enum": ["copy", "reflink"], "default": "copy"},
    "wait_s": {"type": "number", "minimum": 0},
    "dry_run": {"type": "boolean", "default": False},
    "budget": {"type": "string", "description": "of external bytes, as in 600GB; of money, as in 50; or none"},
}


def document() -> dict[str, Any]:
    """The whole document, as JSON values."""
    answers = [RefusalAnswer, *(one.answer for one in OPERATIONS if one.answer is not None)]
    _, components = msgspec.json.schema_components(answers, ref_template=_REFERENCE)
    for one in OPERATIONS:
        if one.answer is not None and one.media == JSON:
            _with_schema_version(components[one.answer.__name__])
    paths: dict[str, dict[str, Any]] = {}
    for one in OPERATIONS:
        paths.setdefault(one.path, {})[one.method] = _operation(one)
    return {
        "openapi": "3.1.0",
        "info": {"title": "gossipd, local sockets of a daemon", "version": __version__, "license": {"name": "MIT"}},
        "servers": [{"url": "http://localhost", "description": "over the unix sockets of the [status] section"}],
        "paths": paths,
        "components": {"schemas": components},
    }


def _with_schema_version(schema: dict[str, Any]) -> None:
    """Every JSON answer has it; ``answers`` adds it where the structure has none."""
    schema["properties"].setdefault("schema_version", {"type": "integer"})
    schema["required"] = sorted({*schema.get("required", []), "schema_version"})


def _operation(one: _Operation) -> dict[str, Any]:
    schema = {"type": "string"} if one.answer is None else {"$ref": _REFERENCE.format(name=one.answer.__name__)}
    answer = {"description": one.summary, "content": {one.media: {"schema": schema}}}
    refusal = {"$ref": _REFERENCE.format(name=RefusalAnswer.__name__)}
    inside = re.findall(r"{(\w+)}", one.path)
    parameters = [{"name": name, "in": "path", "required": True, "schema": _TYPES[name]} for name in inside]
    parameters += [{"name": name, "in": "query", "required": True, "schema": _TYPES[name]} for name in one.needs]
    parameters += [{"name": name, "in": "query", "required": False, "schema": _TYPES[name]} for name in one.query]
    described: dict[str, Any] = {
        "operationId": "_".join((one.method, *re.findall(r"\w+", one.path))),
        "summary": one.summary,
        "responses": {
            **{str(status): answer for status in (200, *one.others)},
            "default": {"description": "Refused.", "content": {JSON: {"schema": refusal}}},
        },
    }
    if parameters:
        described["parameters"] = parameters
    if one.body or one.optional:
        fields = {name: _TYPES[name] for name in (*one.body, *one.optional)}
        body = {"type": "object", "properties": fields, "required": list(one.body), "additionalProperties": False}
        described["requestBody"] = {"required": True, "content": {JSON: {"schema": body}}}
    return described
