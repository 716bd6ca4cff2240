"""The routes of the daemon's local sockets: the status socket, and a loopback port for scrapers.

What lives here: the routes and the form of refusals. What does not: HTTP and its limits (``request_guard``), the fields
of answers (``schema``), and the daemon behind ``ports.StatusPort`` and ``ports.AdminPort``.

=======  ================================  ==========================================================
method   path                              answer
=======  ================================  ==========================================================
GET      /v1/status?name=&version=         StatusSnapshot, its deployments narrowed
GET      /v1/members                       {"members": [...]}
GET      /v1/models?name=                  {"models": [...]}: what is on this host
GET      /v1/manifest?name=&version=&id=   ManifestRow: what its publisher says; the newest without a version
GET      /v1/events?since=BOOT:ID&wait_s=  {"boot", "last", "events": [...]}, or server-sent events when asked for
GET      /v1/report?name=&version=         {"report": ...}: what a deployment did, of a name the newest
GET      /v1/wants                         {"wants": [...]}: parts that this host wants
GET      /v1/peers                         {"peers": {id: ...}}: traffic with each peer
GET      /v1/deployments/NAME/VERSION      one deployment; NAME may be ``org/name``
GET      /v1/wait?name=&version=&hosts=    WaitRow, when enough hosts are complete or the
         &goal=&round_s=                   round is over; a refusal if it cannot be. goal: complete,
                                           current, removed
GET      /v1/latest?name=&where=           the newest version that is complete there
POST     /v1/cancel, pause, resume, rm,    {"changed": bool, "sentence": str}
         rollback, forget, untrust,
         override, pin, unpin
POST     /v1/want                          the same, with what is in force
POST     /v1/prune                         the same, with "evicted" and "kept": lists of versions
POST     /v1/deploy                        the same, with "manifest"; dry_run judges it and deploys nothing
POST     /v1/reload                        the same, with "applied" and "needs_restart": lists of settings
POST     /v1/publish, adopt, shards,         newline-separated JSON, one PublishStep a line
         assemble, adopt-shards
POST     /v1/verify                        newline-separated JSON, one VerifyStep a line
GET      /metrics                          Prometheus text
GET      /healthz, /livez, /readyz         200 or 503 with reasons; nothing secret
=======  ================================  ==========================================================

Every JSON answer has ``schema_version``. Commands take arguments as a JSON body or in the query. A refusal is
``{"error": {"code", "message", "exit_code"}}`` with a suitable status, and the client exits with that code. The socket
is 0600: any process that can connect may give commands. A second socket serves the lines with GET alone, to the users
that ``status.readers`` names; of the commands it takes ``publish`` and those of shards, from the users that
``publish.users`` names. The loopback port serves only the last two lines.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from typing import TypeAlias

import msgspec
import trio
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from gossipd.api.event_pages import EventPages
from gossipd.api.events import EventRing
from gossipd.api.long_poll import LongPoll
from gossipd.api.metrics import CONTENT_TYPE, render
from gossipd.api.ports import AdminPort, PublishPort, StatusPort
from gossipd.api.readiness import EVERYWHERE, HostsNeeded, newest
from gossipd.api.request_guard import CALLER, StatusRequestError, error_body
from gossipd.api.schema import SCHEMA_VERSION, Row
from gossipd.core.errors import ExitCode, GossipdError, NotFoundError, RemoteError, UsageError

_KEY_ID = re.compile("[0-9a-f]{32}")
Endpoint: TypeAlias = Callable[[Request], Awaitable[Response]]

_STATUS_OF_EXIT = {
    ExitCode.USAGE: 400,
    ExitCode.NOT_FOUND: 404,
    ExitCode.TRUST: 403,
    ExitCode.DISK: 507,
    ExitCode.TIMEOUT: 504,
}


def status_app(view: StatusPort, operations: AdminPort, publishing: PublishPort, ring: EventRing) -> Starlette:
    """All routes, for the unix socket."""
    orders, jobs = _AdminRoutes(operations), _PublishRoutes(publishing)
    routes = [
        *_question_routes(view, ring),
        Route("/v1/deploy", orders.deploy, methods=["POST"]),
        Route("/v1/cancel", orders.cancel, methods=["POST"]),
        Route("/v1/pause", orders.pause, methods=["POST"]),
        Route("/v1/resume", orders.resume, methods=["POST"]),
        Route("/v1/rm", orders.remove, methods=["POST"]),
        Route("/v1/pin", orders.pin, methods=["POST"]),
        Route("/v1/unpin", orders.unpin, methods=["POST"]),
        Route("/v1/want", orders.want, methods=["POST"]),
        Route("/v1/prune", orders.prune, methods=["POST"]),
        Route("/v1/rollback", orders.rollback, methods=["POST"]),
        Route("/v1/untrust", orders.untrust, methods=["POST"]),
        Route("/v1/override", orders.override, methods=["POST"]),
        Route("/v1/forget", orders.forget, methods=["POST"]),
        Route("/v1/reload", orders.reload, methods=["POST"]),
        Route("/v1/verify", orders.verify, methods=["POST"]),
        *_job_routes(jobs),
        Route("/v1/adopt", jobs.adopt, methods=["POST"]),
    ]
    return Starlette(routes=routes, exception_handlers=_HANDLERS)


def read_app(view: StatusPort, publishing: PublishPort, ring: EventRing) -> Starlette:
    """The questions, for a unix socket that other users of the host may use, and publishing, which asks who they are.
    No other route changes anything."""
    jobs = _job_routes(_PublishRoutes(publishing))
    orders = Route("/v1/{verb}", _no_orders_here, methods=["POST"])
    return Starlette(routes=[*_question_routes(view, ring), *jobs, orders], exception_handlers=_HANDLERS)


def _job_routes(jobs: _PublishRoutes) -> list[Route]:
    """What ``publish.users`` may order on both sockets."""
    return [
        Route("/v1/publish", jobs.publish, methods=["POST"]),
        Route("/v1/shards", jobs.shards, methods=["POST"]),
        Route("/v1/assemble", jobs.assemble, methods=["POST"]),
        Route("/v1/adopt-shards", jobs.adopt_shards, methods=["POST"]),
    ]


def health_app(view: StatusPort) -> Starlette:
    """Metrics and health only, for a loopback TCP port that every user of the host can reach."""
    return Starlette(routes=_health_routes(view), exception_handlers=_HANDLERS)


class _Pages:
    """Answers from memory."""

    def __init__(self, view: StatusPort) -> None:
        self._view = view
        self._polls = LongPoll(view)

    async def status(self, request: Request) -> Response:
        """A row at a time: with many hosts the rows of many deployments together would hold up the loop."""
        name, version = request.query_params.get("name"), request.query_params.get("version")
        number = _version(version) if name is not None and version is not None else None
        rows = []
        for row in self._view.deployments(name, number):
            rows.append(msgspec.Raw(msgspec.json.encode(row)))
            await trio.lowlevel.checkpoint()
        if name is not None and not rows:
            raise NotFoundError(f"no deployment {_label(name, number)} is known here")
        return _json(msgspec.structs.asdict(self._view.snapshot()) | {"deployments": rows})

    async def members(self, request: Request) -> Response:
        return _json({"members": self._view.snapshot().members})

    async def models(self, request: Request) -> Response:
        name = request.query_params.get("name")
        models = [model for model in self._view.models() if name in (None, model.name)]
        return _json({"models": models})

    async def manifest(self, request: Request) -> Response:
        given = request.query_params
        name, version, deployment = given.get("name"), given.get("version"), given.get("id")
        if name is None and deployment is None:
            raise StatusRequestError("field 'name' or 'id' is missing")
        number = _version(version) if version is not None else None
        row = self._view.manifest(name, number, deployment)
        if row is None:
            what = f"manifest {_label(name, number)}" if name is not None else "manifest with that id"
            raise NotFoundError(f"no {what} is known here")
        return _json({"manifest": row})

    async def report(self, request: Request) -> Response:
        given = _given(request, "name", optional=("version",))
        number = _version(given["version"]) if "version" in given else None
        row = self._view.report(given["name"], number)
        if row is None:
            raise NotFoundError(f"no deployment {_label(given['name'], number)} is known here")
        return _json({"report": row})

    async def wants(self, request: Request) -> Response:
        return _json({"wants": self._view.wants()})

    async def peers(self, request: Request) -> Response:
        return _json({"peers": self._view.peers()})

    async def deployment(self, request: Request) -> Response:
        name, version = request.path_params["name"], request.path_params["version"]
        row = next(self._view.deployments(name, version), None)
        if row is None:
            raise NotFoundError(f"no deployment {_label(name, version)} is known here")
        return _json({"deployment": row})

    async def wait(self, request: Request) -> Response:
        given = _given(request, "name", optional=("version", "hosts", "goal", "round_s"))
        version = _version(given["version"]) if given.get("version") else None
        needed = HostsNeeded.parse(given.get("hosts") or "100%", given.get("goal") or "complete")
        return _json(await self._polls.wait(given["name"], version, needed, _round_s(given.get("round_s", "20"))))

    async def latest(self, request: Request) -> Response:
        given = _given(request, "name", optional=("where",))
        where = given.get("where") or EVERYWHERE
        rows = []
        for row in self._view.deployments(given["name"]):
            rows.append(row)
            await trio.lowlevel.checkpoint()
        return _json({"deployment": newest(rows, given["name"], where, self._view.host_name())})


class _AdminRoutes:
    """Passes commands on and answers with their results."""

    def __init__(self, operations: AdminPort) -> None:
        self._operations = operations

    async def deploy(self, request: Request) -> Response:
        fields = await _fields(request, "manifest", optional=("dry_run", "budget"))
        dry_run, budget = _is_set(fields, "dry_run"), fields.get("budget", "")
        return _json(await self._operations.deploy(fields["manifest"], dry_run=dry_run, budget=budget))

    async def cancel(self, request: Request) -> Response:
        fields = await _fields(request, "name", "version", optional=("force",))
        force = _is_set(fields, "force")
        return _json(await self._operations.cancel(fields["name"], _version(fields["version"]), force=force))

    async def pause(self, request: Request) -> Response:
        return await self._paused(request, undo=False)

    async def resume(self, request: Request) -> Response:
        return await self._paused(request, undo=True)

    async def _paused(self, request: Request, *, undo: bool) -> Response:
        fields = await _fields(request, "name", "version")
        return _json(await self._operations.pause(fields["name"], _version(fields["version"]), undo=undo))

    async def remove(self, request: Request) -> Response:
        fields = await _fields(request, "name", "version", optional=("dry_run", "everywhere"))
        dry_run, everywhere = (_is_set(fields, key) for key in ("dry_run", "everywhere"))
        name, version = fields["name"], _version(fields["version"])
        return _json(await self._operations.remove(name, version, dry_run=dry_run, everywhere=everywhere))

    async def pin(self, request: Request) -> Response:
        return await self._pinned(request, undo=False)

    async def unpin(self, request: Request) -> Response:
        return await self._pinned(request, undo=True)

    async def _pinned(self, request: Request, *, undo: bool) -> Response:
        fields = await _fields(request, "name", optional=("version",))
        version = _version(fields["version"]) if "version" in fields else None
        return _json(await self._operations.pin(fields["name"], version, undo=undo))

    async def want(self, request: Request) -> Response:
        fields = await _fields(request, "name", optional=("want", "clear", "free"))
        terms = fields.get("want", "").splitlines()
        clear, free = (_is_set(fields, key) for key in ("clear", "free"))
        if not (terms or clear or free):
            raise UsageError("give 'want', its terms, a line each, or 'clear', or 'free'")
        return _json(await self._operations.want(fields["name"], terms, clear=clear, free=free))

    async def prune(self, request: Request) -> Response:
        fields = await _fields(request, optional=("dry_run",))
        return _json(await self._operations.prune(dry_run=fields.get("dry_run", "false") == "true"))

    async def rollback(self, request: Request) -> Response:
        fields = await _fields(request, "name", optional=("version", "everywhere"))
        version = _version(fields["version"]) if "version" in fields else None
        if _is_set(fields, "everywhere"):
            return _json(await self._operations.rollback_everywhere(fields["name"], version))
        if version is not None:
            raise UsageError("a version is given with 'everywhere' only")
        return _json(await self._operations.rollback(fields["name"]))

    async def untrust(self, request: Request) -> Response:
        fields = await _fields(request, optional=("key", "name", "version", "undo"))
        key, name, undo = fields.get("key", ""), fields.get("name", ""), fields.get("undo") == "true"
        if bool(key) == bool(name) or (key and not _KEY_ID.fullmatch(key)):
            raise StatusRequestError("give either 'key', 32 hexadecimal digits, or 'name' and 'version'")
        version = 0 if key else _version(fields.get("version", ""))
        return _json(await self._operations.untrust(key, name, version, undo=undo))

    async def override(self, request: Request) -> Response:
        return _json(await self._operations.override((await _fields(request, "name"))["name"]))

    async def forget(self, request: Request) -> Response:
        return _json(await self._operations.forget((await _fields(request, "node"))["node"]))

    async def reload(self, request: Request) -> Response:
        await _fields(request)
        return _json(await self._operations.reload())

    async def verify(self, request: Request) -> Response:
        fields = await _fields(request, "name", "version")
        return await _streamed(self._operations.verify(fields["name"], _version(fields["version"])))


_KEEP = ("keep_last", "keep_every")


class _PublishRoutes:
    """Publishing, for the user who asks."""

    def __init__(self, publishing: PublishPort) -> None:
        self._publishing = publishing

    async def publish(self, request: Request) -> Response:
        fields = await _fields(request, "directory", "name", optional=("version", "step", "how", "about", *_KEEP))
        about = fields.get("about", "")
        steps = self._publishing.publish(
            CALLER.get(), fields["directory"], fields["name"], how=_how(fields), about=about, **_numbers(fields)
        )
        return await _streamed(steps)

    async def shards(self, request: Request) -> Response:
        fields = await _fields(request, "directory", "name", "rank", "ranks", "chunk_bytes")
        rank, ranks, chunk_bytes = (_version(fields[key]) for key in ("rank", "ranks", "chunk_bytes"))
        steps = self._publishing.shards(
            CALLER.get(), fields["directory"], fields["name"], rank=rank, ranks=ranks, chunk_bytes=chunk_bytes
        )
        return await _streamed(steps)

    async def assemble(self, request: Request) -> Response:
        fields = await _fields(request, "shards", "name", optional=("version", "step", "about", *_KEEP))
        about = fields.get("about", "")
        steps = self._publishing.assemble(
            CALLER.get(), fields["shards"], fields["name"], about=about, **_numbers(fields)
        )
        return await _streamed(steps)

    async def adopt_shards(self, request: Request) -> Response:
        fields = await _fields(request, "directory", "manifest", optional=("told",))
        is_told = _is_set(fields, "told")
        steps = self._publishing.adopt_shards(CALLER.get(), fields["directory"], fields["manifest"], is_told=is_told)
        return await _streamed(steps)

    async def adopt(self, request: Request) -> Response:
        fields = await _fields(request, "directory", "manifest", optional=("how",))
        steps = self._publishing.adopt(CALLER.get(), fields["directory"], fields["manifest"], how=_how(fields))
        return await _streamed(steps)


def _numbers(fields: Mapping[str, str]) -> dict[str, int | None]:
    """Version or step, and which versions are to live. Raises UsageError."""
    numbers = {key: _version(fields[key]) if key in fields else None for key in ("version", "step", *_KEEP)}
    if numbers["version"] is not None and numbers["step"] is not None:
        raise UsageError("give a version or a step, not both")
    if numbers["keep_every"] is not None and numbers["keep_last"] is None:
        raise UsageError("keep_every goes with keep_last")
    return numbers


def _how(fields: Mapping[str, str]) -> str:
    how = fields.get("how") or "copy"
    if how not in ("copy", "reflink"):
        raise UsageError(
            f"how is {how[:20]!r}, must be copy or reflink; hard links would change with the trainer's files"
        )
    return how


async def _streamed(steps: AsyncGenerator[Row, None]) -> Response:
    """One line of JSON for each step. The first is taken before the head is sent, so that a refusal has a status."""
    first = await anext(steps, None)

    async def lines() -> AsyncIterator[bytes]:
        try:
            if first is not None:
                yield msgspec.json.encode(first) + b"\n"
            async for step in steps:
                yield msgspec.json.encode(step) + b"\n"
        except GossipdError as error:
            yield error_body(error.code, str(error), int(error.exit_code))
        finally:
            await steps.aclose()

    return StreamingResponse(lines(), media_type="application/x-ndjson")


def _question_routes(view: StatusPort, ring: EventRing) -> list[Route]:
    pages = _Pages(view)
    return [
        Route("/v1/events", EventPages(ring).events),
        Route("/v1/status", pages.status),
        Route("/v1/members", pages.members),
        Route("/v1/models", pages.models),
        Route("/v1/manifest", pages.manifest),
        Route("/v1/report", pages.report),
        Route("/v1/wants", pages.wants),
        Route("/v1/peers", pages.peers),
        Route("/v1/deployments/{name:path}/{version:int}", pages.deployment),
        Route("/v1/wait", pages.wait),
        Route("/v1/latest", pages.latest),
        *_health_routes(view),
    ]


def _health_routes(view: StatusPort) -> list[Route]:
    async def metrics(request: Request) -> Response:
        return Response(await render(view), media_type=CONTENT_TYPE)

    async def alive(request: Request) -> Response:
        # Reaching this line proves that the loop runs.
        return _json({"live": True})

    async def ready(request: Request) -> Response:
        health = view.health()
        return _json(health, status=200 if health.ready else 503)

    return [Route("/metrics", metrics), Route("/livez", alive), Route("/readyz", ready), Route("/healthz", ready)]


async def _fields(request: Request, *names: str, optional: tuple[str, ...] = ()) -> dict[str, str]:
    """The arguments of a command: all ``names``, and any of the ``optional`` ones."""
    given: dict[str, str] = dict(request.query_params)
    if body := await request.body():
        try:
            sent = msgspec.json.decode(body, type=dict[str, object])
            given |= {key: _text(key, value) for key, value in sent.items()}
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            raise StatusRequestError("the body is not a JSON object") from None
    return _checked(given, names, optional)


def _given(request: Request, *names: str, optional: tuple[str, ...] = ()) -> dict[str, str]:
    """The same for a question, which has no body."""
    return _checked(dict(request.query_params), names, optional)


def _checked(given: dict[str, str], names: tuple[str, ...], optional: tuple[str, ...]) -> dict[str, str]:
    for name in given:
        if name not in names + optional:
            raise StatusRequestError(f"field '{name[:40]}' is unknown; expected {', '.join(names + optional)}")
    for name in names:
        if not given.get(name):
            raise StatusRequestError(f"field '{name}' is missing")
    return given


def _text(key: str, value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | str):
        return str(value)
    raise StatusRequestError(f"field '{key[:40]}' must be a string, a number or true or false")


def _is_set(fields: Mapping[str, str], key: str) -> bool:
    """Raises UsageError: an order that is given for all hosts by a slip of the pen must not be one for this host."""
    if fields.get(key, "false") not in ("true", "false"):
        raise UsageError(f"{key} must be true or false")
    return fields.get(key) == "true"


def _version(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) <= 16):
        raise UsageError("version must be a non-negative integer")
    return int(text)


def _round_s(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < float("inf"):
        raise UsageError("round_s must be a number of seconds")
    return seconds


def _label(name: str, version: int | None) -> str:
    return name if version is None else f"{name}@{version}"


def _json(answer: msgspec.Struct | Mapping[str, object], status: int = 200) -> Response:
    fields = msgspec.structs.asdict(answer) if isinstance(answer, msgspec.Struct) else dict(answer)
    body = msgspec.json.encode({"schema_version": SCHEMA_VERSION, **fields})
    return Response(body + b"\n", status_code=status, media_type="application/json")


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, GossipdError)
    status = _STATUS_OF_EXIT.get(error.exit_code, 409)
    if isinstance(error, StatusRequestError):
        status = 400
    elif isinstance(error, RemoteError) and status == 409:
        status = 502
    body = error_body(error.code, str(error), int(getattr(error, "code_of_exit", error.exit_code)))
    return Response(body, status_code=status, media_type="application/json")


async def _no_such_page(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    body = error_body("E_STATUS_REQUEST", f"{request.method} {request.url.path[:100]}: {error.detail}")
    return Response(body, status_code=error.status_code, media_type="application/json")


async def _no_orders_here(request: Request) -> Response:
    sentence = "this socket takes no commands: the daemon's own user and root give them at status.socket"
    body = error_body("E_READ_SOCKET", sentence, int(ExitCode.DAEMON_UNREACHABLE))
    return Response(body, status_code=403, media_type="application/json")


async def _our_bug(request: Request, error: Exception) -> Response:
    """The client gets a sentence; starlette passes the error on, and the log gets the traceback."""
    return Response(error_body("E_INTERNAL", "the daemon failed to answer; its log says why"), status_code=500)


_HANDLERS = {GossipdError: _refused, HTTPException: _no_such_page, Exception: _our_bug}
