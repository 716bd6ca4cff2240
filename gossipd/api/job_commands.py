"""The commands by which jobs publish, on both sockets: one method for each path, for the user that asks.

What lives here: which fields a command takes, and which daemon call it becomes. What does not: the paths (``routes``),
who may publish, and publishing (``ports.PublishPort``).
"""

from __future__ import annotations

from collections.abc import Mapping

from gossipd.api.answers import streamed_answer
from gossipd.api.http_messages import HttpRequest, Response
from gossipd.api.ports import PublishPort
from gossipd.api.request_fields import command_fields, is_set, whole_number
from gossipd.api.request_guard import CALLER
from gossipd.core.errors import UsageError

_KEEP = ("keep_last", "keep_every")
_WORDS = ("about", "exclude")


class JobCommands:
    """Publishing, for the user who asks."""

    def __init__(self, publishing: PublishPort) -> None:
        self._publishing = publishing

    async def publish(self, request: HttpRequest) -> Response:
        fields = command_fields(request, "directory", "name", optional=("version", "step", "how", *_WORDS, *_KEEP))
        about, exclude = (fields.get(key, "") for key in _WORDS)
        steps = self._publishing.publish(
            CALLER.get(), fields["directory"], fields["name"], how=_how(fields), about=about, exclude=exclude,
            **_numbers(fields),
        )  # fmt: skip
        return await streamed_answer(steps)

    async def shards(self, request: HttpRequest) -> Response:
        fields = command_fields(request, "directory", "name", "rank", "ranks", "chunk_bytes", optional=("exclude",))
        rank, ranks, chunk_bytes = (whole_number(fields[key], key) for key in ("rank", "ranks", "chunk_bytes"))
        steps = self._publishing.shards(
            CALLER.get(), fields["directory"], fields["name"], rank=rank, ranks=ranks, chunk_bytes=chunk_bytes,
            exclude=fields.get("exclude", ""),
        )  # fmt: skip
        return await streamed_answer(steps)

    async def assemble(self, request: HttpRequest) -> Response:
        fields = command_fields(request, "shards", "name", optional=("version", "step", "about", *_KEEP))
        about = fields.get("about", "")
        steps = self._publishing.assemble(
            CALLER.get(), fields["shards"], fields["name"], about=about, **_numbers(fields)
        )
        return await streamed_answer(steps)

    async def adopt_shards(self, request: HttpRequest) -> Response:
        fields = command_fields(request, "directory", "manifest", optional=("told",))
        is_told = is_set(fields, "told")
        steps = self._publishing.adopt_shards(CALLER.get(), fields["directory"], fields["manifest"], is_told=is_told)
        return await streamed_answer(steps)

    async def adopt(self, request: HttpRequest) -> Response:
        fields = command_fields(request, "directory", "manifest", optional=("how",))
        steps = self._publishing.adopt(CALLER.get(), fields["directory"], fields["manifest"], how=_how(fields))
        return await streamed_answer(steps)


def _numbers(fields: Mapping[str, str]) -> dict[str, int | None]:
    """Version or step, and which versions are to live. Raises UsageError."""
    numbers = {key: whole_number(fields[key], key) if key in fields else None for key in ("version", "step", *_KEEP)}
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
