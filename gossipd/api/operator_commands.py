"""The operator's commands on the status socket: one method for each path, from its fields to a call of the daemon.

What lives here: which fields a command takes, and which daemon call it becomes. What does not: the paths (``routes``),
and what the commands do (``ports.AdminPort``; publishing: ``job_commands``).
"""

from __future__ import annotations

import re

from gossipd.api.answers import json_answer, streamed_answer
from gossipd.api.http_exchange import StatusRequestError
from gossipd.api.http_messages import HttpRequest, Response
from gossipd.api.ports import AdminPort
from gossipd.api.request_fields import command_fields, is_set, whole_number
from gossipd.api.request_guard import CALLING_PROCESS
from gossipd.core.errors import UsageError

_KEY_ID = re.compile("[0-9a-f]{32}")


class OperatorCommands:
    """Passes commands on and answers with their results."""

    def __init__(self, operations: AdminPort) -> None:
        self._operations = operations

    async def deploy(self, request: HttpRequest) -> Response:
        fields = command_fields(request, "manifest", optional=("dry_run", "budget"))
        dry_run, budget = is_set(fields, "dry_run"), fields.get("budget", "")
        return json_answer(await self._operations.deploy(fields["manifest"], dry_run=dry_run, budget=budget))

    async def cancel(self, request: HttpRequest) -> Response:
        fields = command_fields(request, "name", "version", optional=("force",))
        force = is_set(fields, "force")
        return json_answer(await self._operations.cancel(fields["name"], whole_number(fields["version"]), force=force))

    async def pause(self, request: HttpRequest) -> Response:
        return await self._paused(request, undo=False)

    async def resume(self, request: HttpRequest) -> Response:
        return await self._paused(request, undo=True)

    async def _paused(self, request: HttpRequest, *, undo: bool) -> Response:
        fields = command_fields(request, "name", "version")
        return json_answer(await self._operations.pause(fields["name"], whole_number(fields["version"]), undo=undo))

    async def remove(self, request: HttpRequest) -> Response:
        fields = command_fields(request, "name", "version", optional=("dry_run", "everywhere"))
        dry_run, everywhere = (is_set(fields, key) for key in ("dry_run", "everywhere"))
        name, version = fields["name"], whole_number(fields["version"])
        return json_answer(await self._operations.remove(name, version, dry_run=dry_run, everywhere=everywhere))

    async def pin(self, request: HttpRequest) -> Response:
        return await self._pinned(request, undo=False)

    async def unpin(self, request: HttpRequest) -> Response:
        return await self._pinned(request, undo=True)

    async def _pinned(self, request: HttpRequest, *, undo: bool) -> Response:
        fields = command_fields(request, "name", optional=("version",))
        version = whole_number(fields["version"]) if "version" in fields else None
        return json_answer(await self._operations.pin(fields["name"], version, undo=undo))

    async def warm(self, request: HttpRequest) -> Response:
        fields = command_fields(request, "name", optional=("version",))
        version = whole_number(fields["version"]) if "version" in fields else None
        return json_answer(await self._operations.warm(fields["name"], version))

    async def want(self, request: HttpRequest) -> Response:
        fields = command_fields(request, "name", optional=("want", "clear", "free", "holder"))
        terms = fields.get("want", "").splitlines()
        clear, free = (is_set(fields, key) for key in ("clear", "free"))
        if not (terms or clear or free):
            raise UsageError("give 'want', its terms, a line each, or 'clear', or 'free'")
        holder, process = fields.get("holder", ""), CALLING_PROCESS.get()
        in_force = await self._operations.want(
            fields["name"], terms, clear=clear, free=free, holder=holder, process=process
        )  # fmt: skip
        return json_answer(in_force)

    async def prune(self, request: HttpRequest) -> Response:
        fields = command_fields(request, optional=("dry_run",))
        return json_answer(await self._operations.prune(dry_run=is_set(fields, "dry_run")))

    async def rollback(self, request: HttpRequest) -> Response:
        fields = command_fields(request, "name", optional=("version", "everywhere"))
        version = whole_number(fields["version"]) if "version" in fields else None
        if is_set(fields, "everywhere"):
            return json_answer(await self._operations.rollback_everywhere(fields["name"], version))
        if version is not None:
            raise UsageError("a version is given with 'everywhere' only")
        return json_answer(await self._operations.rollback(fields["name"]))

    async def untrust(self, request: HttpRequest) -> Response:
        fields = command_fields(request, optional=("key", "name", "version", "undo"))
        key, name, undo = fields.get("key", ""), fields.get("name", ""), is_set(fields, "undo")
        if bool(key) == bool(name) or (key and not _KEY_ID.fullmatch(key)):
            raise StatusRequestError("give either 'key', 32 hexadecimal digits, or 'name' and 'version'")
        version = 0 if key else whole_number(fields.get("version", ""))
        return json_answer(await self._operations.untrust(key, name, version, undo=undo))

    async def override(self, request: HttpRequest) -> Response:
        return json_answer(await self._operations.override(command_fields(request, "name")["name"]))

    async def forget(self, request: HttpRequest) -> Response:
        return json_answer(await self._operations.forget(command_fields(request, "node")["node"]))

    async def reload(self, request: HttpRequest) -> Response:
        command_fields(request)
        return json_answer(await self._operations.reload())

    async def verify(self, request: HttpRequest) -> Response:
        fields = command_fields(request, "name", "version")
        return await streamed_answer(self._operations.verify(fields["name"], whole_number(fields["version"])))
