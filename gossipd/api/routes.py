"""The routes of the local sockets: which method answers each path of the two unix sockets and of the metrics port.

What lives here: the table of paths, and which of them each socket has. What does not: the methods behind them
(``question_pages``, ``event_pages``, ``operator_commands``, ``job_commands``), the form of answers and refusals
(``answers``), their fields (``schema``), and HTTP and its limits (``request_guard``).

=======  ================================  ==========================================================
method   path                              answer
=======  ================================  ==========================================================
GET      /v1/status?name=&version=         StatusSnapshot, its deployments narrowed; of those on more hosts the
         &hosts_max=&host=                 complete ones as counts; or those of one host, with its rows alone
GET      /v1/members                       {"members": [...]}
GET      /v1/names                         text, a line each: "model NAME@VERSION", "name HOST", "rack RACK"
GET      /v1/models?name=                  {"models": [...]}: what is on this host
GET      /v1/manifest?name=&version=&id=   ManifestRow: what its publisher says; the newest without a version
GET      /v1/events?since=BOOT:ID&wait_s=  {"boot", "last", "events": [...]}, or server-sent events when asked for
GET      /v1/report?name=&version=         {"report": ...}: what a deployment did, of a name the newest
GET      /v1/sketch?name=&version=&host=   SketchesRow: which chunks hosts have; of a name the newest. bins=256:
         &bins=                            as that host says itself, which is asked
GET      /v1/wants                         {"wants": [...]}: parts that this host wants
GET      /v1/peers                         {"peers": {id: ...}}: traffic with each peer
GET      /v1/tasks                         {"tasks": [...]}: what the tasks of the daemon wait for
GET      /v1/log                           {"lines": [...]}: the latest of the daemon's log; not on the second socket
GET      /v1/deployments/NAME/VERSION      one deployment; NAME may be ``org/name``
GET      /v1/wait?name=&version=&hosts=    WaitRow, when enough hosts are complete or the
         &goal=&round_s=                   round is over; a refusal if it cannot be. goal: complete,
                                           current, removed
GET      /v1/latest?name=&where=           the newest version that is complete there
POST     /v1/cancel, pause, resume, rm,    {"changed": bool, "sentence": str}
         rollback, forget, untrust,
         override, pin, unpin, warm
POST     /v1/want                          the same, with what is in force
POST     /v1/prune                         the same, with "evicted" and "kept": lists of versions
POST     /v1/deploy                        the same, with "manifest"; dry_run judges it and deploys nothing
POST     /v1/reload                        the same, with "applied" and "needs_restart": lists of settings
POST     /v1/publish, adopt, shards,       newline-separated JSON, one PublishStep a line
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

from gossipd.api.event_pages import EventPages
from gossipd.api.events import EventRing
from gossipd.api.http_messages import HttpRequest, Response
from gossipd.api.job_commands import JobCommands
from gossipd.api.operator_commands import OperatorCommands
from gossipd.api.ports import AdminPort, PublishPort, StatusPort
from gossipd.api.question_pages import QuestionPages
from gossipd.api.request_guard import error_body
from gossipd.api.router import Route, Router
from gossipd.core.errors import ExitCode


def status_app(view: StatusPort, operations: AdminPort, publishing: PublishPort, ring: EventRing) -> Router:
    """All routes, for the unix socket."""
    orders, jobs = OperatorCommands(operations), JobCommands(publishing)
    routes = [
        *_question_routes(view, ring),
        Route("/v1/log", QuestionPages(view).log),
        Route("/v1/deploy", orders.deploy, method="POST"),
        Route("/v1/cancel", orders.cancel, method="POST"),
        Route("/v1/pause", orders.pause, method="POST"),
        Route("/v1/resume", orders.resume, method="POST"),
        Route("/v1/rm", orders.remove, method="POST"),
        Route("/v1/pin", orders.pin, method="POST"),
        Route("/v1/unpin", orders.unpin, method="POST"),
        Route("/v1/warm", orders.warm, method="POST"),
        Route("/v1/want", orders.want, method="POST"),
        Route("/v1/prune", orders.prune, method="POST"),
        Route("/v1/rollback", orders.rollback, method="POST"),
        Route("/v1/untrust", orders.untrust, method="POST"),
        Route("/v1/override", orders.override, method="POST"),
        Route("/v1/forget", orders.forget, method="POST"),
        Route("/v1/reload", orders.reload, method="POST"),
        Route("/v1/verify", orders.verify, method="POST"),
        *_job_routes(jobs),
        Route("/v1/adopt", jobs.adopt, method="POST"),
    ]
    return Router(routes)


def read_app(view: StatusPort, publishing: PublishPort, ring: EventRing) -> Router:
    """The questions, for a unix socket that other users of the host may use, and publishing, which asks who they are.
    No other route changes anything."""
    jobs = _job_routes(JobCommands(publishing))
    orders = Route("/v1/{verb}", _no_commands_here, method="POST")
    return Router([*_question_routes(view, ring), *jobs, orders])


def health_app(view: StatusPort) -> Router:
    """Metrics and health only, for a loopback TCP port that every user of the host can reach."""
    return Router(_health_routes(QuestionPages(view)))


def _question_routes(view: StatusPort, ring: EventRing) -> list[Route]:
    pages = QuestionPages(view)
    return [
        Route("/v1/events", EventPages(ring).events),
        Route("/v1/status", pages.status),
        Route("/v1/members", pages.members),
        Route("/v1/names", pages.names),
        Route("/v1/models", pages.models),
        Route("/v1/manifest", pages.manifest),
        Route("/v1/report", pages.report),
        Route("/v1/sketch", pages.sketch),
        Route("/v1/wants", pages.wants),
        Route("/v1/peers", pages.peers),
        Route("/v1/tasks", pages.tasks),
        Route("/v1/deployments/{name:path}/{version:int}", pages.deployment),
        Route("/v1/wait", pages.wait),
        Route("/v1/latest", pages.latest),
        *_health_routes(pages),
    ]


def _health_routes(pages: QuestionPages) -> list[Route]:
    return [
        Route("/metrics", pages.metrics),
        Route("/livez", pages.alive),
        Route("/readyz", pages.ready),
        Route("/healthz", pages.ready),
    ]


def _job_routes(jobs: JobCommands) -> list[Route]:
    """What ``publish.users`` may order on both sockets."""
    return [
        Route("/v1/publish", jobs.publish, method="POST"),
        Route("/v1/shards", jobs.shards, method="POST"),
        Route("/v1/assemble", jobs.assemble, method="POST"),
        Route("/v1/adopt-shards", jobs.adopt_shards, method="POST"),
    ]


async def _no_commands_here(request: HttpRequest) -> Response:
    sentence = "this socket takes no commands: the daemon's own user and root give them at status.socket"
    body = error_body("E_READ_SOCKET", sentence, int(ExitCode.DAEMON_UNREACHABLE))
    return Response(body, status_code=403)
