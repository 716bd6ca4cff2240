"""Commands of the operator that run when a model is complete or has failed here, and at an alarm.

What lives here: looking for facts, and what the log says. What does not: the order and retries (``hook_queue``), and
the process (``hook_program``).

A command is an argument vector: no shell reads it, and nothing from a manifest is part of it. The fact is one JSON
object on its standard input. It has ``timeout_s``; then it and its children, a session of their own, are killed.
``complete`` comes after ``current`` has moved.
"""

from __future__ import annotations

import json
from pathlib import Path

import trio

from gossipd.api.schema import HooksRow
from gossipd.config.job_sections import HooksSection
from gossipd.core.units import printable
from gossipd.daemon.alarms import Alarms
from gossipd.daemon.hook_program import HookPrograms
from gossipd.daemon.hook_queue import Hook, HookFact, HookQueue
from gossipd.daemon.live_settings import LiveSettings
from gossipd.deployment.deployment_record import DeploymentRecord
from gossipd.deployment.deployment_table import DeploymentTable
from gossipd.deployment.progress_record import HostState
from gossipd.runtime.logs import get_logger
from gossipd.runtime.look_interval import until_next_look
from gossipd.store.chunk_store import ChunkStore

LOOK_S = 0.5
LINE_CHARS_MAX = 200
RESTING_LOOK_S = 1.0  # without a hook: when the daemon is awake anyway
_KINDS = {HostState.COMPLETE: "complete", HostState.FAILED: "failed"}
log = get_logger("hooks")


class Hooks:
    """One per daemon."""

    def __init__(self, live: LiveSettings, lifecycle: DeploymentTable, alarms: Alarms, store: ChunkStore) -> None:
        self._live = live
        self._store = store
        self._lifecycle = lifecycle
        self._alarms = alarms
        self._queue = HookQueue()
        self._programs = HookPrograms()

    def row(self) -> HooksRow:
        figures = self._queue.figures
        return HooksRow(
            done=figures.done, failed=figures.failed, dropped=figures.dropped, waiting=self._queue.waiting,
            last_failure=figures.last_failure,
        )  # fmt: skip

    async def run(self) -> None:
        """Never returns."""
        while True:
            hooks = hooks_of(self._live.config.hooks)
            self._queue.note(self._facts(), hooks)
            due = self._queue.next(trio.current_time())
            if due is None:
                await until_next_look(LOOK_S if hooks else RESTING_LOOK_S)
                continue
            trouble = await self._perform(*due)
            if trouble is not None:
                log.warning("hook failed", kind=due[0].kind, reason=trouble)
            self._queue.ended(trouble, trio.current_time())

    def _facts(self) -> list[HookFact]:
        facts = [
            HookFact(kind, self._fields(record), (record.id.hex(), record.reason.value if kind == "failed" else ""))
            for record in self._lifecycle
            if record.manifest is not None and (kind := _KINDS.get(record.state)) is not None
        ]
        alarms, numbers = self._alarms.rows.items(), self._alarms.numbers
        return facts + [
            HookFact("alarm", (("code", one.code), ("sentence", one.sentence)), (numbers[key],)) for key, one in alarms
        ]

    def _fields(self, record: DeploymentRecord) -> tuple[tuple[str, str | int], ...]:
        manifest = record.manifest
        assert manifest is not None
        tree = self._store.place(manifest.id) or f"{manifest.name}/{manifest.version}"
        path = Path(self._live.config.store.models) / tree
        place = str(path) if record.state is HostState.COMPLETE else ""
        return (
            ("name", manifest.name), ("version", manifest.version), ("id", record.id.hex()), ("path", place),
            ("reason", record.reason.value), ("sentence", record.sentence),
        )  # fmt: skip

    async def _perform(self, hook: Hook, fact: HookFact) -> str | None:
        """Run one hook to its end; how it failed, with the last line that it has said of it."""
        node, program = self._live.config.node, hook.command[0]
        fields = {"schema_version": 1, "event": fact.kind, "node": node.name, "rack": node.rack, **dict(fact.fields)}
        ended = await self._programs.run(hook.command, json.dumps(fields).encode() + b"\n", hook.timeout_s)
        if ended.said:
            log.info("hook said", kind=fact.kind, program=program, words=ended.said)
        if ended.trouble is None or not ended.said:
            return ended.trouble
        line = ended.said.splitlines()[-1].strip()[:LINE_CHARS_MAX]
        return f"{ended.trouble}: {printable(line)}"


def hooks_of(section: HooksSection) -> list[Hook]:
    """What the configuration names, those for all names first."""
    commands = (("complete", section.complete), ("failed", section.failed), ("alarm", section.alarm))
    plain = [Hook(kind, command) for kind, command in commands if command]
    return plain + [Hook(one.on, one.command, one.names, one.timeout_s) for one in section.named if one.command]
