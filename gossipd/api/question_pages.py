"""The answers to questions on the local sockets: one method for each path that changes nothing.

What lives here: which of the daemon's facts each path shows, and health. What does not: the paths (``routes``), events
(``event_pages``), and where the facts come from (``ports.StatusPort``).
"""

from __future__ import annotations

import sys
from importlib import import_module

import msgspec
import trio

from gossipd.api.answers import json_answer, listed_answer, to_json
from gossipd.api.http_exchange import StatusRequestError
from gossipd.api.http_messages import HttpRequest, Response
from gossipd.api.long_poll import LongPoll
from gossipd.api.ports import StatusPort
from gossipd.api.readiness import EVERYWHERE, HERE, HostsNeeded, NotReadyError, newest, refuse_strangers
from gossipd.api.request_fields import question_fields, round_s, whole_number
from gossipd.api.schema import SketchesRow
from gossipd.core.errors import NotFoundError
from gossipd.core.sketch import FINE_BINS
from gossipd.runtime.logs import recent
from gossipd.runtime.task_tree import task_tree
from gossipd.runtime.worker_threads import run_blocking

NEWCOMER_WAIT_S, NEWCOMER_LOOK_S = 6.0, 0.1  # under the time-out of a client
_SEE = "; see: gossipd status"
_METRICS = "gossipd.api.metrics"


class QuestionPages:
    """Answers from memory."""

    def __init__(self, view: StatusPort) -> None:
        self._view = view
        self._polls = LongPoll(view)

    async def status(self, request: HttpRequest) -> Response:
        """A row at a time: with many hosts the rows of many deployments together would hold up the loop."""
        name, version = request.query.get("name"), request.query.get("version")
        number = whole_number(version) if name is not None and version is not None else None
        hosts_max = whole_number(most, "hosts_max") if (most := request.query.get("hosts_max")) is not None else None
        rows, host = [], request.query.get("host")
        for row in self._view.deployments(name, number, hosts_max=hosts_max, host=host):
            rows.append(to_json(row))
            await trio.lowlevel.checkpoint()
        is_of_others = host is not None and not rows and any(self._view.deployments(name, number, hosts_max=0))
        if name is not None and not rows and not is_of_others:
            raise NotFoundError(f"no deployment {self._view.label(name, number)} is known here{_SEE}")
        page = msgspec.structs.asdict(self._view.snapshot())
        return listed_answer({key: page[key] for key in page if key != "deployments"}, "deployments", rows)

    async def members(self, request: HttpRequest) -> Response:
        return json_answer({"members": self._view.snapshot().members})

    async def names(self, request: HttpRequest) -> Response:
        """A line each: a shell that completes a word has no time for JSON."""
        lines = [f"{kind} {name}\n" for kind, name in self._view.names()]
        return Response("".join(lines).encode(), media_type="text/plain; charset=utf-8")

    async def models(self, request: HttpRequest) -> Response:
        name = request.query.get("name")
        await self._view.look()
        models = [model for model in self._view.models() if name in (None, model.name)]
        return json_answer({"models": models})

    async def manifest(self, request: HttpRequest) -> Response:
        given = request.query
        name, version, deployment = given.get("name"), given.get("version"), given.get("id")
        if name is None and deployment is None:
            raise StatusRequestError("field 'name' or 'id' is missing")
        number = whole_number(version) if version is not None else None
        row = self._view.manifest(name, number, deployment)
        if row is None:
            what = f"manifest {self._view.label(name, number)}" if name is not None else "manifest with that id"
            raise NotFoundError(f"no {what} is known here{_SEE}")
        return json_answer({"manifest": row})

    async def report(self, request: HttpRequest) -> Response:
        given = question_fields(request, "name", optional=("version",))
        number = whole_number(given["version"]) if "version" in given else None
        row = self._view.report(given["name"], number)
        if row is None:
            raise NotFoundError(f"no deployment {self._view.label(given['name'], number)} is known here{_SEE}")
        return json_answer({"report": row})

    async def sketch(self, request: HttpRequest) -> Response:
        given = question_fields(request, "name", optional=("version", "host", "bins"))
        number = whole_number(given["version"]) if "version" in given else None
        row, host = next(self._view.deployments(given["name"], number), None), given.get("host")
        if row is None:
            raise NotFoundError(f"no deployment {self._view.label(given['name'], number)} is known here{_SEE}")
        if host is not None and host not in {one.name for one in row.hosts}:
            raise NotFoundError(f"{host!r} is no target of {self._view.label(row.name, row.version)}")
        fine, asked = None, ""
        if "bins" in given:
            if given["bins"] != str(FINE_BINS) or host is None:
                raise StatusRequestError(f"field 'bins' is {FINE_BINS}, and of one host")
            fine, asked = self._view.fine_sketch(row.name, row.version, host)
        hosts = [] if fine is None else [fine]
        for one in self._view.sketches(row.name, row.version) if fine is None else ():
            if host in (None, one.name):
                hosts.append(one)
            await trio.lowlevel.checkpoint()
        answer = SketchesRow(
            told_by=self._view.host_name(), name=row.name, version=row.version, version_label=row.version_label,
            chunks_total=row.chunks_total, hosts_total=row.hosts_total, hosts=hosts, asked=asked,
        )  # fmt: skip
        return json_answer(answer)

    async def wants(self, request: HttpRequest) -> Response:
        return json_answer({"wants": self._view.wants()})

    async def peers(self, request: HttpRequest) -> Response:
        return json_answer({"peers": self._view.peers()})

    async def log(self, request: HttpRequest) -> Response:
        return json_answer({"lines": recent()})

    async def tasks(self, request: HttpRequest) -> Response:
        return json_answer({"tasks": task_tree()})

    async def deployment(self, request: HttpRequest) -> Response:
        name, version = request.path_params["name"], int(request.path_params["version"])
        row = next(self._view.deployments(name, version), None)
        if row is None:
            raise NotFoundError(f"no deployment {self._view.label(name, version)} is known here{_SEE}")
        return json_answer({"deployment": row})

    async def wait(self, request: HttpRequest) -> Response:
        given = question_fields(request, "name", optional=("version", "hosts", "goal", "round_s"))
        version = whole_number(given["version"]) if "version" in given else None
        needed = HostsNeeded.parse(given.get("hosts", "100%"), given.get("goal", "complete"))
        return json_answer(await self._polls.wait(given["name"], version, needed, round_s(given.get("round_s", "20"))))

    async def latest(self, request: HttpRequest) -> Response:
        given = question_fields(request, "name", optional=("where", "before"))
        name, where = given["name"], given.get("where", EVERYWHERE)
        before = whole_number(given["before"]) if "before" in given else None
        until_s = trio.current_time() + NEWCOMER_WAIT_S
        while True:
            rows = []
            for row in self._view.deployments(name):
                rows.append(row)
                await trio.lowlevel.checkpoint()
            try:
                row = newest(rows, name, where, self._view.host_name(), before)
                if where == HERE or not self._view.newcomer(at_start=True) or trio.current_time() >= until_s:
                    return json_answer({"deployment": row})
            except (NotFoundError, NotReadyError) as error:
                why = self._view.newcomer()
                if not why:
                    if isinstance(error, NotReadyError):
                        refuse_strangers(where, rows, self._view.names())
                    raise
                if trio.current_time() >= until_s:
                    raise NotReadyError(f"{error}; {why}, and may not have heard of it") from None
            await trio.sleep(NEWCOMER_LOOK_S)

    async def metrics(self, request: HttpRequest) -> Response:
        if _METRICS not in sys.modules:
            await run_blocking(import_module, _METRICS)  # with prometheus_client, which a scraper alone needs
        page = sys.modules[_METRICS]
        return Response(await page.render(self._view), media_type=page.CONTENT_TYPE)

    async def alive(self, request: HttpRequest) -> Response:
        # Reaching this line proves that the loop runs.
        return json_answer({"live": True})

    async def ready(self, request: HttpRequest) -> Response:
        await self._view.look()
        health = self._view.health()
        return json_answer(health, status=200 if health.ready else 503)
